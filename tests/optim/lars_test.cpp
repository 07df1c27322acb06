// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/lars.hpp>

#include "../test.hpp"

#include <cupola/ops/host/element_update.hpp>

#include "stepping.hpp"

using namespace cupola;

namespace {

/// Algorithm 1 of You, Gitman, Ginsburg 2017 (arXiv 1708.03888) on one tensor, in double, as it is written there.
struct Reference {
    std::vector<double> w, v;
    double rate, momentum, decay, eta, l2;
    bool adapt;

    void step(const float* gradient) {
        std::vector<double> g(w.size());
        double squares_of_g = 0, squares_of_w = 0;
        for (std::size_t i = 0; i < w.size(); ++i) {
            g[i] = static_cast<double>(gradient[i]) + l2 * w[i];
            squares_of_g += g[i] * g[i];
            squares_of_w += w[i] * w[i];
        }
        const double beta = adapt ? decay : 0.0, norm_of_w = std::sqrt(squares_of_w),
                     norm_of_g = std::sqrt(squares_of_g);
        const double local = adapt ? eta * norm_of_w / (norm_of_g + beta * norm_of_w) : 1.0;
        for (std::size_t i = 0; i < w.size(); ++i) {
            v[i] = momentum * v[i] + rate * local * (g[i] + beta * w[i]);
            w[i] -= v[i];
        }
    }
};

}  // namespace

TEST_CASE("twenty steps are the paper's: each tensor's rate by its norm and its gradient's, biases at the plain rate") {
    constexpr std::size_t of_weights = 4133, of_bias = 7, total = of_weights + of_bias;
    for (const bool adapt_biases : {false, true}) {
        CAPTURE(adapt_biases);
        const Lars lars{
            .learning_rate = 0.5, .weight_decay = 0.01, .trust_coefficient = 0.05, .adapt_biases = adapt_biases};
        stepping::Arena arena(lars, {of_weights, of_bias}, 2);
        arena.segments[0].l2 = 0.1;
        arena.segments[0].rank = 4;
        arena.segments[1].rank = 1;
        const auto initial = stepping::numbers(total, 3);
        arena.scatter(arena.w, initial);
        Reference weights{{initial.begin(), initial.begin() + of_weights},
                          std::vector<double>(of_weights),
                          0.5,
                          0.9,
                          0.01,
                          0.05,
                          0.1,
                          true};
        Reference bias{{initial.begin() + of_weights, initial.end()},
                       std::vector<double>(of_bias),
                       0.5,
                       0.9,
                       0.01,
                       0.05,
                       0,
                       adapt_biases};
        for (int step = 0; step < 20; ++step) {
            CAPTURE(step);
            const auto gradient = stepping::numbers(total, 50 + static_cast<std::uint32_t>(step));
            const auto w = arena.step(step, gradient);
            weights.step(gradient.data());
            bias.step(gradient.data() + of_weights);
            std::vector<double> expected = weights.w;
            expected.insert(expected.end(), bias.w.begin(), bias.w.end());
            CHECK(stepping::difference(w, expected) < 1e-6);
        }
        CHECK(arena.padding_untouched());
    }
}

TEST_CASE("a tensor of zeros, and one without a gradient, have a trust ratio of 1 and stay finite") {
    const Lars lars{.learning_rate = 0.1, .momentum = 0.0, .weight_decay = 0.5};
    stepping::Arena arena(lars, {2, 2});
    arena.scatter(arena.w, std::vector<float>{0, 0, 1, 2});
    const auto w = arena.step(0, std::vector<float>{1, -2, 0, 0});
    CHECK(w[0] == doctest::Approx(-0.1));
    CHECK(w[1] == doctest::Approx(0.2));
    CHECK(w[2] == doctest::Approx(0.95));
    CHECK(w[3] == doctest::Approx(1.9));
}
