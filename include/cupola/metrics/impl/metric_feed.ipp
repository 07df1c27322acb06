// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/metrics/impl/metric_feed.hpp.
#pragma once

#include <cupola/metrics/impl/metric_feed.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

CUPOLA_DECL MetricFeed::MetricFeed() = default;
CUPOLA_DECL MetricFeed::~MetricFeed() = default;

CUPOLA_DECL void MetricFeed::begin(std::span<const LayerInfo> layers, std::span<const RequiredColumn>) {
    network_.emplace(layers);
}

CUPOLA_DECL void MetricFeed::start(int devices, bool with_input) {
    with_input_ = with_input || needs_input_;
    memory_ = std::vector<Memory>(static_cast<std::size_t>(devices));
    next_ = 0;
    failed_ = false;
}

CUPOLA_DECL bool MetricFeed::pass(const EvaluatedBatch& batch) {
    MetricBatch seen;
    if (batch.batch.size > 0) seen = on_host(memory_[static_cast<std::size_t>(batch.device)], batch);
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return failed_ || next_ == batch.number; });
    if (failed_) return false;
    lock.unlock();  // it is this batch's turn: no other thread passes one on
    if (batch.batch.size > 0) see(seen);
    lock.lock();
    ++next_;
    turn_.notify_all();
    return true;
}

CUPOLA_DECL void MetricFeed::fail() {
    const std::scoped_lock lock(mutex_);
    failed_ = true;
    turn_.notify_all();
}

CUPOLA_DECL MetricBatch MetricFeed::on_host(Memory& memory, const EvaluatedBatch& evaluated) const {
    const BatchView& batch = evaluated.batch;
    const NetworkOutputs& network = *network_;
    memory.list.resize(network.size());
    memory.outputs.resize(network.size());
    for (std::size_t k = 0; k < network.size(); ++k) {
        const auto count = static_cast<std::size_t>(batch.size * network[k].shape.size());
        const float* values = evaluated.output(k);
        if (evaluated.copy_to_host) {
            std::vector<float>& copy = memory.outputs[k];
            copy.resize(count);
            evaluated.copy_to_host(reinterpret_cast<std::byte*>(copy.data()),
                                   reinterpret_cast<const std::byte*>(values), count * sizeof(float));
            values = copy.data();
        }
        memory.list[k] = {network[k].name, network[k].shape, {values, count}};
    }
    const MetricOutput& last = memory.list.back();
    MetricBatch result{
        .size = batch.size, .output_shape = last.shape, .outputs = last.values, .all_outputs = memory.list};
    result.targets.size = batch.size;
    memory.columns.resize(batch.columns().size());
    for (std::size_t i = 0; i < batch.columns().size(); ++i) {
        const ColumnSpec& spec = batch.columns()[i];
        const void* data = batch.data(i);
        if ((spec.name == input_column && !with_input_) || data == nullptr) continue;
        if (evaluated.copy_to_host) {
            std::vector<std::byte>& copy = memory.columns[i];
            copy.resize(static_cast<std::size_t>(batch.size) * spec.bytes());
            evaluated.copy_to_host(copy.data(), static_cast<const std::byte*>(data), copy.size());
            data = copy.data();
        }
        result.targets.push_back({spec, data});
    }
    return result;
}

CUPOLA_DECL FunctionFeed::FunctionFeed(MetricFunction function) : function_(function) {}
CUPOLA_DECL FunctionFeed::~FunctionFeed() = default;
CUPOLA_DECL std::vector<MetricValue> FunctionFeed::values() const { return {}; }
CUPOLA_DECL void FunctionFeed::see(const MetricBatch& batch) { function_(batch); }

}}}  // namespace cupola::CUPOLA_ABI::impl
