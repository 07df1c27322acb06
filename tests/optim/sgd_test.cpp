// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/sgd.hpp>

#include "../test.hpp"

#include "golden/golden.hpp"
#include "stepping.hpp"
#include "throws_with.hpp"

static_assert(Optimizer<Sgd, Host>);
static_assert(!Optimizer<int, Host> && !HasUpdate<Schedule, Host> && !HasFormula<Schedule> && HasFormula<Sgd> &&
              !HasStateArenas<Schedule>);

TEST_CASE("twenty steps follow PyTorch's, with momentum, Nesterov, coupled and decoupled decay") {
    REQUIRE(golden::cases("sgd").size() >= 4);
    for (const golden::Case& golden : golden::cases("sgd")) {
        CAPTURE(golden.name());
        const Sgd sgd{.learning_rate = golden.number<double>("learning_rate"),
                      .momentum = golden.number<double>("momentum"),
                      .nesterov = golden.number<std::int64_t>("nesterov") != 0,
                      .weight_decay = golden.number<double>("weight_decay"),
                      .decoupled = golden.number<std::int64_t>("decoupled") != 0};
        const auto floats = [&](std::string_view tensor) {
            const auto values = golden.list<double>(tensor);
            return std::vector<float>(values.begin(), values.end());
        };
        const auto initial = floats("initial"), gradients = floats("gradients");
        const auto trace = golden.list<double>("trace");
        const std::size_t size = initial.size();
        stepping::Arena arena(sgd, {std::ssize(initial)});
        arena.scatter(arena.w, initial);
        REQUIRE(gradients.size() == 20 * size);
        for (std::size_t step = 0; step < 20; ++step) {
            const auto w = arena.step(static_cast<std::int64_t>(step), std::span(gradients).subspan(step * size, size));
            for (std::size_t i = 0; i < size; ++i) {
                CHECK(static_cast<double>(w[i]) == doctest::Approx(trace[step * size + i]).epsilon(1e-5).scale(0.1));
            }
        }
    }
}

TEST_CASE("a segment's l2 is added to its gradient alone") {
    stepping::Arena arena(Sgd{.learning_rate = 0.1}, {2, 2});
    arena.segments[0].l2 = 0.5;
    arena.scatter(arena.w, std::vector<float>(4, 1));
    const auto w = arena.step(0, std::vector<float>(4));
    CHECK(w[0] == doctest::Approx(0.95));
    CHECK(w[1] == doctest::Approx(0.95));
    CHECK(w[2] == 1.0F);
    CHECK(w[3] == 1.0F);
}

TEST_CASE("Nesterov's rule without a momentum is refused") {
    CHECK(message_of<InvalidArgument>([] { Sgd{.learning_rate = 0.1, .nesterov = true}.check(); }) ==
          "sgd's nesterov needs a momentum above 0");
    Sgd{.learning_rate = 0.1, .momentum = 0.5, .nesterov = true}.check();
}
