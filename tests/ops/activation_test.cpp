// SPDX-License-Identifier: Apache-2.0
//
// ReLU as an operation of its own.
#include "../test.hpp"

#include <cupola/ops/activation.hpp>

#include "../devices.hpp"
#include "../reference/relu.hpp"
#include "operation_run.hpp"

using namespace operation_run;

namespace {

template <class D>
Outcome run(const Problem& problem) {
    return operation_run::run<D>(problem,
                                 [](const auto& build) { return ops::Relu<DeviceOf<D>, ElementOf<D>>(build); });
}

Problem problem_of(const Floats& x, const Floats& dy, int threads) {
    Problem problem;
    problem.input = problem.output = {static_cast<std::int64_t>(x.size())};
    problem.threads = threads;
    problem.x = x;
    problem.dy = dy;
    return problem;
}

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();

}  // namespace

TYPED_TEST_CASE("ReLU, forward and backward, agrees with plain loops to the bit", D, DevicesAndElements) {
    for (const std::int64_t count : {1, 3, 16, 4095, 4096, 4097, 30'000}) {
        for (const int threads : thread_counts<D>()) {
            const std::uint64_t seed = reference::fresh_seed();
            INFO(count, " elements, threads ", threads, ", seed ", seed);
            reference::Random random(seed);
            const Problem problem =
                problem_of(rounded<D>(random.normal(count)), rounded<D>(random.normal(count)), threads);
            const Outcome outcome = run<D>(problem);
            CHECK(reference::distance(outcome.output, reference::relu(reference::widen(problem.x))) == 0);
            CHECK(reference::same_bits(outcome.input_gradient, reference::relu_mask(outcome.output, problem.dy)));
        }
    }
}

TYPED_TEST_CASE("ReLU's gradient is zero at zero, and ReLU propagates NaN and infinity", D, DevicesAndElements) {
    const Outcome outcome =
        run<D>(problem_of({0.0F, -0.0F, 1.0F, -1.0F, inf, -inf, not_a_number}, {1, 2, 3, 4, 5, 6, 7}, 1));
    CHECK(outcome.output[0] == 0.0F);
    CHECK(outcome.output[1] == 0.0F);
    CHECK(outcome.output[2] == 1.0F);
    CHECK(outcome.output[3] == 0.0F);
    CHECK(outcome.output[4] == inf);
    CHECK(outcome.output[5] == 0.0F);
    CHECK(std::isnan(outcome.output[6]));
    CHECK(outcome.input_gradient == Floats{0, 0, 3, 0, 5, 0, 0});
}

TYPED_TEST_CASE("ReLU skips an input gradient that is not needed", D, DevicesAndElements) {
    Problem problem = problem_of({1, -1, 2}, {1, 1, 1}, 1);
    problem.input_gradient = false;
    for (const float value : run<D>(problem).input_gradient) CHECK(std::isnan(value));
}
