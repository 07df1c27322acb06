// SPDX-License-Identifier: Apache-2.0
//
// The passes of a plan in segments, between which replicas all-reduce statistics: forward_segment() and
// backward_segment() of `Plan`. What runs them includes this header; Plan alone runs whole passes.
#pragma once

#include <algorithm>
#include <cstddef>

#include <cupola/net/plan.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class Device, class T>
const float* Plan<Device, T>::forward_segment(Context& context, std::size_t k, const PlanInputs& batch,
                                              const float* parameters, const RngKey& key, const PassBuffers& buffers,
                                              const double* merged, double* partial) {
    check_context(context);
    std::size_t begin = 0;
    require_columns(batch);
    running_ = buffers.running;
    const T* const samples = k == 0 ? ends_.convert_batch(context, batch.input()) : ends_.batch(batch.input());
    const Call call{
        .batch = samples, .columns = batch.columns(), .parameters = parameters, .key = key, .buffers = buffers};
    if (k > 0) {
        begin = reducing_node(Direction::forward, k - 1);
        const Stopwatch watch(times_, Direction::forward, begin);
        nodes_[begin]->apply_sums(Direction::forward, args_of(begin, call), merged);
        ++begin;
    }
    const std::size_t end = k == all_reduces() ? nodes_.size() : reducing_node(Direction::forward, k);
    run_forward(begin, end, call);
    if (k == all_reduces()) return convert_outputs(context, samples);
    const Stopwatch watch(times_, Direction::forward, end);
    nodes_[end]->write_sums(Direction::forward, args_of(end, call), partial);
    return nullptr;
}

template <class Device, class T>
void Plan<Device, T>::backward_segment(Context& context, std::size_t k, const PlanInputs& batch,
                                       const float* parameters, float* gradients, const RngKey& key, bool accumulate,
                                       const double* merged, double* partial) {
    check_context(context);
    const Call call{.batch = ends_.batch(batch.input()),
                    .columns = batch.columns(),
                    .parameters = parameters,
                    .gradients = gradients,
                    .key = key,
                    .accumulate = accumulate};
    if (k == 0) convert_output_gradients(context);
    // Backward ends above the frozen layers, whose sums are 0.
    const auto reduces = [&](std::size_t all_reduce) {
        return has_backward(reducing_node(Direction::backward, all_reduce));
    };
    std::size_t end = infos_.size();
    if (k > 0) {
        end = reducing_node(Direction::backward, k - 1);
        const Stopwatch watch(times_, Direction::backward, end);
        if (reduces(k - 1)) nodes_[end]->apply_sums(Direction::backward, args_of(end, call), merged);
    }
    const std::size_t begin = k == all_reduces() ? lowest_ : reducing_node(Direction::backward, k) + 1;
    run_backward(end, std::max(begin, lowest_), call);
    if (k < all_reduces() && !reduces(k)) std::fill_n(partial, statistics_size(Direction::backward, k), 0.0);
    if (k < all_reduces() && reduces(k)) {
        const Stopwatch watch(times_, Direction::backward, begin - 1);
        nodes_[begin - 1]->write_sums(Direction::backward, args_of(begin - 1, call), partial);
    }
    if (k == all_reduces() && options_.input_gradient) ends_.convert_input_gradient(context, gradient_at(0));
}

}}  // namespace cupola::CUPOLA_ABI
