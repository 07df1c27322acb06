// SPDX-License-Identifier: Apache-2.0
//
// PartWorkers: the devices of a group, which has all parts of a network (net/pipeline/cut_info.hpp): their threads and
// contexts, and for each part its plans, with an arena per batch that is in flight there, and its packed weights once.
// The first device is that of the part that takes the batches: its thread and its context are those of the group's
// worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/parallel/pipeline/device_parts.hpp>
#include <cupola/parallel/replicas/device_threads.hpp>
#include <cupola/parallel/replicas/plans.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/batch_memory.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Members are called by the thread of the group's first device, unless it is said otherwise.
template <class Device, class T>
class PartWorkers final : public DeviceParts<Device, T> {
public:
    using Context = typename Device::Context;
    using Taken = typename Plans<Device, T>::Taken;
    using typename DeviceParts<Device, T>::MakePlan;

    /// For at most `batches` batches in a step. `first` is the context of the first device, and its number that of the
    /// group's first device among all `devices`.
    [[gnu::cold]] PartWorkers(const CutInfo& cut, std::int64_t batches, Context& first, int devices,
                              const typename Device::Options& options);

    [[gnu::cold]] void add(MakePlan make, const PlanOptions& options) override;
    [[gnu::cold]] void keep_batches(const Columns& columns, std::int64_t size) override {
        columns_ = columns;
        kept_size_ = size;
    }
    [[nodiscard]] std::size_t bytes() const override;
    [[gnu::cold]] void allocate() override;

    [[nodiscard]] const CutInfo& cut() const { return *cut_; }
    [[nodiscard]] std::size_t slot_count(std::size_t part) const { return slot_counts_[part]; }
    /// Calls job(device) for each device of the group, on its thread, and returns when all have returned.
    void run(FunctionRef<void(std::size_t device)> job);
    /// The plans pack their weights again if the parameters have changed since, as `of_group` know.
    void change_with(const Plans<Device, T>& of_group) {
        for (Plans<Device, T>& plans : plans_) plans.change_with(of_group);
    }

    // On the thread of the part's device.

    [[nodiscard]] Context& context(std::size_t part) { return *contexts_[cut_->device_of(part, cut_->parts())]; }
    /// See Plans; `options` as for add().
    [[nodiscard]] Taken take(std::size_t part, std::size_t slot, const PlanOptions& options, const float* parameters) {
        return plans_[part].take(options_of(part, options), parameters, slot);
    }
    /// The batch, or its copy, which is valid as long as it is in this slot of the first part.
    [[nodiscard]] BatchView keep(std::size_t slot, const BatchView& batch);

private:
    [[nodiscard]] PlanOptions options_of(std::size_t part, PlanOptions options) const {
        options.layers = cut_->layers_of(part);
        options.keep_layers = cut_->keep_layers;
        return options;
    }
    [[nodiscard]] std::size_t first_device() const { return cut_->device_of(0, cut_->parts()); }
    /// Calls job(part) for each part, on the thread of its device.
    void run_parts(FunctionRef<void(std::size_t part)> job);

    const CutInfo* cut_;
    FixedArray<std::size_t> slot_counts_;
    /// Of the devices but the first.
    DeviceThreads threads_;
    FixedArray<std::unique_ptr<Context>> own_contexts_;
    /// Of all devices.
    FixedArray<Context*> contexts_;
    /// Of each part.
    FixedArray<Plans<Device, T>> plans_;
    Columns columns_;
    std::int64_t kept_size_ = 0;
    typename Device::Arena kept_;
};

/// For NetworkInfo::make_parts.
template <class Device, class T>
std::unique_ptr<DeviceParts<Device, T>> make_part_workers(const CutInfo& cut, std::int64_t batches,
                                                          typename Device::Context& first, int devices,
                                                          const typename Device::Options& options) {
    return std::make_unique<PartWorkers<Device, T>>(cut, batches, first, devices, options);
}

template <class Device, class T>
PartWorkers<Device, T>::PartWorkers(const CutInfo& cut, std::int64_t batches, Context& first, int devices,
                                    const typename Device::Options& options)
    : cut_(&cut),
      slot_counts_(cut.parts()),
      threads_(static_cast<int>(cut.devices) - 1),
      own_contexts_(cut.devices),
      contexts_(cut.devices),
      plans_(cut.parts()) {
    for (std::size_t k = 0; k < cut.parts(); ++k)
        slot_counts_[k] = static_cast<std::size_t>(cut.slot_count(k, cut.parts(), batches));
    contexts_[first_device()] = &first;
    run([&](std::size_t device) {
        if (device == first_device()) return;
        const int ordinal = first.ordinal() + static_cast<int>(device) - static_cast<int>(first_device());
        own_contexts_[device] = std::make_unique<Context>(ordinal, options);
        contexts_[device] = own_contexts_[device].get();
        contexts_[device]->own_thread(devices);
    });
    for (std::size_t k = 0; k < cut.parts(); ++k) plans_[k].start(context(k));
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
            if (cut_->device_of(k, cut_->parts()) == device) job(k);
        }
    });
}

template <class Device, class T>
void PartWorkers<Device, T>::add(MakePlan make, const PlanOptions& options) {
    run_parts([&](std::size_t part) {
        for (std::size_t slot = 0; slot < slot_counts_[part]; ++slot)
            plans_[part].add(make, options_of(part, options), slot);
    });
}

template <class Device, class T>
std::size_t PartWorkers<Device, T>::bytes() const {
    std::size_t bytes = kept_size_ > 0 ? slot_counts_[0] * batch_bytes(columns_, kept_size_) : 0;
    for (std::size_t k = 0; k < cut_->parts(); ++k) {
        const auto of_part = plans_[k].shared_bytes();
        bytes += of_part.packed + of_part.scratch +
                 checked_bytes(
                     text("the batches in flight of part ", k, " need"),
                     {static_cast<std::int64_t>(slot_counts_[k]), static_cast<std::int64_t>(of_part.of_workspace)});
    }
    return bytes;
}

template <class Device, class T>
void PartWorkers<Device, T>::allocate() {
    if (kept_size_ > 0) {
        kept_ = typename Device::Arena(slot_counts_[0] * batch_bytes(columns_, kept_size_),
                                       text("the batches in flight of device ", context(0).ordinal()));
    }
    run_parts([&](std::size_t part) { plans_[part].allocate_sharing(static_cast<int>(slot_counts_[part])); });
}

template <class Device, class T>
BatchView PartWorkers<Device, T>::keep(std::size_t slot, const BatchView& batch) {
    if (kept_size_ == 0) return batch;
    const std::size_t bytes = batch_bytes(columns_, kept_size_);
    const BatchSpan to = batch_in(kept_.data() + slot * bytes, columns_, kept_size_);
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        Device::copy_between(context(0), to.data(i), batch.data_of(columns_[i].name, columns_[i].type),
                             static_cast<std::size_t>(batch.size) * columns_[i].bytes());
    }
    return to.view(batch.size);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
