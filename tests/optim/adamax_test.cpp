// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/adamax.hpp>

#include "../test.hpp"

#include "../devices.hpp"
#include "../reference/compare.hpp"
#include "updated_tensors.hpp"

using reference::Floats;

namespace {

/// torch.optim.Adamax in double, as its documentation has it.
struct Reference {
    Adamax adamax;
    std::vector<double> w;
    std::vector<std::vector<double>> states{2, std::vector<double>(w.size())};

    void step(std::int64_t step, const Floats& gradient) {
        const double corrected =
            adamax.learning_rate_at(step) / (1 - std::pow(adamax.beta1, static_cast<double>(step + 1)));
        for (std::size_t i = 0; i < w.size(); ++i) {
            const double g = static_cast<double>(gradient[i]) + adamax.weight_decay * w[i];
            double &m = states[0][i], &u = states[1][i];
            m += (1 - adamax.beta1) * (g - m);
            u = std::max(adamax.beta2 * u, std::abs(g) + adamax.epsilon);
            w[i] -= corrected * m / u;
        }
    }
    [[nodiscard]] const std::vector<double>& parameters() const { return w; }
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
                check_twenty_steps<D>(adamax, size, [&](const std::vector<double>& initial) {
                    return Reference{adamax, initial};
                });
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
