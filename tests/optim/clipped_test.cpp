// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/gradient_norm.hpp, cupola/ops/host/gradient_norm.hpp
//
// The steps of clipped optimisers beside PyTorch's are in optimizer_test.cpp.
#include <cupola/optim/clipped.hpp>

#include "../test.hpp"

#include <cupola/ops/host/element_update.hpp>
#include <cupola/ops/host/gradient_norm.hpp>
#include <cupola/optim/sgd.hpp>

#include "stepping.hpp"
#include "throws_with.hpp"

TEST_CASE("the norm is over all tensors, with what the regularisers add, in the same bits from any team") {
    constexpr std::size_t first = 9001, second = 77;
    double norms[2] = {};
    for (const int threads : {1, 2}) {
        stepping::Arena arena(Clipped<Sgd>{}, {first, second}, threads);
        arena.segments[1].l2 = 0.5;
        const auto w = stepping::numbers(first + second, 1), gradient = stepping::numbers(first + second, 2);
        arena.scatter(arena.w, w);
        arena.scatter(arena.gradient, gradient);
        double squares = 0;
        for (std::size_t i = 0; i < first + second; ++i) {
            const double g = static_cast<double>(gradient[i]) + (i < first ? 0.0 : 0.5 * static_cast<double>(w[i]));
            squares += g * g;
        }
        norms[threads - 1] = Clipped<Sgd>::gradient_norm(arena.update(0));
        CHECK(norms[threads - 1] == doctest::Approx(std::sqrt(squares)).epsilon(1e-9));
    }
    CHECK(norms[0] == norms[1]);
}

TEST_CASE("a gradient within the norm is unchanged, and a longer one keeps its direction and gets the norm") {
    const Sgd plain{.learning_rate = 1.0};
    const std::vector<float> w{1, 2, 3}, gradient{3, 0, 4};  // of norm 5
    const auto moved = [&](const auto& optimizer) {
        stepping::Arena arena(optimizer, {1, 2});
        arena.scatter(arena.w, w);
        return arena.step(0, gradient);
    };
    CHECK(moved(Clipped<Sgd>{.optimizer = plain, .max_norm = 5.1}) == moved(plain));
    CHECK(moved(Clipped<Sgd>{.optimizer = plain}) == moved(plain));
    const auto half = moved(Clipped<Sgd>{.optimizer = plain, .max_norm = 2.5});
    CHECK(half[0] == doctest::Approx(1 - 1.5).epsilon(1e-6));
    CHECK(half[1] == 2.0F);
    CHECK(half[2] == doctest::Approx(3 - 2.0).epsilon(1e-6));
    const auto values = moved(Clipped<Sgd>{.optimizer = plain, .max_norm = 2.5, .max_value = 1.75});
    CHECK(values[0] == doctest::Approx(1 - 1.5).epsilon(1e-6));
    CHECK(values[2] == 3 - 1.75F);
}

TEST_CASE("a gradient of zeros stays zero") {
    stepping::Arena arena(Clipped<Sgd>{.optimizer = {.learning_rate = 1.0}, .max_norm = 1, .max_value = 1}, {2});
    arena.scatter(arena.w, std::vector<float>{1, 2});
    CHECK(arena.step(0, std::vector<float>{0, 0}) == std::vector<float>{1, 2});
}

TEST_CASE("a limit that is not a normal float is rejected: it would become 0, which disables clipping") {
    const auto refusal = [](const Clipped<Sgd>& optimizer) {
        return message_of<InvalidArgument>([&] { optimizer.check(); });
    };
    CHECK(refusal({.max_value = 1e-50}) ==
          "the value that a gradient is clipped to must be 0 (no clipping) or at least 1.17549e-38, not 1e-50");
    CHECK(refusal({.max_value = 1e-40}) ==
          "the value that a gradient is clipped to must be 0 (no clipping) or at least 1.17549e-38, not 1e-40");
    CHECK(refusal({.max_norm = 1e-50}) ==
          "the norm that a gradient is clipped to must be 0 (no clipping) or at least 1.17549e-38, not 1e-50");
    CHECK(refusal({.max_value = -1}) == "the value that a gradient is clipped to must be at least 0, not -1");
    constexpr double smallest = std::numeric_limits<float>::min();
    CHECK_NOTHROW((Clipped<Sgd>{.max_norm = smallest, .max_value = smallest}.check()));
    CHECK_NOTHROW(Clipped<Sgd>{}.check());
    // The smallest that is accepted clips.
    stepping::Arena arena(Clipped<Sgd>{.optimizer = {.learning_rate = 1.0}, .max_value = smallest}, {1});
    arena.scatter(arena.w, std::vector<float>{0});
    CHECK(arena.step(0, std::vector<float>{3})[0] == -std::numeric_limits<float>::min());
}

TEST_CASE("clipping does not hide a value that is not a number") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    stepping::Arena arena(Clipped<Sgd>{.optimizer = {.learning_rate = 1.0}, .max_norm = 1, .max_value = 1}, {2});
    arena.scatter(arena.w, std::vector<float>{1, 2});
    CHECK(std::isnan(arena.step(0, std::vector<float>{nan, 0})[0]));
}

TEST_CASE("the optimiser's own decay is not clipped") {
    stepping::Arena arena(Clipped<Sgd>{.optimizer = {.learning_rate = 1.0, .weight_decay = 0.5}, .max_value = 0.25},
                          {1});
    arena.scatter(arena.w, std::vector<float>{8});
    CHECK(arena.step(0, std::vector<float>{3})[0] == 8 - (0.25F + 4));
}
