// SPDX-License-Identifier: Apache-2.0
//
// MetricFeed: passes the batches of an evaluation to a MetricFunction in their order, whichever device has run them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include <cupola/core/function_ref.hpp>
#include <cupola/loss/several_outputs.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/metric_batch.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Device d of n has batches d, d + n, d + 2 n, and so on.
template <class D>
class MetricFeed {
    using Kernels = typename D::Kernels;
    using Context = typename Kernels::Context;

public:
    /// The values of the network's output number k.
    using Outputs = FunctionRef<const float*(std::size_t k)>;

    /// `with_input`: whether the column "input" is a target too.
    MetricFeed(MetricFunction see, std::span<const LayerInfo> layers, int devices, bool with_input)
        : see_(see), network_(layers), with_input_(with_input), memory_(static_cast<std::size_t>(devices)) {}

    /// Passes batch `number` on, after those before it. Returns false if another device has failed: no batch follows
    /// then.
    [[nodiscard]] bool pass(Context& context, int device, std::int64_t number, const BatchView& batch, Outputs outputs);
    /// Ends the waiting of other devices.
    void fail();

private:
    struct Memory {
        std::vector<MetricOutput> list;
        std::vector<std::vector<float>> outputs;
        std::vector<std::vector<std::byte>> columns;
    };

    [[nodiscard]] MetricBatch on_host(Context& context, Memory& memory, const BatchView& batch, Outputs outputs) const;

    MetricFunction see_;
    NetworkOutputs network_;
    bool with_input_;
    /// Host memory for the outputs of each device whose memory the host cannot read.
    std::vector<Memory> memory_;
    std::mutex mutex_;
    std::condition_variable turn_;
    std::int64_t next_ = 0;
    bool failed_ = false;
};

template <class D>
bool MetricFeed<D>::pass(Context& context, int device, std::int64_t number, const BatchView& batch, Outputs outputs) {
    MetricBatch seen;
    if (batch.size > 0) seen = on_host(context, memory_[static_cast<std::size_t>(device)], batch, outputs);
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return failed_ || next_ == number; });
    if (failed_) return false;
    lock.unlock();  // it is this batch's turn: no other thread passes one on
    if (batch.size > 0) see_(seen);
    lock.lock();
    ++next_;
    turn_.notify_all();
    return true;
}

template <class D>
void MetricFeed<D>::fail() {
    const std::scoped_lock lock(mutex_);
    failed_ = true;
    turn_.notify_all();
}

template <class D>
MetricBatch MetricFeed<D>::on_host(Context& context, Memory& memory, const BatchView& batch, Outputs outputs) const {
    memory.list.resize(network_.size());
    memory.outputs.resize(network_.size());
    for (std::size_t k = 0; k < network_.size(); ++k) {
        const auto count = static_cast<std::size_t>(batch.size * network_[k].shape.size());
        memory.list[k] = {network_[k].name, network_[k].shape, {outputs(k), count}};
        if constexpr (!D::host_memory) {
            std::vector<float>& copy = memory.outputs[k];
            copy.resize(count);
            Kernels::copy_to_host(context, reinterpret_cast<std::byte*>(copy.data()),
                                  reinterpret_cast<const std::byte*>(outputs(k)), count * sizeof(float));
            memory.list[k].values = copy;
        }
    }
    const MetricOutput& last = memory.list.back();
    MetricBatch result{
        .size = batch.size, .output_shape = last.shape, .outputs = last.values, .all_outputs = memory.list};
    result.targets.size = batch.size;
    if constexpr (!D::host_memory) {
        memory.columns.resize(batch.columns().size());
    }
    for (std::size_t i = 0; i < batch.columns().size(); ++i) {
        const ColumnSpec& spec = batch.columns()[i];
        const void* data = batch.data(i);
        if ((spec.name == input_column && !with_input_) || data == nullptr) continue;
        if constexpr (!D::host_memory) {
            std::vector<std::byte>& copy = memory.columns[i];
            copy.resize(static_cast<std::size_t>(batch.size) * spec.bytes());
            Kernels::copy_to_host(context, copy.data(), static_cast<const std::byte*>(data), copy.size());
            data = copy.data();
        }
        result.targets.push_back({spec, data});
    }
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
