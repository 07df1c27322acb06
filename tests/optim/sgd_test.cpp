// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/sgd.hpp>

#include <vector>

#include <doctest/doctest.h>

#include <cupola/ops/host/element_update.hpp>
#include <cupola/optim/update_parameters.hpp>

#include "golden/sgd.hpp"

using namespace cupola;

static_assert(Optimizer<Sgd, Host>);
static_assert(!Optimizer<int, Host> && !HasUpdate<Schedule, Host> && !HasFormula<Schedule> && HasFormula<Sgd> &&
              !HasStateArenas<Schedule>);

TEST_CASE("twenty steps follow PyTorch's, with momentum, Nesterov, coupled and decoupled decay") {
    HostContext context(0, {.threads = 1});
    REQUIRE(std::size(golden::sgd_cases) >= 4);
    for (const golden::SgdCase& golden : golden::sgd_cases) {
        CAPTURE(golden.name);
        const Sgd sgd{.learning_rate = golden.learning_rate,
                      .momentum = golden.momentum,
                      .nesterov = golden.nesterov,
                      .weight_decay = golden.weight_decay,
                      .decoupled = golden.decoupled};
        std::vector<float> w(golden.initial.begin(), golden.initial.end()), state(golden.parameters),
            gradient(golden.parameters);
        const auto count = static_cast<std::int64_t>(golden.parameters);
        const Segment segment{0, count, 0.0};
        for (std::size_t step = 0; step < golden.steps; ++step) {
            for (std::size_t i = 0; i < golden.parameters; ++i) {
                gradient[i] = static_cast<float>(golden.gradients[step * golden.parameters + i]);
            }
            update_parameters(sgd, Update<Host>{.context = context,
                                                .parameters = w.data(),
                                                .gradient = gradient.data(),
                                                .state = sgd.state_arenas() == 0 ? nullptr : state.data(),
                                                .elements = count,
                                                .segments = {&segment, 1},
                                                .step = static_cast<std::int64_t>(step)});
            for (std::size_t i = 0; i < golden.parameters; ++i) {
                CHECK(static_cast<double>(w[i]) ==
                      doctest::Approx(golden.trace[step * golden.parameters + i]).epsilon(1e-5).scale(0.1));
            }
        }
    }
}

TEST_CASE("a segment's l2 is added to its gradient alone") {
    HostContext context(0, {.threads = 1});
    std::vector<float> w{1, 1, 1, 1}, gradient{0, 0, 0, 0};
    const Segment segments[] = {{0, 2, 0.5}, {2, 2, 0.0}};
    update_parameters(Sgd{.learning_rate = 0.1}, Update<Host>{.context = context,
                                                              .parameters = w.data(),
                                                              .gradient = gradient.data(),
                                                              .elements = 4,
                                                              .segments = segments});
    CHECK(w[0] == doctest::Approx(0.95));
    CHECK(w[1] == doctest::Approx(0.95));
    CHECK(w[2] == 1.0F);
    CHECK(w[3] == 1.0F);
}
