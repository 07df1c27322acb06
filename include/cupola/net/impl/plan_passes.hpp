// SPDX-License-Identifier: Apache-2.0
//
// The passes of a plan: the longer member functions of `Plan` that run it. They are defined outside the class, and so
// are not inline: separately compiled programs do not instantiate those that src.hpp has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/net/impl/folded_norm.hpp>
#include <cupola/net/node_info.hpp>
#include <cupola/net/plan.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class Device, class T>
void Plan<Device, T>::time(StepTimer* times) {
    times_ = times;
    for (std::size_t i = 0; times != nullptr && i < nodes_.size(); ++i) {
        for (const Direction direction : {Direction::forward, Direction::backward})
            times->set_work(times->entry(direction, i), nodes_[i]->work(direction), options_.batch);
    }
}

template <class Device, class T>
void Plan<Device, T>::prepare(Context& context, const float* parameters, const float* running, const float* frozen,
                              Packing packing) {
    if (packing == Packing::none) return;
    const Stopwatch watch(times_, StepPart::packing);
    check_context(context);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (packing == Packing::trained && !infos_[i].has_parameters) continue;
        if (infos_[i].folded_norm != no_layer)
            impl::fold_norm<Device>(context, layers_, infos_[i], parameters, frozen != nullptr ? frozen : parameters,
                                    running, packed_ + packed_at_[i]);
        nodes_[i]->prepare(args_of(i, {.parameters = parameters, .buffers = {.frozen = frozen}}));
    }
}

template <class Device, class T>
const float* Plan<Device, T>::forward(Context& context, const PlanInputs& batch, const float* parameters,
                                      const RngKey& key, const PassBuffers& buffers) {
    check_context(context);
    check_buffers(key, buffers);
    require_columns(batch);
    const T* const samples =
        buffers.batch_is_converted ? ends_.batch(batch.input()) : ends_.convert_batch(context, batch.input());
    running_ = buffers.running;
    run_forward(
        0, nodes_.size(),
        {.batch = samples, .columns = batch.columns(), .parameters = parameters, .key = key, .buffers = buffers});
    if (buffers.keeps_outputs) return nullptr;
    return convert_outputs(context, samples);
}

template <class Device, class T>
const float* Plan<Device, T>::convert_outputs(Context& context, const T* samples) {
    for (const impl::PlanOutput& end : outputs_) ends_.convert_output(context, end, value(end.value, samples));
    const impl::PlanOutput& last = outputs_[outputs_.size() - 1];
    return ends_.output(last, value(last.value, samples));
}

template <class Device, class T>
void Plan<Device, T>::convert_output_gradients(Context& context) {
    for (const impl::PlanOutput& end : outputs_)
        ends_.convert_output_gradient(context, end, output_gradient_at(end.value));
}

template <class Device, class T>
void Plan<Device, T>::backward(Context& context, const PlanInputs& batch, const float* parameters, float* gradients,
                               const RngKey& key, bool accumulate, BucketReady ready, bool own_gradients) {
    check_context(context);
    if (!has_backward()) return;
    if (!own_gradients) convert_output_gradients(context);
    run_backward(infos_.size(), lowest_,
                 {.batch = ends_.batch(batch.input()),
                  .columns = batch.columns(),
                  .parameters = parameters,
                  .gradients = gradients,
                  .key = key,
                  .accumulate = accumulate},
                 ready);
    if (options_.input_gradient) ends_.convert_input_gradient(context, gradient_at(0));
}

template <class Device, class T>
void Plan<Device, T>::require_columns(const PlanInputs& batch) const {
    if (!reads_columns_) return;
    const auto check = [&](std::string_view column, ElementType type) {
        require(batch.columns() != nullptr && batch.columns()->data_of(column, type) != nullptr,
                "a pass of this network reads the column ", column, " of ", to_string(type), ", which its batch lacks");
    };
    const ElementType input = own_layers_.front().column_type;
    if (input != ElementType::float32) check(input_column, input);
    for (const LayerInfo& layer : own_layers_) {
        if (!layer.column.empty()) check(layer.column, layer.column_type);
    }
}

template <class Device, class T>
void Plan<Device, T>::check_buffers(const RngKey& key, const PassBuffers& buffers) const {
    if (buffers.running != nullptr) return;
    const std::size_t begin = options_.layers.begin;
    for (std::size_t i = begin; i < begin + own_layers_.size(); ++i) {
        if (trains(key) && !layers_[i].uses_running_statistics) continue;
        require(layers_[i].buffers.count == 0, trains(key) ? "a frozen layer" : "outside training the network",
                " reads running statistics (",
                layers_[i].buffers.count == 0 ? std::string() : buffer_name(layers_, i, 0), "), and was given none");
    }
}

template <class Device, class T>
void Plan<Device, T>::run_forward(std::size_t begin, std::size_t end, const Call& call) {
    for (std::size_t i = begin; i < end; ++i) {
        if (infos_[i].view) continue;
        const Stopwatch watch(times_, Direction::forward, i);
        nodes_[i]->forward(args_of(i, call));
    }
}

template <class Device, class T>
void Plan<Device, T>::run_backward(std::size_t end, std::size_t begin, const Call& call, BucketReady ready) {
    std::size_t bucket = 0;
    // Statistics of the batch are not written again, and a frozen normalisation reads those that forward has read.
    Call again = call;
    again.buffers = {.running = running_};
    for (std::size_t k = infos_.size() + 1; k < passes_.size(); ++k) {
        const std::size_t i = passes_[k].node;
        // A block whose last nodes alone run backward begins below the lowest of them; no other range ends in a block.
        const bool below = i < begin && (passes_[k].kind != PassKind::recompute || begin != lowest_);
        if (below || i >= end) continue;
        if (passes_[k].kind == PassKind::recompute) {
            // What is deferred reads what another block has saved, in the memory that is written now.
            if (passes_[k - 1].kind != PassKind::recompute) launch_deferred();
            const Stopwatch watch(times_, Direction::backward, i);
            nodes_[i]->forward(args_of(i, again, true));
            continue;
        }
        if (infos_[i].runs_backward() && has_backward(i)) {
            const Stopwatch watch(times_, Direction::backward, i);
            // It adds to gradients that may still be deferred.
            if (layers_[infos_[i].layer].adds_parameter_gradients) launch_deferred();
            nodes_[i]->backward(args_of(i, call, true));
            // Gradients that are discarded are in scratch memory, which the next node uses.
            if (impl::discarded_bytes(layers_, infos_[i].layer) > 0) launch_deferred();
        }
        for (; ready && bucket < buckets_.size() && bucket_nodes_[bucket] == i; ++bucket) ready(bucket);
    }
}

template <class Device, class T>
const BackwardArgs<Device, T>& Plan<Device, T>::args_of(std::size_t i, const Call& call, bool in_backward) {
    const NodeInfo& info = infos_[i];
    const LayerInfo& layer = layers_[info.layer];
    BackwardArgs<Device, T>& args = bound_[in_backward && bound_twice(i) ? infos_.size() + i : i];
    if (storage_of(infos_.span(), info.reads) == 0) args.input = call.batch;
    if (info.also_reads != no_value && storage_of(infos_.span(), info.also_reads) == 0) args.second_input = call.batch;
    const std::string_view column = layer.reads_column.empty() ? layer.column : layer.reads_column;
    if (!column.empty() && call.columns != nullptr)
        args.column = call.columns->data(call.columns->columns().place_of(column));
    const LayerInfo& owner = parameters_of_layer(layers_, info.layer);
    for (std::size_t k = 0; k < owner.parameters.count; ++k) {
        const bool other = owner.frozen[k] && call.buffers.frozen != nullptr;
        if (info.folded_norm == no_layer)
            args.parameters[k] = (other ? call.buffers.frozen : call.parameters) + owner.offsets[k];
        if (call.gradients != nullptr && !owner.frozen[k])
            args.parameter_gradients[k] = call.gradients + owner.offsets[k];
    }
    // The merged statistics are read in the same way as running statistics, as a node does outside training.
    const bool takes_merged =
        call.buffers.merged != nullptr && nodes_[i]->statistics_size() > 0 && !layer.uses_running_statistics;
    const float* const read = takes_merged ? call.buffers.merged : call.buffers.running;
    for (std::size_t k = 0; k < layer.buffers.count; ++k) {
        args.buffers[k] = read != nullptr ? read + layer.buffer_offsets[k] : nullptr;
        args.statistics[k] = call.buffers.batch != nullptr ? call.buffers.batch + layer.buffer_offsets[k] : nullptr;
    }
    args.accumulate = call.accumulate || layer.adds_parameter_gradients;
    args.training = trains(call.key) && !takes_merged && !layer.uses_running_statistics;
    args.seed = call.key.seed;
    args.step = call.key.step;
    args.first_sample = call.key.first_sample;
    return args;
}

}}  // namespace cupola::CUPOLA_ABI
