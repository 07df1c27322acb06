// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/layers/elu.hpp, cupola/layers/gelu.hpp, cupola/layers/hard_swish.hpp, cupola/layers/mish.hpp
// Covers: cupola/layers/relu6.hpp, cupola/layers/softplus.hpp, cupola/layers/tanh.hpp
//
// Activations that are a formula: values and gradients against formulas in double and PyTorch's figures, corners, the ends of the range, and
// options that are rejected.
#include "../test.hpp"

#include <cupola/layers.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/net/check_gradients.hpp>
#endif

#include "layer_run.hpp"

static_assert(GELU<>::output(Shape{24, 24, 64}).shape == Shape{24, 24, 64} &&
              ReLU6::output(Shape{7}).shape == Shape{7});
static_assert(parameters_of<Mish>(Shape{384}).count == 0 && kind_of<SELU>() == LayerKind::activation);
static_assert(!traits_of<ReLU6>().backward_reads_input && traits_of<ReLU6>().backward_reads_output);
static_assert(!traits_of<Tanh>().backward_reads_input && traits_of<Tanh>().backward_reads_output);
static_assert(traits_of<HardSwish>().backward_reads_input && !traits_of<HardSwish>().backward_reads_output);
static_assert(std::is_same_v<ELU<>, ELU<1>> && std::is_same_v<Softplus<>, Softplus<1, 20>>);
static_assert(std::string_view(ELU<1e39>::output(Shape{3}).error) == "has a constant that is not a finite float");
static_assert(ELU<-0.5>::output(Shape{3}).error.empty());
static_assert(std::string_view(Softplus<0>::output(Shape{3}).error) == "has a beta that is not between 1e-37 and 1e37");
static_assert(!Softplus<-1>::output(Shape{3}).error.empty() && !Softplus<1e38>::output(Shape{3}).error.empty());
static_assert(!Softplus<std::numeric_limits<double>::quiet_NaN()>::output(Shape{3}).error.empty());
static_assert(!Softplus<2, 1e39>::output(Shape{3}).error.empty() && Softplus<2, -3>::output(Shape{3}).error.empty());
static_assert(std::string_view(GELU<no_bias>::output(Shape{3}).error) == "accepts only the option tanh_approximation");
static_assert(!GELU<tanh_approximation, tanh_approximation>::output(Shape{3}).error.empty());
static_assert(std::string_view(GELU<>::description) == "GELU");
static_assert(std::string_view(GELU<tanh_approximation>::description) == "GELU, by tanh");

namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), not_a_number = std::numeric_limits<float>::quiet_NaN();

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// y and slope: the formula in double, and its derivative, of the input and of the output as it is stored.
// figures: PyTorch 2.15's outputs and gradients of -6, -3, -1, 0, 1, 3 and 6.
struct OfRelu6 {
    using Layer = ReLU6;
    static double y(double x) { return std::clamp(x, 0.0, 6.0); }
    static double slope(double x, double) { return x > 0 && x < 6 ? 1 : 0; }
    static constexpr float figures[2][7] = {{0, 0, 0, 0, 1, 3, 6}, {0, 0, 0, 0, 1, 1, 0}};
};
struct OfElu {
    using Layer = ELU<0.5>;
    static double y(double x) { return x > 0 ? x : 0.5 * std::expm1(x); }
    static double slope(double x, double) { return x > 0 ? 1 : 0.5 * std::exp(x); }
    static constexpr float figures[2][7] = {{-0.498760611F, -0.475106478F, -0.316060275F, 0, 1, 3, 6},
                                            {0.00123937614F, 0.0248935334F, 0.183939725F, 0.5F, 1, 1, 1}};
};
struct OfSelu {
    using Layer = SELU;
    static constexpr double scale = 1.0507009873554805, alpha = 1.6732632423543772;
    static double y(double x) { return scale * (x > 0 ? x : alpha * std::expm1(x)); }
    static double slope(double x, double) { return scale * (x > 0 ? 1 : alpha * std::exp(x)); }
    static constexpr float figures[2][7] = {
        {-1.75374138F, -1.6705687F, -1.11133075F, 0, 1.05070102F, 3.15210295F, 6.30420589F},
        {0.00435789255F, 0.0875306055F, 0.64676863F, 1.75809932F, 1.05070102F, 1.05070102F, 1.05070102F}};
};
struct OfTanh {
    using Layer = Tanh;
    static double y(double x) { return std::tanh(x); }
    static double slope(double, double y) { return 1 - y * y; }
    static constexpr float figures[2][7] = {
        {-0.999987721F, -0.995054781F, -0.761594176F, 0, 0.761594176F, 0.995054781F, 0.999987721F},
        {2.45569627e-05F, 0.00986598153F, 0.419974297F, 1, 0.419974297F, 0.00986598153F, 2.45569627e-05F}};
};
struct OfGelu {
    using Layer = GELU<>;
    static double below(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }
    static double y(double x) { return x * below(x); }
    static double slope(double x, double) {
        return below(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    }
    static constexpr float figures[2][7] = {
        {0, -0.00404986739F, -0.158655286F, 0, 0.841344714F, 2.99595022F, 6},
        {-2.98023224e-08F, -0.0119456053F, -0.0833154321F, 0.5F, 1.08331537F, 1.01194561F, 1}};
};
struct OfGeluByTanh {
    using Layer = GELU<tanh_approximation>;
    static double inner(double x) { return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); }
    static double y(double x) { return x * logistic(2 * inner(x)); }
    static double slope(double x, double) {
        const double s = logistic(2 * inner(x));
        return s + 2 * x * s * (1 - s) * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
    }
    static constexpr float figures[2][7] = {{0, -0.00363743305F, -0.158807993F, 0, 0.841192007F, 2.99636269F, 6},
                                            {0, -0.0115842968F, -0.0829640925F, 0.5F, 1.08296406F, 1.01158428F, 1}};
};
struct OfHardSigmoid {
    using Layer = HardSigmoid;
    static double y(double x) { return std::clamp(x + 3, 0.0, 6.0) / 6; }
    static double slope(double x, double) { return x > -3 && x < 3 ? 1.0 / 6 : 0; }
    static constexpr float figures[2][7] = {{0, 0, 0.333333343F, 0.5F, 0.666666687F, 1, 1},
                                            {0, 0, 0.166666672F, 0.166666672F, 0.166666672F, 0, 0}};
};
struct OfHardSwish {
    using Layer = HardSwish;
    static double y(double x) { return x * OfHardSigmoid::y(x); }
    static double slope(double x, double) { return x <= -3 ? 0 : x < 3 ? x / 3 + 0.5 : 1; }
    static constexpr float figures[2][7] = {{0, 0, -0.333333343F, 0, 0.666666687F, 3, 6},
                                            {0, 0, 0.166666657F, 0.5F, 0.833333373F, 1, 1}};
};
struct OfMish {
    using Layer = Mish;
    static double t(double x) { return std::tanh(std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)))); }
    static double y(double x) { return x * t(x); }
    static double slope(double x, double) { return t(x) + x * (1 - t(x) * t(x)) * logistic(x); }
    static constexpr float figures[2][7] = {
        {-0.014854081F, -0.145647466F, -0.30340144F, 0, 0.865098357F, 2.98653507F, 5.99992657F},
        {-0.0123599665F, -0.0933931246F, 0.0592167303F, 0.600000024F, 1.04903626F, 1.02110696F, 1.00013399F}};
};
struct OfSoftplus {
    using Layer = Softplus<2, 3>;
    static double y(double x) { return 2 * x > 3 ? x : std::log1p(std::exp(2 * x)) / 2; }
    static double slope(double x, double) { return 2 * x > 3 ? 1 : logistic(2 * x); }
    static constexpr float figures[2][7] = {
        {3.07209666e-06F, 0.0012378426F, 0.0634640008F, 0.346573591F, 1.06346405F, 3, 6},
        {6.14417422e-06F, 0.00247262325F, 0.119202919F, 0.5F, 0.880797088F, 1, 1}};
};

/// Calls f for each activation.
template <class F>
void for_each_activation(F f) {
    f(OfRelu6{}), f(OfElu{}), f(OfSelu{}), f(OfTanh{}), f(OfGelu{}), f(OfGeluByTanh{}), f(OfHardSigmoid{});
    f(OfHardSwish{}), f(OfMish{}), f(OfSoftplus{});
}

template <class L, class D>
operation_run::Outcome of(operation_run::Problem& problem, const reference::Floats& x, std::int64_t batch = 1) {
    problem.input = problem.output = {static_cast<std::int64_t>(x.size()) / batch};
    problem.batch = batch;
    problem.x = x;
    if (problem.dy.empty()) problem.dy.assign(x.size(), 1.0F);
    return operation_run::run<D>(problem, [](const auto& build) { return operation_of<L>(build); });
}
template <class L, class D>
operation_run::Outcome of(const reference::Floats& x) {
    operation_run::Problem problem;
    return of<L, D>(problem, x);
}

}  // namespace

TYPED_TEST_CASE("activations agree with their formulas in double, for any number of elements", D, DevicesAndElements) {
    for_each_activation([](auto a) {
        using A = decltype(a);
        for (const auto& extents : {std::pair{1, 1}, {3, 5}, {1, 63}, {2, 555}, {2, 4099}}) {
            const int batch = extents.first, features = extents.second;
            const std::uint64_t seed = reference::fresh_seed();
            CAPTURES(type_name<typename A::Layer>(), batch, features, seed);
            reference::Random random(seed);
            operation_run::Problem problem;
            problem.threads = 2;
            problem.dy = operation_run::rounded<D>(random.normal(batch * features));
            const auto outcome = of<typename A::Layer, D>(
                problem, operation_run::rounded<D>(random.normal(batch * features, 3.0)), batch);
            reference::Doubles y, dx;
            for (std::size_t i = 0; i < problem.x.size(); ++i) {
                const auto x = static_cast<double>(problem.x[i]);
                y.push_back(A::y(x));
                dx.push_back(static_cast<double>(problem.dy[i]) * A::slope(x, static_cast<double>(outcome.output[i])));
            }
            // Of few elements all may be where the result is small beside the input.
            const auto close = [&](const auto& result, const auto& expected, const auto& terms) {
                return reference::distance_of_sums_at(expected, result, expected, [&] {
                           return reference::widen(reference::magnitudes(terms));
                       }) < operation_run::tolerance<D>;
            };
            CHECK(close(outcome.output, y, problem.x));
            CHECK(close(outcome.input_gradient, dx, problem.dy));
        }
    });
}

TYPED_TEST_CASE("activations have PyTorch's values and gradients", D, Devices) {
    for_each_activation([](auto a) {
        using A = decltype(a);
        const reference::Floats x = {-6, -3, -1, 0, 1, 3, 6};
        const auto outcome = of<typename A::Layer, D>(x);
        for (std::size_t i = 0; i < x.size(); ++i) {
            CAPTURES(type_name<typename A::Layer>(), x[i]);
            CHECK(std::abs(outcome.output[i] - A::figures[0][i]) <= 3e-7F * std::max(1.0F, std::abs(x[i])));
            CHECK(std::abs(outcome.input_gradient[i] - A::figures[1][i]) <= 3e-7F);
        }
    });
}

TYPED_TEST_CASE("activations with corners have PyTorch's gradients there", D, Devices) {
    const auto gradients = [](const operation_run::Outcome& outcome) { return outcome.input_gradient; };
    const float above_0 = std::numeric_limits<float>::min(), below_6 = std::nextafter(6.0F, 0.0F),
                inside = std::nextafter(3.0F, 0.0F), outside = std::nextafter(3.0F, 4.0F);
    CHECK(gradients(of<ReLU6, D>({0, above_0, below_6, 6})) == reference::Floats{0, 1, 1, 0});
    const float sixth = 1.0F / 6;
    CHECK(gradients(of<HardSigmoid, D>({-3, -inside, inside, 3})) == reference::Floats{0, sixth, sixth, 0});
    const auto swish = gradients(of<HardSwish, D>({-outside, -3, -inside, inside, 3, outside}));
    CHECK(swish[0] == 0);
    CHECK(swish[1] == 0);
    CHECK(swish[2] == doctest::Approx(-0.5));
    CHECK(swish[3] == doctest::Approx(1.5));
    CHECK(swish[4] == 1);
    CHECK(swish[5] == 1);
    CHECK(gradients(of<ELU<0.5>, D>({0, -0.0F, above_0})) == reference::Floats{0.5F, 0.5F, 1});
    const auto soft = of<Softplus<2, 3>, D>({1.5F, std::nextafter(1.5F, 2.0F)});
    CHECK(soft.output[0] > 1.52F);
    CHECK(soft.output[1] < 1.51F);
    CHECK(soft.input_gradient[0] < 0.96F);
    CHECK(soft.input_gradient[1] == 1);
}

TYPED_TEST_CASE("activations are finite for large inputs, have limits, and propagate a NaN", D, Devices) {
    const reference::Floats x = {-1e30F, -100, 100, 1e30F, -inf, inf, not_a_number};
    for_each_activation([&](auto a) {
        using A = decltype(a);
        using L = typename A::Layer;
        CAPTURES(type_name<L>());
        const auto outcome = of<L, D>(x);
        for (std::size_t i = 0; i < 4; ++i) {
            const auto at = static_cast<double>(x[i]), y = static_cast<double>(outcome.output[i]);
            CHECK(y == doctest::Approx(std::isfinite(A::y(at)) ? A::y(at) : at));
            const double slope = A::slope(std::clamp(at, -100.0, 100.0), y);
            CHECK(static_cast<double>(outcome.input_gradient[i]) == doctest::Approx(slope));
        }
        constexpr bool product = std::is_same_v<L, GELU<>> || std::is_same_v<L, GELU<tanh_approximation>> ||
                                 std::is_same_v<L, HardSwish> || std::is_same_v<L, Mish>;
        if (product) {
            CHECK(std::isnan(outcome.output[4]));
        } else {
            CHECK(outcome.output[4] == outcome.output[0]);
        }
        CHECK(outcome.output[5] == (outcome.output[3] > 1e20F ? inf : outcome.output[3]));
        CHECK(std::isnan(outcome.output[6]));
    });
}

TYPED_TEST_CASE("activations propagate a NaN of every element type", D, DevicesAndElements) {
    for_each_activation([](auto a) {
        using L = typename decltype(a)::Layer;
        CAPTURES(type_name<L>());
        const auto outcome = of<L, D>({1, not_a_number, -not_a_number});
        CHECK(std::isfinite(outcome.output[0]));
        CHECK(std::isnan(outcome.output[1]));
        CHECK(std::isnan(outcome.output[2]));
    });
}

TYPED_TEST_CASE("ELU and SELU have the relative accuracy of float near 0, and Softplus and Mish far below it", D,
                Devices) {
    const auto relative_error = [](auto a, float at) {
        using A = decltype(a);
        const double y = A::y(static_cast<double>(at));
        const auto result = static_cast<double>(of<typename A::Layer, D>({at}).output[0]);
        return std::abs(result / y - 1);
    };
    for (const float x : {-1e-30F, -1e-10F, -1e-5F, -0.01F, -0.3F, -0.35F, -0.6F, -2.0F}) {
        CAPTURE(x);
        CHECK(relative_error(OfElu{}, x) < 2.5e-7);
        CHECK(relative_error(OfSelu{}, x) < 2.5e-7);
    }
    for (const float x : {-40.0F, -30.0F, -20.0F, -10.0F}) {
        CAPTURE(x);
        CHECK(relative_error(OfSoftplus{}, x) < 4e-7);
        CHECK(relative_error(OfMish{}, x) < 4e-7);
    }
}

#ifndef CUPOLA_TEST_CUDA
TEST_CASE("the gradients of activations are their derivatives") {
    const auto check = [](const GradientCheck& result) { CHECK_MESSAGE(result, result.report()); };
    check(check_gradients<ReLU6, Host>({4, 4, 3}));
    check(check_gradients<ELU<0.5>, Host>({4, 4, 3}));
    check(check_gradients<Tanh, Host>({4, 4, 3}));
    check(check_gradients<GELU<>, Host>({4, 4, 3}));
    check(check_gradients<GELU<tanh_approximation>, Host>({4, 4, 3}));
    check(check_gradients<HardSwish, Host>({4, 4, 3}));
    check(check_gradients<Mish, Host>({4, 4, 3}));
    check(check_gradients<Softplus<>, Host>({4, 4, 3}));
}
#endif
