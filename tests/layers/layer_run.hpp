// SPDX-License-Identifier: Apache-2.0
//
// Runs a layer as a network does: its output extents, its parameters and its operation come from the layer itself; the
// values are random.
#pragma once

#include <cupola/layers/layer.hpp>

#include "../ops/operation_run.hpp"

namespace layer_run {

/// A layer, an input and what came out, for a test to compare with the oracle.
struct Run {
    operation_run::Problem problem;
    operation_run::Outcome outcome;
};

/// `column` is the input of a layer that reads ids or bytes.
template <class L, class D, class Value = std::int32_t>
[[nodiscard]] Run run(const cupola::Shape& input, std::int64_t batch, std::uint64_t seed,
                      std::span<const Value> column = {}) {
    static_assert(cupola::LayerOn<L, DeviceOf<D>, ElementOf<D>>);
    reference::Random random(seed);
    Run result;
    using operation_run::rounded;
    operation_run::Problem& problem = result.problem;
    problem.input = input;
    problem.output = L::output(input).shape;
    problem.batch = batch;
    problem.threads = 2;
    problem.seed = seed;
    if (column.empty()) problem.x = rounded<D>(random.normal(batch * input.size(), 1.0, 0.5));
    const auto bytes = std::as_bytes(column);
    problem.column.assign(bytes.begin(), bytes.end());
    problem.dy = rounded<D>(random.normal(batch * problem.output.size(), 1.0, 0.5));
    const cupola::Parameters parameters = cupola::parameters_of<L>(input);
    for (std::size_t i = 0; i < parameters.count; ++i) {
        problem.parameters.push_back(rounded<D>(random.normal(parameters.list[i].shape.size())));
    }
    result.outcome = operation_run::run<D>(problem, [](const auto& build) { return cupola::operation_of<L>(build); });
    return result;
}

}  // namespace layer_run
