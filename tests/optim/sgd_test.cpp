// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/sgd.hpp>

#include "../test.hpp"

#include <cupola/ops/host/element_update.hpp>
#include <cupola/optim/update_parameters.hpp>

#include "golden/golden.hpp"

using namespace cupola;

static_assert(Optimizer<Sgd, Host>);
static_assert(!Optimizer<int, Host> && !HasUpdate<Schedule, Host> && !HasFormula<Schedule> && HasFormula<Sgd> &&
              !HasStateArenas<Schedule>);

TEST_CASE("twenty steps follow PyTorch's, with momentum, Nesterov, coupled and decoupled decay") {
    HostContext context(0, {.threads = 1});
    REQUIRE(golden::cases("sgd").size() >= 4);
    for (const golden::Case& golden : golden::cases("sgd")) {
        CAPTURE(golden.name());
        const Sgd sgd{.learning_rate = golden.number<double>("learning_rate"),
                      .momentum = golden.number<double>("momentum"),
                      .nesterov = golden.number<std::int64_t>("nesterov") != 0,
                      .weight_decay = golden.number<double>("weight_decay"),
                      .decoupled = golden.number<std::int64_t>("decoupled") != 0};
        const auto initial = golden.list<double>("initial"), gradients = golden.list<double>("gradients"),
                   trace = golden.list<double>("trace");
        const std::size_t size = initial.size();
        std::vector<float> w(initial.begin(), initial.end()), state(size), gradient(size);
        const auto count = static_cast<std::int64_t>(size);
        const Segment segment{0, count, 0.0};
        REQUIRE(gradients.size() == 20 * size);
        for (std::size_t step = 0; step < 20; ++step) {
            for (std::size_t i = 0; i < size; ++i) gradient[i] = static_cast<float>(gradients[step * size + i]);
            update_parameters(sgd, Update<Host>{.context = context,
                                                .parameters = w.data(),
                                                .gradient = gradient.data(),
                                                .state = sgd.state_arenas() == 0 ? nullptr : state.data(),
                                                .elements = count,
                                                .segments = {&segment, 1},
                                                .step = static_cast<std::int64_t>(step)});
            for (std::size_t i = 0; i < size; ++i) {
                CHECK(static_cast<double>(w[i]) == doctest::Approx(trace[step * size + i]).epsilon(1e-5).scale(0.1));
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
