// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/lamb.hpp>

#include "../test.hpp"

#include <cupola/ops/host/element_update.hpp>

#include "stepping.hpp"

using namespace cupola;

namespace {

double norm(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return std::sqrt(sum);
}

/// Algorithm 2 of You et al. 2019 (arXiv 1904.00962) with phi(z) = z, on one tensor, in double, as it is written there.
struct Reference {
    std::vector<double> x, m, v;
    double rate, beta1, beta2, epsilon, decay, l2;
    bool adapt;

    void step(int t, const float* gradient) {
        std::vector<double> direction(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double g = static_cast<double>(gradient[i]) + l2 * x[i];
            m[i] = beta1 * m[i] + (1 - beta1) * g;
            v[i] = beta2 * v[i] + (1 - beta2) * g * g;
            const double m_hat = m[i] / (1 - std::pow(beta1, t)), v_hat = v[i] / (1 - std::pow(beta2, t));
            direction[i] = m_hat / (std::sqrt(v_hat) + epsilon) + (adapt ? decay * x[i] : 0.0);
        }
        const double trust = adapt && norm(x) > 0 && norm(direction) > 0 ? norm(x) / norm(direction) : 1.0;
        for (std::size_t i = 0; i < x.size(); ++i) x[i] -= rate * trust * direction[i];
    }
};

Reference reference(const Lamb& lamb, const std::vector<float>& initial, std::size_t begin, std::size_t size, double l2,
                    bool adapt) {
    const auto first = initial.begin() + static_cast<std::ptrdiff_t>(begin);
    return {{first, first + static_cast<std::ptrdiff_t>(size)},
            std::vector<double>(size),
            std::vector<double>(size),
            lamb.learning_rate_at(0),
            lamb.beta1,
            lamb.beta2,
            lamb.epsilon,
            lamb.weight_decay,
            l2,
            adapt};
}

}  // namespace

TEST_CASE("twenty steps are the paper's: each tensor moves by a fraction of its own norm, biases by Adam's steps") {
    constexpr std::size_t of_weights = 4133, of_small = 33, of_bias = 7, total = of_weights + of_small + of_bias;
    for (const bool adapt_biases : {false, true}) {
        CAPTURE(adapt_biases);
        const Lamb lamb{.learning_rate = 0.02, .beta2 = 0.99, .weight_decay = 0.1, .adapt_biases = adapt_biases};
        stepping::Arena arena(lamb, {of_weights, of_small, of_bias}, 2);
        arena.segments[0].l2 = 0.05;
        arena.segments[1].rank = 2;
        arena.segments[2].rank = 1;
        const auto initial = stepping::numbers(total, 3);
        arena.scatter(arena.w, initial);
        Reference references[] = {reference(lamb, initial, 0, of_weights, 0.05, true),
                                  reference(lamb, initial, of_weights, of_small, 0, true),
                                  reference(lamb, initial, of_weights + of_small, of_bias, 0, adapt_biases)};
        for (int step = 0; step < 20; ++step) {
            CAPTURE(step);
            const auto gradient = stepping::numbers(total, 50 + static_cast<std::uint32_t>(step));
            const auto w = arena.step(step, gradient);
            std::vector<double> expected;
            for (Reference& tensor : references) {
                tensor.step(step + 1, gradient.data() + expected.size());
                expected.insert(expected.end(), tensor.x.begin(), tensor.x.end());
            }
            CHECK(stepping::difference(w, expected) < 1e-6);
        }
        CHECK(arena.padding_untouched());
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
