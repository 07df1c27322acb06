// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/lamb.hpp>

#include "../test.hpp"

#include <cupola/ops/host/element_update.hpp>

#include "stepping.hpp"

namespace {

double norm(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return std::sqrt(sum);
}

/// Algorithm 2 of You et al. 2019 (arXiv 1904.00962) with phi(z) = z, on one tensor, in double, as it is written there.
struct Reference {
    Lamb lamb;
    double l2;
    bool adapt;
    std::vector<double> w, m = std::vector<double>(w.size()), v = m;

    void step(int step, const float* gradient) {
        const double beta1 = lamb.beta1, beta2 = lamb.beta2;
        std::vector<double> direction(w.size());
        for (std::size_t i = 0; i < w.size(); ++i) {
            const double g = static_cast<double>(gradient[i]) + l2 * w[i];
            m[i] = beta1 * m[i] + (1 - beta1) * g;
            v[i] = beta2 * v[i] + (1 - beta2) * g * g;
            const double m_hat = m[i] / (1 - std::pow(beta1, step + 1)), v_hat = v[i] / (1 - std::pow(beta2, step + 1));
            direction[i] = m_hat / (std::sqrt(v_hat) + lamb.epsilon) + (adapt ? lamb.weight_decay * w[i] : 0.0);
        }
        const double trust = adapt && norm(w) > 0 && norm(direction) > 0 ? norm(w) / norm(direction) : 1.0;
        for (std::size_t i = 0; i < w.size(); ++i) w[i] -= lamb.learning_rate_at(step) * trust * direction[i];
    }
};

}  // namespace

TEST_CASE("twenty steps are the paper's: each tensor moves by a fraction of its own norm, biases by Adam's steps") {
    for (const bool adapt_biases : {false, true}) {
        CAPTURE(adapt_biases);
        const Lamb lamb{.learning_rate = 0.02, .beta2 = 0.99, .weight_decay = 0.1, .adapt_biases = adapt_biases};
        stepping::Arena arena(lamb, {4133, 33, 7}, 2);
        arena.segments[0].l2 = 0.05;
        arena.segments[1].rank = 2;
        arena.segments[2].rank = 1;
        stepping::check_twenty_steps(arena, [&](const Segment& tensor, const std::vector<double>& initial) {
            return Reference{lamb, tensor.l2, adapt_biases || tensor.rank != 1, initial};
        });
    }
}

TEST_CASE("a tensor of zeros, and one without a gradient, have a trust ratio of 1 and stay finite") {
    const Lamb lamb{.learning_rate = 0.1};
    stepping::Arena arena(lamb, {3, 3});
    arena.scatter(arena.w, std::vector<float>{0, 0, 0, 1, 2, 3});
    const auto w = arena.step(0, std::vector<float>{1, -1, 0.5, 0, 0, 0});
    CHECK(w[0] == doctest::Approx(-0.1));  // Adam's first step: the rate, against the gradient's sign
    CHECK(w[1] == doctest::Approx(0.1));
    CHECK(w[2] == doctest::Approx(-0.1));
    CHECK(std::vector<float>(w.begin() + 3, w.end()) == std::vector<float>{1, 2, 3});
}
