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

/// A problem with random values, but for `column`, the input of a layer that reads ids or bytes.
template <class D>
[[nodiscard]] operation_run::Problem problem_of(const cupola::Shape& input, const cupola::Shape& output,
                                                const cupola::Parameters& parameters, std::int64_t batch,
                                                std::uint64_t seed, std::span<const std::byte> column) {
    reference::Random random(seed);
    using operation_run::rounded;
    operation_run::Problem problem;
    problem.input = input;
    problem.output = output;
    problem.batch = batch;
    problem.threads = 2;
    problem.seed = seed;
    if (column.empty()) problem.x = rounded<D>(random.normal(batch * input.size(), 1.0, 0.5));
    problem.column.assign(column.begin(), column.end());
    problem.dy = rounded<D>(random.normal(batch * problem.output.size(), 1.0, 0.5));
    for (std::size_t i = 0; i < parameters.count; ++i) {
        problem.parameters.push_back(rounded<D>(random.normal(parameters.list[i].shape.size())));
    }
    return problem;
}

template <class L, class D, class Value = std::int32_t>
[[nodiscard]] Run run(const cupola::Shape& input, std::int64_t batch, std::uint64_t seed,
                      std::span<const Value> column = {}) {
    static_assert(cupola::LayerOn<L, DeviceOf<D>, ElementOf<D>>);
    Run result;
    result.problem = problem_of<D>(input, L::output(input).shape, cupola::parameters_of<L>(input), batch, seed,
                                   std::as_bytes(column));
    result.outcome =
        operation_run::run<D>(result.problem, [](const auto& build) { return cupola::operation_of<L>(build); });
    return result;
}

}  // namespace layer_run
