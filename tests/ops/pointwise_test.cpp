// SPDX-License-Identifier: Apache-2.0
//
// Operations made from a user's formula: forward and backward, from the output or from the input.
#include "../test.hpp"

#include <cupola/ops/math.hpp>
#include <cupola/ops/pointwise.hpp>

#include "../devices.hpp"
#include "../reference/compare.hpp"
#include "operation_run.hpp"

using namespace operation_run;

namespace {

/// y = x / (1 + |x|), by its output.
struct Softsign {
    CUPOLA_HOST_DEVICE float operator()(float x) const { return x / (1.0F + math::abs(x)); }
    CUPOLA_HOST_DEVICE float gradient_from_output(float y, float dy) const {
        const float rest = 1.0F - math::abs(y);
        return dy * rest * rest;
    }
};

/// x times a logistic function of `steepness` x, by its input.
struct Swish {
    float steepness;

    CUPOLA_HOST_DEVICE float operator()(float x) const { return x / (1.0F + math::exp(-steepness * x)); }
    CUPOLA_HOST_DEVICE float gradient_from_input(float x, float dy) const {
        const float s = 1.0F / (1.0F + math::exp(-steepness * x));
        return dy * (s + steepness * x * s * (1.0F - s));
    }
};

/// Selects, and so is given elements.
struct NegativePart {
    template <class T>
    CUPOLA_HOST_DEVICE T operator()(T x) const {
        return value_if(is_negative(x), x);
    }
    template <class T>
    CUPOLA_HOST_DEVICE T gradient_from_input(T x, T dy) const {
        return value_if(is_negative(x), dy);
    }
};

struct WithoutGradient {
    float operator()(float x) const { return x; }
};
struct OfDoubles {
    double operator()(float x) const { return x; }
    float gradient_from_output(float, float dy) const { return dy; }
};
static_assert(PointwiseFormula<Softsign> && PointwiseFormula<Swish> && PointwiseFormula<NegativePart>);
static_assert(!PointwiseFormula<WithoutGradient> && !PointwiseFormula<OfDoubles> && !PointwiseFormula<float>);
static_assert(impl::takes_elements<impl::ForwardOf<NegativePart>, BFloat16, const BFloat16>);
static_assert(!impl::takes_elements<impl::ForwardOf<Swish>, BFloat16, const BFloat16>);
static_assert(!impl::takes_elements<impl::GradientFromInput<Swish>, BFloat16, const BFloat16, const BFloat16>);

template <class D, class Formula>
Outcome computed(const Problem& problem, const Formula& formula) {
    return operation_run::run<D>(
        problem, [&](const auto& build) { return ops::Pointwise<DeviceOf<D>, ElementOf<D>, Formula>(build, formula); });
}

template <class D>
Problem problem_of(std::int64_t count, int threads, std::uint64_t seed) {
    reference::Random random(seed);
    Problem problem;
    problem.input = problem.output = {count};
    problem.batch = 2;
    problem.threads = threads;
    problem.x = rounded<D>(random.normal(2 * count));
    problem.dy = rounded<D>(random.normal(2 * count));
    return problem;
}

/// Checks against the same formulas in double. A gradient from the output is one from the output as it is stored.
template <class D, class Formula, class Forward, class Backward>
void agrees(const Formula& formula, Forward forward, Backward backward) {
    for (const std::int64_t count : {1, 3, 16, 2048, 15'001}) {
        for (const int threads : thread_counts<D>()) {
            const std::uint64_t seed = reference::fresh_seed();
            INFO(count, " elements, threads ", threads, ", seed ", seed);
            const Problem problem = problem_of<D>(count, threads, seed);
            const Outcome outcome = computed<D>(problem, formula);
            reference::Doubles y, dx;
            for (std::size_t i = 0; i < problem.x.size(); ++i) {
                const auto x = static_cast<double>(problem.x[i]);
                y.push_back(forward(x));
                dx.push_back(backward(x, static_cast<double>(outcome.output[i]), static_cast<double>(problem.dy[i])));
            }
            CHECK(reference::distance(outcome.output, y) < operation_run::tolerance<D>);
            // The terms of a slope may cancel, in two elements both; they are not larger than dy.
            const auto terms = [&] { return reference::widen(reference::magnitudes(problem.dy)); };
            CHECK(reference::distance_of_sums_at(dx, outcome.input_gradient, dx, terms) < operation_run::tolerance<D>);
        }
    }
}

}  // namespace

TYPED_TEST_CASE(
    "an operation made from a formula agrees with plain loops, with the gradient from its output or its input", D,
    DevicesAndElements) {
    agrees<D>(
        Softsign{}, [](double x) { return x / (1 + std::abs(x)); },
        [](double, double y, double dy) { return dy * (1 - std::abs(y)) * (1 - std::abs(y)); });
    agrees<D>(
        Swish{1.5F}, [](double x) { return x / (1 + std::exp(-1.5 * x)); },
        [](double x, double, double dy) {
            const double s = 1 / (1 + std::exp(-1.5 * x));
            return dy * (s + 1.5 * x * s * (1 - s));
        });
    agrees<D>(
        NegativePart{}, [](double x) { return x < 0 ? x : 0; },
        [](double x, double, double dy) { return x < 0 ? dy : 0; });
}

TYPED_TEST_CASE("a formula receives NaN and infinity unchanged", D, DevicesAndElements) {
    constexpr float inf = std::numeric_limits<float>::infinity();
    Problem problem = problem_of<D>(2, 1, 1);
    problem.x = {std::numeric_limits<float>::quiet_NaN(), -inf, inf, 0.0F};
    problem.dy = {1, 1, 1, 1};
    const Outcome outcome = computed<D>(problem, Swish{1.0F});
    CHECK(std::isnan(outcome.output[0]));
    CHECK(std::isnan(outcome.input_gradient[0]));
    CHECK(outcome.output[2] == inf);
    CHECK(outcome.output[3] == 0.0F);
    CHECK(outcome.input_gradient[3] == 0.5F);
}

TYPED_TEST_CASE("an operation made from a formula skips an input gradient that is not needed", D, DevicesAndElements) {
    Problem problem = problem_of<D>(3, 1, 1);
    problem.input_gradient = false;
    for (const float value : computed<D>(problem, Softsign{}).input_gradient) CHECK(std::isnan(value));
}
