// SPDX-License-Identifier: Apache-2.0
//
// A layer on fixed values beside what PyTorch computes of them. The input is 2 samples of 2 x 1 x 4, channels last. All values
// have an exact bfloat16. PyTorch's are of version 2.15 in float:
//
//   i = torch.arange(16); c = torch.arange(4)
//   x = ((i * 37 % 23 - 11) / 4).reshape(2, 2, 1, 4)
//   dy = ((i * 29 % 19 - 9) / 8).reshape(2, 2, 1, 4)
//   weight = 1 + c * 5 % 7 / 8; bias = c * 3 % 5 / 4 - 0.5
#pragma once

#include "layer_run.hpp"

namespace torch_figures {

using reference::Floats;

struct Figures {
    Floats output, input_gradient;
    std::vector<Floats> parameter_gradients{};
};

template <class L, class D>
void check(const Figures& expected) {
    operation_run::Problem problem;
    problem.input = problem.output = {2, 1, 4};
    problem.batch = 2;
    for (int i = 0; i < 16; ++i) {
        problem.x.push_back(static_cast<float>(i * 37 % 23 - 11) / 4);
        problem.dy.push_back(static_cast<float>(i * 29 % 19 - 9) / 8);
    }
    const std::size_t parameters = cupola::parameters_of<L>(problem.input).count;
    problem.parameters.resize(parameters);
    for (int c = 0; c < 4; ++c) {
        if (parameters > 0) problem.parameters[0].push_back(1 + static_cast<float>(c * 5 % 7) / 8);
        if (parameters > 1) problem.parameters[1].push_back(static_cast<float>(c * 3 % 5) / 4 - 0.5F);
    }
    const operation_run::Outcome outcome =
        operation_run::run<D>(problem, [](const auto& build) { return cupola::operation_of<L>(build); });
    CHECK(reference::distance(outcome.output, expected.output) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, expected.input_gradient) < operation_run::tolerance<D>);
    REQUIRE(expected.parameter_gradients.size() == parameters);
    for (std::size_t p = 0; p < expected.parameter_gradients.size(); ++p) {
        CHECK(reference::distance(outcome.parameter_gradients[p], expected.parameter_gradients[p]) <
              reference::tolerance);
    }
}

}  // namespace torch_figures
