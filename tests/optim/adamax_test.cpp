// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/adamax.hpp>

#include "../test.hpp"

#include "../devices.hpp"
#include "../reference/compare.hpp"
#include "updated_tensors.hpp"

using namespace cupola;
using reference::Floats;

namespace {

/// torch.optim.Adamax in double, as its documentation has it.
struct Reference {
    std::vector<double> w, m, u;
    Adamax adamax;

    void step(std::int64_t step, const Floats& gradient) {
        const double corrected =
            adamax.learning_rate_at(step) / (1 - std::pow(adamax.beta1, static_cast<double>(step + 1)));
        for (std::size_t i = 0; i < w.size(); ++i) {
            const double g = static_cast<double>(gradient[i]) + adamax.weight_decay * w[i];
            m[i] += (1 - adamax.beta1) * (g - m[i]);
            u[i] = std::max(adamax.beta2 * u[i], std::abs(g) + adamax.epsilon);
            w[i] -= corrected * m[i] / u[i];
        }
    }
};

}  // namespace

TYPED_TEST_CASE("twenty steps of Adamax are PyTorch's, with a schedule, other betas and weight decay", D, Devices) {
    for (const std::int64_t size : {1, 4, 37, 5000}) {
        for (const double beta2 : {0.999, 0.5}) {
            for (const double weight_decay : {0.0, 0.05}) {
                CAPTURES(size, beta2, weight_decay);
                const Adamax adamax{.learning_rate = exponential_decay(0.05, 5, 0.5),
                                    .beta1 = 0.8,
                                    .beta2 = beta2,
                                    .epsilon = 1e-3,
                                    .weight_decay = weight_decay};
                const Floats initial = reference::Random(1).normal(size);
                UpdatedTensors<D, Adamax> tensor(adamax, initial);
                const std::vector<double> zeros(initial.size());
                Reference expected{{initial.begin(), initial.end()}, zeros, zeros, adamax};
                for (std::int64_t step = 0; step < 20; ++step) {
                    const Floats gradient = reference::Random(static_cast<std::uint64_t>(10 + step)).normal(size);
                    tensor.step(step, gradient);
                    expected.step(step, gradient);
                    CHECK(reference::distance(tensor.w, expected.w) < 1e-5);
                }
                const std::span<const float> state(tensor.state);
                CHECK(reference::distance(state.first(initial.size()), expected.m) < 1e-5);
                CHECK(reference::distance(state.last(initial.size()), expected.u) < 1e-5);
            }
        }
    }
}

TEST_CASE("the first step of Adamax moves each parameter by the rate, and one without a gradient not at all") {
    UpdatedTensors<AnyDevice, Adamax> tensor({.learning_rate = 0.25, .epsilon = 1e-30}, {1, -2, 0, 3});
    tensor.step(0, {4, -1e-3F, 0, 1e30F});
    CHECK(reference::distance(tensor.w, std::vector<double>{0.75, -1.75, 0, 2.75}) < 1e-6);
    CHECK(tensor.w[2] == 0.0F);
}
