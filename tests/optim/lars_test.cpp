// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/lars.hpp>

#include "../test.hpp"

#include <cupola/ops/host/element_update.hpp>

#include "stepping.hpp"

namespace {

/// Algorithm 1 of You, Gitman, Ginsburg 2017 (arXiv 1708.03888) on one tensor, in double, as it is written there.
struct Reference {
    Lars lars;
    double l2;
    bool adapt;
    std::vector<double> w, v = std::vector<double>(w.size());

    void step(int step, const float* gradient) {
        std::vector<double> g(w.size());
        double squares_of_g = 0, squares_of_w = 0;
        for (std::size_t i = 0; i < w.size(); ++i) {
            g[i] = static_cast<double>(gradient[i]) + l2 * w[i];
            squares_of_g += g[i] * g[i];
            squares_of_w += w[i] * w[i];
        }
        const double beta = adapt ? lars.weight_decay : 0.0, norm_of_w = std::sqrt(squares_of_w),
                     norm_of_g = std::sqrt(squares_of_g);
        const double local = adapt ? lars.trust_coefficient * norm_of_w / (norm_of_g + beta * norm_of_w) : 1.0;
        for (std::size_t i = 0; i < w.size(); ++i) {
            v[i] = 0.9 * v[i] + lars.learning_rate_at(step) * local * (g[i] + beta * w[i]);
            w[i] -= v[i];
        }
    }
};

}  // namespace

TEST_CASE("twenty steps are the paper's: each tensor's rate by its norm and its gradient's, biases at the plain rate") {
    for (const bool adapt_biases : {false, true}) {
        CAPTURE(adapt_biases);
        const Lars lars{
            .learning_rate = 0.5, .weight_decay = 0.01, .trust_coefficient = 0.05, .adapt_biases = adapt_biases};
        stepping::Arena arena(lars, {4133, 7}, 2);
        arena.segments[0].l2 = 0.1;
        arena.segments[0].rank = 4;
        arena.segments[1].rank = 1;
        stepping::check_twenty_steps(arena, [&](const Segment& tensor, const std::vector<double>& initial) {
            return Reference{lars, tensor.l2, adapt_biases || tensor.rank != 1, initial};
        });
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
