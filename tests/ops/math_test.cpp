// SPDX-License-Identifier: Apache-2.0
//
// The functions of formulas against the standard library's in double, over the whole range of a float.
#include "../test.hpp"

#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/math.hpp>

#include "../devices.hpp"
#include "../reference/compare.hpp"
#include "operation_run.hpp"

namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), not_a_number = std::numeric_limits<float>::quiet_NaN();

struct ExpOf {
    static constexpr double max_ulps = 1.1;
    CUPOLA_HOST_DEVICE void operator()(float& y, float x) const { y = math::exp(x); }
    static double reference(double x) { return std::exp(x); }
};
struct Expm1Of {
    static constexpr double max_ulps = 1.6;
    CUPOLA_HOST_DEVICE void operator()(float& y, float x) const { y = math::expm1(x); }
    static double reference(double x) { return std::expm1(x); }
};
struct LogOf {
    static constexpr double max_ulps = 0.9;
    CUPOLA_HOST_DEVICE void operator()(float& y, float x) const { y = math::log(x); }
    static double reference(double x) { return std::log(x); }
};
struct Log1pOf {
    static constexpr double max_ulps = 1.5;
    CUPOLA_HOST_DEVICE void operator()(float& y, float x) const { y = math::log1p(x); }
    static double reference(double x) { return std::log1p(x); }
};
struct TanhOf {
    static constexpr double max_ulps = 1.5;
    CUPOLA_HOST_DEVICE void operator()(float& y, float x) const { y = math::tanh(x); }
    static double reference(double x) { return std::tanh(x); }
};
struct ErfOf {
    static constexpr double max_ulps = 1.3;
    CUPOLA_HOST_DEVICE void operator()(float& y, float x) const { y = math::erf(x); }
    static double reference(double x) { return std::erf(x); }
};

/// The distance from the true value in units of the last place of a float of its size.
double ulps(float result, double exact) {
    if (std::isnan(exact)) return std::isnan(result) ? 0 : HUGE_VAL;
    const auto rounded = static_cast<float>(exact);
    if (std::isinf(rounded)) return result == rounded ? 0 : HUGE_VAL;
    int exponent = 0;
    std::frexp(std::max(std::abs(exact), 0x1p-126), &exponent);
    return std::abs(static_cast<double>(result) - exact) / std::ldexp(1.0, exponent - 24);
}

}  // namespace

TEST_CASE_TEMPLATE("on the calling thread every result is within the error that the header states", F, ExpOf, Expm1Of,
                   LogOf, Log1pOf, TanhOf, ErfOf) {
    double worst = 0;
    float at = 0;
    // Every 1021st float, of either sign.
    for (std::uint64_t bits = 0; bits < 0x1'0000'0000; bits += 1021) {
        const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
        float y = not_a_number;
        F{}(y, x);
        const double error = ulps(y, F::reference(static_cast<double>(x)));
        if (error <= worst) continue;
        worst = error;
        at = x;
    }
    INFO("the largest error is at ", at);
    CHECK(worst < F::max_ulps);
    CHECK(worst > 0.4);  // what rounding alone is
}

TYPED_TEST_CASE("a device's loops compute the same functions", D, Devices) {
    const auto check = [](auto formula) {
        using F = decltype(formula);
        reference::Floats x;
        for (std::uint64_t bits = 0; bits < 0x1'0000'0000; bits += 131'101)
            x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
        typename D::Context context(0, device_options<D>(2));
        [[maybe_unused]] const auto team = context.team();
        operation_run::Guarded<D> from(context, x), to(context, x.size() * sizeof(float));
        for_each_element(context, static_cast<std::int64_t>(x.size()), F{}, to.data(),
                         static_cast<const float*>(from.data()));
        const reference::Floats y = to.read();
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double exact = F::reference(static_cast<double>(x[i]));
            INFO("at ", x[i], ": ", y[i], ", not ", exact);
            // A device's threads may flush subnormal numbers.
            const bool subnormal = std::abs(exact) < 0x1p-126 || std::abs(x[i]) < 0x1p-126F;
            if (subnormal && std::isfinite(exact)) {
                const auto result = static_cast<double>(y[i]);
                const bool flushed = result == F::reference(0.0) || std::abs(result - exact) < 0x1p-125;
                REQUIRE((flushed || ulps(y[i], exact) <= 2.0));
            } else if (!subnormal) {
                REQUIRE(ulps(y[i], exact) <= 2.0);
            }
        }
    };
    check(ExpOf{});
    check(Expm1Of{});
    check(LogOf{});
    check(Log1pOf{});
    check(TanhOf{});
    check(ErfOf{});
}

TEST_CASE("at the ends of their ranges the functions have their limits, and they propagate a NaN") {
    CHECK(math::exp(-inf) == 0.0F);
    CHECK(math::exp(-104.1F) == 0.0F);
    CHECK(math::exp(0.0F) == 1.0F);
    CHECK(math::exp(-0.0F) == 1.0F);
    CHECK(math::exp(88.72F) < inf);
    CHECK(math::exp(88.73F) == inf);
    CHECK(math::exp(inf) == inf);
    CHECK(math::expm1(-inf) == -1.0F);
    CHECK(math::expm1(-1e-30F) == -1e-30F);
    CHECK(math::expm1(0.0F) == 0.0F);
    CHECK(math::expm1(88.72F) < inf);
    CHECK(math::expm1(88.73F) == inf);
    CHECK(math::expm1(inf) == inf);
    CHECK(math::log(0.0F) == -inf);
    CHECK(math::log(-0.0F) == -inf);
    CHECK(std::isnan(math::log(-1.0F)));
    CHECK(std::isnan(math::log(-inf)));
    CHECK(std::isnan(math::log(-std::numeric_limits<float>::denorm_min())));
    CHECK(math::log(1.0F) == 0.0F);
    CHECK(math::log(inf) == inf);
    CHECK(math::log(std::numeric_limits<float>::denorm_min()) == doctest::Approx(-149 * std::log(2.0)));
    CHECK(math::log1p(-1.0F) == -inf);
    CHECK(std::isnan(math::log1p(-1.5F)));
    CHECK(std::isnan(math::log1p(-inf)));
    CHECK(math::log1p(inf) == inf);
    CHECK(math::log1p(-0.0F) == 0.0F);
    CHECK(math::tanh(inf) == 1.0F);
    CHECK(math::tanh(-inf) == -1.0F);
    CHECK(std::signbit(math::tanh(-0.0F)));
    CHECK(math::erf(inf) == 1.0F);
    CHECK(math::erf(-inf) == -1.0F);
    CHECK(std::signbit(math::erf(-0.0F)));
    for (const float x : {not_a_number, -not_a_number, std::bit_cast<float>(0x7F80'0001U)}) {
        CHECK(std::isnan(math::exp(x)));
        CHECK(std::isnan(math::expm1(x)));
        CHECK(std::isnan(math::log(x)));
        CHECK(std::isnan(math::log1p(x)));
        CHECK(std::isnan(math::tanh(x)));
        CHECK(std::isnan(math::erf(x)));
    }
}

TEST_CASE("select works on bits: a NaN and the sign of either operand are kept") {
    CHECK(math::select(true, 1.0F, not_a_number) == 1.0F);
    CHECK(math::select(false, not_a_number, -2.0F) == -2.0F);
    CHECK(std::signbit(math::select(true, -0.0F, 0.0F)));
    CHECK(math::abs(-3.0F) == 3.0F);
    CHECK(math::abs(-inf) == inf);
    CHECK(std::isnan(math::abs(-not_a_number)));
    CHECK(math::with_sign(3.0F, -0.0F) == -3.0F);
    CHECK(math::with_sign(3.0F, 2.0F) == 3.0F);
}
