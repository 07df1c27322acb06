// SPDX-License-Identifier: Apache-2.0
//
// Runs a network outside training, with the nodes that net/prediction/join.hpp joins or without.
#pragma once

#include "../../test.hpp"

#include <cupola/host_operations.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/prediction/host_formulas.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>

namespace prediction_run {

using Floats = std::vector<float>;

inline Floats random(std::int64_t count, std::uint32_t seed, double deviation = 0.5) {
    Floats values(static_cast<std::size_t>(count), 0.0F);
    initialize(values, normal(deviation), 1, 1, 3, seed);
    return values;
}

/// Running statistics with positive variances.
template <class N>
Floats statistics() {
    Floats running = random(N::buffer_elements, 2, 0.3);
    for (const RunningStatistics& s : running_statistics(N::layers)) {
        for (std::int64_t c = 0; c < s.channels; ++c) {
            float& variance = running[static_cast<std::size_t>(s.variance + c)];
            variance = 0.3F + variance * variance;
        }
    }
    return running;
}

/// Winograd's algorithm for every 3 x 3 convolution that it can compute, however few tiles there are.
template <class T>
std::unique_ptr<HostConvolution<T>> make_tiled(const BuildContext<Host, T>& build, const ConvolutionShape& shape) {
    using Tiled = ops::WinogradConvolution<4, 3, T>;
    return Tiled::supports(shape) ? std::make_unique<Tiled>(build, shape) : nullptr;
}
inline constexpr ConvolutionAlgorithm tiled{"tiled", &make_tiled<float>, &make_tiled<BFloat16>, true};
/// The same, but not to be given what is joined.
inline constexpr ConvolutionAlgorithm tiled_apart{"tiled_apart", &make_tiled<float>};

template <class N>
std::vector<NodeInfo> nodes_of(bool joined) {
    std::vector<NodeInfo> nodes(N::layer_count);
    nodes.resize(fuse(N::layers, true, nodes, false));
    if (joined) nodes.resize(join_nodes_on<N, Host>(N::layers, nodes));
    return nodes;
}

/// All outputs of the network, one after another.
template <class N>
Floats outputs(const Floats& batch, const Floats& parameters, bool joined,
               const HostOptions& options = {.threads = 2}) {
    const auto samples = static_cast<std::int64_t>(batch.size()) / N::input_shape.size();
    HostContext context(0, options);
    auto plan = Plan<Host, typename N::Precision::Activation>::template make<N>(
        context, {.batch = samples, .training = false, .join = joined ? &join_nodes_on<N, Host> : nullptr});
    HostArena arena(plan.bytes().total(), "test");
    std::memset(arena.data(), 0xFF, plan.bytes().total());
    plan.bind(arena.data());
    const Floats running = statistics<N>();
    plan.prepare(context, parameters.data(), running.data());
    Floats result;
    for (int pass = 0; pass < 2; ++pass) {  // the second one finds what the first has left in memory
        result.clear();
        static_cast<void>(
            plan.forward(context, batch.data(), parameters.data(), {.training = false}, {.running = running.data()}));
        for (std::size_t k = 0; k < plan.outputs(); ++k)
            result.insert(result.end(), plan.output(k), plan.output(k) + samples * N::outputs[k].shape.size());
    }
    return result;
}

}  // namespace prediction_run
