// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/adagrad.hpp>

#include "../test.hpp"

#include "../devices.hpp"
#include "../reference/compare.hpp"
#include "updated_tensors.hpp"

using reference::Floats;

namespace {

/// torch.optim.Adagrad in double, as its documentation has it.
struct Reference {
    std::vector<double> w;
    std::vector<std::vector<double>> states;
    double lr_decay, weight_decay;

    void step(std::int64_t step, const Floats& gradient) {
        const double decayed = 0.2 / (1 + static_cast<double>(step) * lr_decay);
        for (std::size_t i = 0; i < w.size(); ++i) {
            const double g = static_cast<double>(gradient[i]) + weight_decay * w[i];
            states[0][i] += g * g;
            w[i] -= decayed * g / (std::sqrt(states[0][i]) + 1e-10);
        }
    }
    [[nodiscard]] const std::vector<double>& parameters() const { return w; }
};

}  // namespace

TYPED_TEST_CASE(
    "twenty steps of Adagrad are PyTorch's, with a learning-rate decay, an initial accumulator value and weight decay",
    D, Devices) {
    for (const std::int64_t size : {1, 4, 37, 5000}) {
        for (const double start : {0.0, 0.1}) {
            for (const double weight_decay : {0.0, 0.05}) {
                CAPTURES(size, start, weight_decay);
                constexpr double lr_decay = 0.1;
                const Adagrad adagrad{.learning_rate = {[](std::int64_t step) {
                                                            return 0.2 / (1 + static_cast<double>(step) * lr_decay);
                                                        },
                                                        "0.2, decaying"},
                                      .initial_accumulator_value = start,
                                      .weight_decay = weight_decay};
                check_twenty_steps<D>(adagrad, size, [&](const std::vector<double>& initial) {
                    return Reference{initial, {std::vector<double>(initial.size(), start)}, lr_decay, weight_decay};
                });
            }
        }
    }
}

TEST_CASE("an element without a gradient is unchanged, also with a sum of 0") {
    UpdatedTensors<AnyDevice, Adagrad> tensor(Adagrad{}, {1, -2, 0});
    tensor.step(0, {0, 0, 0});
    CHECK(tensor.w == Floats{1, -2, 0});
    CHECK(tensor.state == Floats(3));
}
