// SPDX-License-Identifier: Apache-2.0
//
// MaxPool2d and LocalResponseNorm as one operation, in both orders, against plain loops in double.
#include "../test.hpp"

#include <cupola/ops/pool_with_lrn.hpp>

#include "../devices.hpp"
#include "../reference/local_response_norm.hpp"
#include "../reference/pooling.hpp"
#include "../reference/relu.hpp"
#include "operation_run.hpp"

using namespace operation_run;
using reference::distance, reference::Doubles;

namespace {

enum class Order { pool_first, norm_first };

struct Case {
    std::int64_t batch, height, width, channels, window, stride, radius;
    float bias = 1.0F, alpha = 0.3F, beta = 0.75F;
    Padding padding = Padding::same;
    std::int64_t pad = -1;  // on each side, instead of `padding`
    /// A window along the width of 2, with stride 1 and no padding, and ceil_mode in both directions.
    bool uneven = false;
};

std::string describe(const Case& c) {
    return text("batch ", c.batch, ", ", c.height, " x ", c.width, " x ", c.channels, ", window ", c.window,
                ", stride ", c.stride, c.padding == Padding::same ? ", same" : ", valid", ", pad ", c.pad, ", radius ",
                c.radius, ", beta ", c.beta, c.uneven ? ", uneven" : "");
}

std::string describe(Order order) { return order == Order::pool_first ? "pool first, " : "norm first, "; }

/// A result in bfloat16 has been rounded up to three times.
template <class D>
constexpr double tolerance = std::is_same_v<ElementOf<D>, BFloat16> ? 1e-2 : operation_run::tolerance<D>;

struct Oracle {
    Case c;
    Order order;

    [[nodiscard]] reference::Pooling pool() const {
        const auto axis = [&](std::int64_t size) {
            if (c.pad >= 0) return reference::padded(size, c.window, c.stride, c.pad);
            return c.padding == Padding::same ? reference::same(size, c.window, c.stride)
                                              : reference::valid(size, c.window, c.stride);
        };
        if (c.uneven) {
            return {c.batch, reference::padded(c.height, c.window, c.stride, c.pad, true),
                    reference::padded(c.width, 2, 1, 0, true), c.channels, true};
        }
        return {c.batch, axis(c.height), axis(c.width), c.channels, true};
    }
    [[nodiscard]] reference::LocalResponseNorm norm() const {
        return {c.channels, c.radius, static_cast<double>(c.bias), static_cast<double>(c.alpha),
                static_cast<double>(c.beta)};
    }
    [[nodiscard]] static Floats narrow(const Doubles& values) { return {values.begin(), values.end()}; }

    [[nodiscard]] Doubles forward(const Floats& x) const {
        return order == Order::pool_first ? norm().forward(narrow(pool().forward(x)))
                                          : pool().forward(narrow(norm().forward(x)));
    }
    /// `inner`: the normalised values as the operation rounds them, for where norm comes first.
    [[nodiscard]] Doubles input_gradient(const Floats& dy, const Floats& x, const Floats& inner) const {
        if (order == Order::pool_first) {
            return pool().input_gradient(narrow(norm().input_gradient(dy, narrow(pool().forward(x)))), x);
        }
        return norm().input_gradient(narrow(pool().input_gradient(dy, inner)), x);
    }
};

/// With `ties`, the input is what comes out of a ReLU.
template <class D>
Problem problem_of(const Case& c, Order order, std::uint64_t seed, int threads, bool ties = false) {
    const reference::Pooling r = Oracle{c, order}.pool();
    reference::Random random(seed);
    Problem problem;
    problem.input = {c.height, c.width, c.channels};
    problem.output = {r.height.output, r.width.output, c.channels};
    problem.batch = c.batch;
    problem.threads = threads;
    problem.x = rounded<D>(ties ? random.ties(r.input_size()) : random.normal(r.input_size()));
    problem.dy = rounded<D>(random.normal(r.output_size()));
    return problem;
}

template <class D>
Outcome run(const Case& c, Order order, const Problem& problem) {
    const auto axis = [&](std::int64_t size) {
        return c.pad >= 0 ? window_axis(size, c.window, c.stride, c.pad)
                          : window_axis(size, c.window, c.stride, c.padding);
    };
    const PoolingShape pool{c.uneven ? window_axis(c.height, c.window, c.stride, c.pad, true) : axis(c.height),
                            c.uneven ? window_axis(c.width, 2, 1, 0, true) : axis(c.width), c.channels,
                            PoolingKind::max};
    const LocalResponseNormShape norm{c.channels, c.radius, c.bias, c.alpha, c.beta};
    if (order == Order::pool_first) {
        return operation_run::run<D>(
            problem, [&](const auto& build) { return ops::PoolThenLrn<DeviceOf<D>, ElementOf<D>>(build, pool, norm); });
    }
    return operation_run::run<D>(
        problem, [&](const auto& build) { return ops::LrnThenPool<DeviceOf<D>, ElementOf<D>>(build, norm, pool); });
}

/// The result of the operation's normalisation alone, in the element type: a pooling window of one pixel changes nothing.
template <class D>
Floats normalised(const Case& c, const Problem& problem) {
    Case alone = c;
    alone.window = alone.stride = 1;
    alone.pad = -1;
    alone.uneven = false;
    Problem same = problem;
    same.output = same.input;
    same.dy.assign(same.x.size(), 0.0F);
    return run<D>(alone, Order::norm_first, same).output;
}

std::vector<Case> cases() {
    std::vector<Case> result{
        {3, 24, 24, 64, 3, 2, 4, 1.0F, 0.001F / 9.0F},  // the tutorial's
        {3, 12, 12, 64, 3, 2, 4, 1.0F, 0.001F / 9.0F},
        {2, 5, 7, 64, 3, 2, 4},
        {2, 9, 6, 64, 2, 2, 2},
        {2, 7, 7, 96, 3, 2, 2, 2.0F, 0.1F},  // AlexNet's
        {1, 4, 5, 128, 3, 1, 4},             // every input in nine windows
        {2, 8, 8, 80, 2, 3, 4},              // inputs in no window
        {2, 8, 8, 48, 3, 3, 1},
        {2, 6, 5, 20, 5, 2, 4, 0.5F, 0.3F, 0.6F},
        {2, 7, 9, 64, 3, 2, 4, 1.0F, 0.3F, 0.5F},
        {2, 7, 9, 64, 3, 2, 4, 1.0F, 0.3F, 0.75F, Padding::valid},
        {1, 16, 15, 17, 15, 1, 4, 1.0F, 0.3F, 0.75F, Padding::valid},  // the largest window
        {2, 8, 9, 64, 3, 2, 4, 1.0F, 0.3F, 0.75F, Padding::same, 1},
        {2, 6, 7, 20, 5, 1, 2, 1.0F, 0.3F, 0.75F, Padding::same, 2},
        {2, 8, 8, 80, 2, 3, 4, 1.0F, 0.3F, 0.75F, Padding::same, 1},  // inputs in no window
        {2, 8, 9, 64, 3, 2, 4, 1.0F, 0.3F, 0.75F, Padding::same, 1, true},
        {2, 7, 6, 20, 5, 3, 2, 1.0F, 0.3F, 0.75F, Padding::same, 2, true},
        {1, 1, 1, 64, 1, 1, 4},
        {0, 6, 6, 64, 3, 2, 4},
    };
    for (const std::int64_t channels : {1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 63, 65, 100, 127, 130}) {
        result.push_back({2, 5, 6, channels, 3, 2, channels % 2 == 0 ? 2 : 4});
    }
    return result;
}

}  // namespace

TYPED_TEST_CASE("pooling and normalisation in one operation agree with plain loops, in both orders", D,
                DevicesAndElements) {
    for (const Order order : {Order::pool_first, Order::norm_first}) {
        for (const Case& c : cases()) {
            for (const int threads : thread_counts<D>()) {
                const std::uint64_t seed = reference::fresh_seed();
                INFO(describe(order), describe(c), ", threads ", threads, ", seed ", seed);
                const Problem problem = problem_of<D>(c, order, seed, threads, threads == 2);
                const Oracle oracle{c, order};
                const Outcome outcome = run<D>(c, order, problem);
                CHECK(distance(outcome.output, oracle.forward(problem.x)) < tolerance<D>);
                const Floats inner = order == Order::norm_first ? normalised<D>(c, problem) : Floats{};
                CHECK(distance(outcome.input_gradient, oracle.input_gradient(problem.dy, problem.x, inner)) <
                      tolerance<D>);
            }
        }
    }
}

TYPED_TEST_CASE(
    "pooling and normalisation in one operation have the same bits for 1, 2 and 3 threads and for a split batch", D,
    DevicesAndElements) {
    for (const Order order : {Order::pool_first, Order::norm_first}) {
        const Case c{6, 9, 7, 64, 3, 2, 4};
        const std::uint64_t seed = reference::fresh_seed();
        CAPTURE(seed);
        Problem problem = problem_of<D>(c, order, seed, 1, true);
        for (std::size_t i = 0; i < problem.x.size(); i += 997) problem.x[i] = -1.0F;  // in some rows of each image
        const Outcome one = run<D>(c, order, problem);
        for (const int threads : {2, 3}) {
            CAPTURE(threads);
            Problem divided = problem;
            divided.threads = threads;
            const Outcome several = run<D>(c, order, divided);
            CHECK(reference::same_bits(one.output, several.output));
            CHECK(reference::same_bits(one.input_gradient, several.input_gradient));
        }

        Case first = c;
        first.batch = 2;
        Problem part = problem;
        part.batch = 2;
        part.x.resize(part.x.size() / 3);
        part.dy.resize(part.dy.size() / 3);
        const Outcome split = run<D>(first, order, part);
        CHECK(reference::same_bits(split.output, std::span(one.output).first(split.output.size())));
        CHECK(reference::same_bits(split.input_gradient,
                                   std::span(one.input_gradient).first(split.input_gradient.size())));
    }
}

TYPED_TEST_CASE("pooling and normalisation in one operation apply the mask of a ReLU before them", D,
                DevicesAndElements) {
    for (const Order order : {Order::pool_first, Order::norm_first}) {
        for (const Case& c : cases()) {
            if (c.batch == 0) continue;
            const std::uint64_t seed = reference::fresh_seed();
            INFO(describe(order), describe(c), ", seed ", seed);
            Problem problem = problem_of<D>(c, order, seed, 2);
            problem.x =
                reference::Random(seed).ties(static_cast<std::int64_t>(problem.x.size()));  // what comes out of a ReLU
            const Outcome plain = run<D>(c, order, problem);
            problem.applies_relu_mask_of_previous = true;
            const Outcome masking = run<D>(c, order, problem);
            CHECK(reference::same_bits(masking.output, plain.output));
            CHECK(reference::same_bits(masking.input_gradient, reference::relu_mask(problem.x, plain.input_gradient)));
        }
    }
}

TYPED_TEST_CASE("made for evaluation, pooling and normalisation compute the same output and save nothing", D,
                DevicesAndElements) {
    for (const Order order : {Order::pool_first, Order::norm_first}) {
        for (const Case& c : cases()) {
            INFO(describe(c));
            Problem problem = problem_of<D>(c, order, reference::fresh_seed(), 2);
            const Outcome training = run<D>(c, order, problem);
            problem.made_for_training = problem.training = false;
            const Outcome inference = run<D>(c, order, problem);
            CHECK(reference::same_bits(inference.output, training.output));
            CHECK(inference.needs.saved == 0);
        }
    }
}

TYPED_TEST_CASE("pooling and normalisation skip an input gradient that is not needed", D, DevicesAndElements) {
    for (const Order order : {Order::pool_first, Order::norm_first}) {
        const Case c{2, 6, 6, 64, 3, 2, 4};
        Problem problem = problem_of<D>(c, order, reference::fresh_seed(), 1);
        problem.input_gradient = problem.made_for_input_gradient = false;
        const Outcome outcome = run<D>(c, order, problem);
        for (const float value : outcome.input_gradient) CHECK(std::isnan(value));
    }
}

TYPED_TEST_CASE("a maximum propagates a NaN of either sign, at every position of the window", D, DevicesAndElements) {
    for (const std::int64_t channels : {64, 20}) {
        const Case c{1, 3, 3, channels, 3, 3, 0, 1.0F, 0.0F};  // one window; the norm divides by one
        for (std::int64_t tap = 0; tap < 9; ++tap) {
            for (const float sign : {1.0F, -1.0F}) {
                CAPTURE(tap);
                Problem problem = problem_of<D>(c, Order::pool_first, reference::fresh_seed(), 1);
                const auto at = [&](std::int64_t channel) {
                    return static_cast<std::size_t>(tap * channels + channel);
                };
                problem.x[at(5)] = std::copysign(std::numeric_limits<float>::quiet_NaN(), sign);
                const Outcome outcome = run<D>(c, Order::pool_first, problem);
                for (std::size_t k = 0; k < outcome.output.size(); ++k)
                    CHECK(std::isnan(outcome.output[k]) == (k == 5));
                // Its gradient, a NaN, goes to its position.
                for (std::size_t k = 0; k < outcome.input_gradient.size(); ++k) {
                    CHECK(std::isnan(outcome.input_gradient[k]) == (k == at(5)));
                }
            }
        }
    }
}
