// SPDX-License-Identifier: Apache-2.0
//
// PartWorkers: the devices of a group, which has all parts of a network (net/pipeline/cut_info.hpp): their threads and
// contexts, and for each part its plans, with an arena per batch that is in flight there, of which evaluations use the
// first, and its packed weights once. The first device is that of the part that takes the batches: its thread and its
// context are those of the group's worker.
//
// All devices of a group compute with the same arrays. Where each device has memory of its own, it has the columns of
// its parts: parameters and gradients are read and written in place by the passes of the part, and by the group's first
// device, which averages and updates all of them, over the connection of the devices.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/device/device.hpp>
#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/parallel/impl/network_info.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/parallel/pipeline/part_columns.hpp>
#include <cupola/parallel/pipeline/part_copies.hpp>
#include <cupola/parallel/pipeline/part_evaluation.hpp>
#include <cupola/parallel/pipeline/part_memory.hpp>
#include <cupola/parallel/pipeline/shared_plans.hpp>
#include <cupola/parallel/replicas/device_threads.hpp>
#include <cupola/parallel/replicas/plans.hpp>
#include <cupola/parallel/replicas/replica_gradients.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/batch_memory.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Members are called by the thread of the group's first device, unless it is said otherwise.
template <class Device, class T>
class PartWorkers final : public DeviceParts<Device, T> {
public:
    using Context = typename Device::Context;
    using Taken = typename Plans<Device, T>::Taken;
    using Copies = PartCopies<Device>;
    using typename DeviceParts<Device, T>::MakePlan;

    /// For at most `batches` batches in a step. `first` is the context of the first device, and its number that of the
    /// group's first device among all `devices`.
    [[gnu::cold]] PartWorkers(const CutInfo& cut, std::int64_t batches, Context& first, int devices,
                              const typename Device::Options& options);
    [[gnu::cold]] ~PartWorkers() override;

    /// Before plans are made.
    [[gnu::cold]] void describe(const GroupMemory& memory) { group_ = memory; }
    [[nodiscard, gnu::cold]] typename Device::Arena arena(std::size_t bytes, RowOf rows,
                                                          std::string_view what) override;
    /// Makes the plans of all parts and batches in flight; the layers of `options` are replaced.
    [[gnu::cold]] void add(MakePlan make, const PlanOptions& options);
    /// The same for forward passes without training; the memory is for the largest of these batches.
    [[gnu::cold]] void add_evaluation(MakePlan make, std::int64_t batch);
    void evaluate(MakePlan make, const BatchView& samples, const EvaluatedArrays& arrays,
                  const Plans<Device, T>& of_group) override;
    [[nodiscard]] const float* output(std::size_t k) override { return evaluation_.output(k); }
    [[nodiscard]] std::size_t bytes() const override;
    [[gnu::cold]] void find_memory(MemoryReport& memory, std::size_t gradients, std::size_t averages) const override;
    [[gnu::cold]] void allocate() override;
    void require_working() const override {
        if constexpr (Copies::needed) {
            for (const std::unique_ptr<Copies>& each : copies_) each->require_working();
        }
    }

    [[nodiscard]] const CutInfo& cut() const { return *cut_; }
    [[nodiscard]] std::size_t slot_count(std::size_t part) const { return slot_counts_[part]; }
    [[nodiscard]] std::size_t first_device() const { return device_of(0); }
    [[nodiscard]] std::size_t device_of(std::size_t part) const { return cut_->device_of(part, cut_->parts()); }
    /// Whether a value is copied between the devices of a part and of the next one.
    [[nodiscard]] bool copies_behind(std::size_t part) const {
        return Copies::needed && device_of(part) != device_of(part + 1);
    }
    /// Calls job(device) for each device of the group, on its thread, and returns when all have returned.
    void run(FunctionRef<void(std::size_t device)> job);
    /// The plans pack their weights again if the parameters have changed since, as `of_group` know.
    void change_with(const Plans<Device, T>& of_group) {
        for (Plans<Device, T>& plans : plans_) plans.change_with(of_group);
    }

    // On the thread of the part's device.

    [[nodiscard]] Context& context(std::size_t part) { return *contexts_[device_of(part)]; }
    /// See Plans; `options` as for add().
    [[nodiscard]] Taken take(std::size_t part, std::size_t slot, const PlanOptions& options, const float* parameters) {
        return plans_[part].take(options_of(part, options), parameters, slot);
    }
    /// The batch, or its copy, which is valid as long as it is in this slot of the first part.
    [[nodiscard]] BatchView keep(std::size_t slot, const BatchView& batch);

    // Where values are copied, on the thread of the device.

    [[nodiscard]] Context& context_of(std::size_t device) { return *contexts_[device]; }
    [[nodiscard]] const Copies& copies(std::size_t device) const { return *copies_[device]; }
    /// Null for the first device, which has the status and the batches of the group.
    [[nodiscard]] PartMemory<Device>* memory(std::size_t device) { return memories_[device].get(); }
    /// The running statistics of a part.
    [[nodiscard]] const ElementRange& buffers_of(std::size_t part) const { return buffers_[part]; }
    /// Where a part receives the float values of the batch in a slot.
    [[nodiscard]] float* received(std::size_t part, std::size_t slot) {
        const std::size_t before = slot == 0 ? 0 : received_first_[part] + (slot - 1) * received_of_slot_[part];
        return reinterpret_cast<float*>(received_[device_of(part)].data() + received_at_[part] + before);
    }
    /// Where the last part has the columns of the batch in a slot.
    [[nodiscard]] BatchSpan batch_in_last(std::size_t slot) {
        const std::size_t last = cut_->parts() - 1;
        return batch_in(memory(device_of(last))->batches() + slot * batch_bytes(group_.columns, group_.batch_size),
                        group_.columns, group_.batch_size);
    }

private:
    [[nodiscard]] PlanOptions options_of(std::size_t part, PlanOptions options) const {
        options.layers = cut_->layers_of(part);
        options.keep_layers = cut_->keep_layers;
        return options;
    }
    /// Calls job(part) for each part, on the thread of its device.
    void run_parts(FunctionRef<void(std::size_t part)> job);
    /// Of a batch that enters a part as float; 0 if it is not copied.
    [[nodiscard, gnu::cold]] std::size_t received_bytes(std::size_t part, std::int64_t batch) const;
    /// The bytes of the copies of batches.
    [[nodiscard]] std::size_t kept_bytes() const {
        return group_.keeps_batches ? slot_counts_[0] * batch_bytes(group_.columns, group_.batch_size) : 0;
    }
    [[nodiscard, gnu::cold]] PartMemory<Device> memory_of(std::size_t device) const {
        const std::size_t last = cut_->parts() - 1;
        return {group_, device_of(last) == device ? slot_counts_[last] : 0};
    }
    /// The bytes that allocate() allocates on each device, and those of an array there.
    [[nodiscard, gnu::cold]] std::vector<std::size_t> bytes_of_devices() const;
    [[nodiscard, gnu::cold]] std::vector<std::size_t> divided(std::size_t bytes, RowOf rows) const;
    /// Which device has which elements of an array.
    [[nodiscard, gnu::cold]] std::vector<OwnedFrom> owners(std::size_t bytes, RowOf rows) const;
    /// Places what a device receives; returns its bytes.
    [[gnu::cold]] std::size_t place_received(std::size_t device, FixedArray<std::size_t>& at) const;

    const CutInfo* cut_;
    GroupMemory group_;
    FixedArray<std::size_t> slot_counts_;
    /// Of the devices but the first.
    DeviceThreads threads_;
    FixedArray<std::unique_ptr<Context>> own_contexts_;
    /// Of all devices.
    FixedArray<Context*> contexts_;
    /// Where they are needed: of all devices, and of all but the first.
    FixedArray<std::unique_ptr<Copies>> copies_;
    FixedArray<std::unique_ptr<PartMemory<Device>>> memories_;
    /// Of each part.
    FixedArray<ElementRange> buffers_;
    /// Of each part: the bytes that a slot receives, those of the first slot, which an evaluation uses too, and where
    /// they begin.
    FixedArray<std::size_t> received_of_slot_, received_first_, received_at_;
    /// Of each device.
    FixedArray<typename Device::Arena> received_;
    /// Of each part.
    FixedArray<Plans<Device, T>> plans_;
    PartEvaluation<Device, T> evaluation_;
    typename Device::Arena kept_;
};

template <class Device, class T>
PartWorkers<Device, T>::PartWorkers(const CutInfo& cut, std::int64_t batches, Context& first, int devices,
                                    const typename Device::Options& options)
    : cut_(&cut),
      slot_counts_(cut.parts()),
      threads_(static_cast<int>(cut.devices) - 1),
      own_contexts_(cut.devices),
      contexts_(cut.devices),
      copies_(cut.devices),
      memories_(cut.devices),
      buffers_(cut.parts()),
      received_of_slot_(cut.parts()),
      received_first_(cut.parts()),
      received_at_(cut.parts()),
      received_(cut.devices),
      plans_(cut.parts()),
      evaluation_(cut) {
    for (std::size_t k = 0; k < cut.parts(); ++k) {
        slot_counts_[k] = static_cast<std::size_t>(cut.slot_count(k, cut.parts(), batches));
        buffers_[k] = columns_of_part(cut.layers, cut.layers_of(k)).buffers;
    }
    contexts_[first_device()] = &first;
    run([&](std::size_t device) {
        if (device != first_device()) {
            const int ordinal = first.ordinal() + static_cast<int>(device) - static_cast<int>(first_device());
            own_contexts_[device] = std::make_unique<Context>(ordinal, options);
            contexts_[device] = own_contexts_[device].get();
            contexts_[device]->own_thread(devices);
            if constexpr (requires { Device::require_code(*contexts_[device]); })
                Device::require_code(*contexts_[device]);
        }
        if constexpr (Copies::needed) copies_[device] = std::make_unique<Copies>(*contexts_[device]);
    });
    for (std::size_t k = 0; k < cut.parts(); ++k) plans_[k].start(context(k));
}

template <class Device, class T>
PartWorkers<Device, T>::~PartWorkers() {
    // A plan holds objects of libraries that are destroyed on their device.
    if constexpr (Copies::needed) {
        for (std::size_t k = 0; k < cut_->parts(); ++k) {
            const auto team = context(k).team(std::nothrow);
            plans_[k].clear();
        }
    }
}

template <class Device, class T>
void PartWorkers<Device, T>::run(FunctionRef<void(std::size_t device)> job) {
    const std::size_t first = first_device();
    const auto of_others = [&](int thread) {
        const auto device = static_cast<std::size_t>(thread);
        job(device < first ? device : device + 1);
    };
    threads_.post(of_others);
    std::exception_ptr error;
    try {
        job(first);
    } catch (...) {
        error = std::current_exception();
    }
    threads_.wait();
    if (error != nullptr) std::rethrow_exception(error);
}

template <class Device, class T>
void PartWorkers<Device, T>::run_parts(FunctionRef<void(std::size_t part)> job) {
    run([&](std::size_t device) {
        const auto team = contexts_[device]->team();
        for (std::size_t k = 0; k < cut_->parts(); ++k) {
            if (device_of(k) == device) job(k);
        }
    });
}

template <class Device, class T>
void PartWorkers<Device, T>::add(MakePlan make, const PlanOptions& options) {
    run_parts([&](std::size_t part) {
        for (std::size_t slot = 0; slot < slot_counts_[part]; ++slot)
            plans_[part].add(make, options_of(part, options), slot);
        const std::size_t bytes = received_bytes(part, options.batch);
        received_of_slot_[part] = std::max(received_of_slot_[part], bytes);
        received_first_[part] = std::max(received_first_[part], bytes);
    });
}

template <class Device, class T>
std::size_t PartWorkers<Device, T>::received_bytes(std::size_t part, std::int64_t batch) const {
    // Any other type is received where the plan has its batch.
    if (!std::same_as<T, float> || part == 0 || !copies_behind(part - 1)) return 0;
    return aligned(static_cast<std::size_t>(batch * plans_[part].first().nodes().front().input.size()) * sizeof(float));
}

template <class Device, class T>
void PartWorkers<Device, T>::add_evaluation(MakePlan make, std::int64_t batch) {
    evaluation_.set_max_batch(batch);
    run_parts([&](std::size_t part) {
        plans_[part].add(make, options_of(part, {.batch = batch, .training = false}));
        received_first_[part] = std::max(received_first_[part], received_bytes(part, batch));
    });
}

template <class Device, class T>
void PartWorkers<Device, T>::evaluate(MakePlan make, const BatchView& samples, const EvaluatedArrays& arrays,
                                      const Plans<Device, T>& of_group) {
    for (std::size_t k = 0; k < cut_->parts(); ++k) {
        run_parts([&](std::size_t part) {
            if (part != k) return;
            const PlanOptions options = options_of(part, {.batch = samples.size, .training = false});
            plans_[part].add(make, options);
            plans_[part].change_with(of_group);
            float* const to = received_first_[part] == 0 ? nullptr : received(part, 0);
            evaluation_.forward(part, context(part), plans_[part].take(options, arrays.parameters), samples, arrays,
                                to);
        });
    }
}

template <class Device, class T>
std::size_t PartWorkers<Device, T>::place_received(std::size_t device, FixedArray<std::size_t>& at) const {
    std::size_t bytes = 0;
    for (std::size_t k = 0; k < cut_->parts(); ++k) {
        if (device_of(k) != device) continue;
        at[k] = bytes;
        bytes += received_first_[k] + (slot_counts_[k] - 1) * received_of_slot_[k];
    }
    return bytes;
}

template <class Device, class T>
std::vector<OwnedFrom> PartWorkers<Device, T>::owners(std::size_t bytes, RowOf rows) const {
    const std::int64_t length = rows == RowOf::parameters ? group_.parameter_elements
                                : rows == RowOf::trained  ? group_.trained_elements
                                                          : group_.buffer_elements;
    const auto elements = static_cast<std::int64_t>(bytes / sizeof(float));
    if (elements == 0) return {};
    return owned_elements(owned_columns(*cut_, rows), length, elements / length);
}

template <class Device, class T>
auto PartWorkers<Device, T>::arena(std::size_t bytes, [[maybe_unused]] RowOf rows, std::string_view what) ->
    typename Device::Arena {
    if constexpr (Copies::needed) {
        return Copies::arena(bytes, what, owners(bytes, rows), contexts_.span());
    } else {
        return typename Device::Arena(bytes, what);
    }
}

template <class Device, class T>
std::vector<std::size_t> PartWorkers<Device, T>::divided(std::size_t bytes, RowOf rows) const {
    std::vector<std::size_t> result(cut_->devices);
    const std::vector<OwnedFrom> owned = owners(bytes, rows);
    for (std::size_t i = 0; i < owned.size(); ++i) {
        const std::size_t begin = static_cast<std::size_t>(owned[i].begin) * sizeof(float),
                          end = i + 1 < owned.size() ? static_cast<std::size_t>(owned[i + 1].begin) * sizeof(float)
                                                     : bytes;
        result[owned[i].device] += end - begin;
    }
    return result;
}

template <class Device, class T>
std::vector<std::size_t> PartWorkers<Device, T>::bytes_of_devices() const {
    std::vector<std::size_t> bytes(cut_->devices);
    for (std::size_t k = 0; k < cut_->parts(); ++k) bytes[device_of(k)] += plans_[k].shared_bytes().total();
    bytes[first_device()] += kept_bytes() + evaluation_.bytes();
    if constexpr (Copies::needed) {
        for (std::size_t device = 0; device < bytes.size(); ++device) {
            FixedArray<std::size_t> at(cut_->parts());
            bytes[device] += place_received(device, at);
            if (device != first_device()) bytes[device] += memory_of(device).bytes();
        }
    }
    return bytes;
}

template <class Device, class T>
std::size_t PartWorkers<Device, T>::bytes() const {
    std::size_t bytes = 0;
    for (const std::size_t each : bytes_of_devices()) bytes += each;
    return bytes;
}

template <class Device, class T>
void PartWorkers<Device, T>::allocate() {
    if (group_.keeps_batches)
        kept_ = typename Device::Arena(kept_bytes(), text("the batches in flight of device ", context(0).ordinal()));
    evaluation_.allocate(context(0).ordinal());
    run_parts([&](std::size_t part) { plans_[part].allocate_sharing(); });
    if constexpr (Copies::needed) {
        run([&](std::size_t device) {
            const auto team = contexts_[device]->team();
            const int ordinal = contexts_[device]->ordinal();
            received_[device] = typename Device::Arena(place_received(device, received_at_),
                                                       text("the values that device ", ordinal, " receives"));
            if (device == first_device()) return;
            memories_[device] = std::make_unique<PartMemory<Device>>(memory_of(device));
            memories_[device]->allocate(ordinal);
        });
    }
}

template <class Device, class T>
BatchView PartWorkers<Device, T>::keep(std::size_t slot, const BatchView& batch) {
    if (!group_.keeps_batches) return batch;
    const std::size_t bytes = batch_bytes(group_.columns, group_.batch_size);
    const BatchSpan to = batch_in(kept_.data() + slot * bytes, group_.columns, group_.batch_size);
    for (std::size_t i = 0; i < group_.columns.size(); ++i) {
        Device::copy_between(context(0), to.data(i), batch.data_of(group_.columns[i].name, group_.columns[i].type),
                             static_cast<std::size_t>(batch.size) * group_.columns[i].bytes());
    }
    return to.view(batch.size);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
