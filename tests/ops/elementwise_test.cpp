// SPDX-License-Identifier: Apache-2.0
//
// A device's loop over elements: each element once, in place or not, whatever the count, the alignment and the threads,
// and what formulas are given.
#include "../test.hpp"

#include <cupola/ops/elementwise.hpp>

#include "../devices.hpp"
#include "../reference/compare.hpp"
#include "operation_run.hpp"

using namespace operation_run;

namespace {

/// The pattern of an optimiser: two values change, one is read.
struct Momentum {
    float rate;

    CUPOLA_HOST_DEVICE void operator()(float& w, float& v, float g) const {
        v = 0.5F * v + g;
        w -= rate * v;
    }
};

/// Selects, and so takes elements.
struct LargerBits {
    template <class T>
    CUPOLA_HOST_DEVICE void operator()(T& to, const T& a, const T& b) const {
        to = value_if(is_positive(a), a);
        if (is_negative(a)) to = b;
    }
};

struct Sum {
    CUPOLA_HOST_DEVICE void operator()(float& to, float a, float b) const { to = a + b; }
};

constexpr std::int64_t counts[] = {0, 1, 3, 8, 31, 4095, 4096, 4097, 30'001};

template <class D>
Floats normal(std::int64_t count, std::uint64_t seed) {
    return rounded<D>(reference::Random(seed).normal(count));
}

static_assert(!impl::takes_elements<Sum, BFloat16, const BFloat16, const BFloat16>);
static_assert(impl::takes_elements<Sum, float, const BFloat16, const BFloat16>);
static_assert(impl::takes_elements<LargerBits, BFloat16, const BFloat16, const BFloat16>);
static_assert(!std::is_invocable_v<Momentum, const float&, float&, float&>);

struct Nowhere {
    using Context = int;
};
static_assert(!ComputesElements<Nowhere, float>);

}  // namespace

TYPED_TEST_CASE("a formula is computed once per element, and nothing else is written", D, DevicesAndElements) {
    using T = ElementOf<D>;
    static_assert(ComputesElements<DeviceOf<D>, T>);
    for (const std::int64_t count : counts) {
        for (const int threads : thread_counts<D>()) {
            // With arrays that are aligned to 16 bytes, and with others.
            for (const std::size_t skipped : {std::size_t{0}, std::size_t{1}}) {
                const std::uint64_t seed = reference::fresh_seed();
                INFO(count, " elements, ", threads, " threads, ", skipped, " skipped, seed ", seed);
                typename DeviceOf<D>::Context context(0, device_options<DeviceOf<D>>(threads));
                [[maybe_unused]] const auto team = context.team();
                const auto size = static_cast<std::size_t>(count);
                const Floats a = normal<D>(count + 1, seed), b = normal<D>(count + 1, seed + 1);
                Guarded<DeviceOf<D>> on_a(context, a.size() * sizeof(T)), on_b(context, b.size() * sizeof(T)),
                    to(context, (size + skipped) * sizeof(T));
                on_a.template write<T>(a);
                on_b.template write<T>(b);
                const T* const first = on_a.template data<T>() + skipped;
                const T* const second = on_b.template data<T>();
                for_each_element(context, count, Sum{}, to.template data<T>() + skipped, first, second);
                Floats result = to.template read<T>();
                for (std::size_t i = 0; i < size; ++i)
                    REQUIRE(result[i + skipped] == static_cast<float>(T(a[i + skipped] + b[i])));
                if (skipped > 0) CHECK(std::isnan(result[0]));
                for_each_element(context, count, LargerBits{}, to.template data<T>() + skipped, first, second);
                result = to.template read<T>();
                for (std::size_t i = 0; i < size; ++i)
                    REQUIRE(result[i + skipped] == (a[i + skipped] < 0 ? b[i] : a[i + skipped]));
                CHECK(to.guards_intact());
                CHECK(reference::same_bits(on_a.template read<T>(), a));
                CHECK(reference::same_bits(on_b.template read<T>(), b));
            }
        }
    }
}

TYPED_TEST_CASE("a formula can update several values in place, and read one array at two offsets", D,
                DevicesAndElements) {
    using Device = DeviceOf<D>;
    using T = ElementOf<D>;
    for (const std::int64_t count : counts) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(count, " elements, seed ", seed);
        typename Device::Context context(0, device_options<Device>(2));
        [[maybe_unused]] const auto team = context.team();
        const Floats w = normal<D>(count, seed), v = normal<D>(count, seed + 1), g = normal<D>(count, seed + 2);
        const auto bytes = w.size() * sizeof(T);
        Guarded<Device> on_w(context, bytes), on_v(context, bytes), on_g(context, bytes);
        on_w.template write<T>(w), on_v.template write<T>(v), on_g.template write<T>(g);
        for_each_element(context, count, Momentum{0.25F}, on_w.template data<T>(), on_v.template data<T>(),
                         static_cast<const T*>(on_g.template data<T>()));
        const Floats new_w = on_w.template read<T>(), new_v = on_v.template read<T>();
        for (std::size_t i = 0; i < w.size(); ++i) {
            const float velocity = 0.5F * v[i] + g[i];
            REQUIRE(new_v[i] == static_cast<float>(T(velocity)));
            REQUIRE(static_cast<double>(new_w[i]) ==
                    doctest::Approx(static_cast<double>(w[i] - 0.25F * velocity)).epsilon(operation_run::tolerance<D>));
        }
        const T* const again = on_v.template data<T>();
        for_each_element(context, count, Sum{}, on_v.template data<T>(), again, again);
        const Floats doubled = on_v.template read<T>();
        for (std::size_t i = 0; i < w.size(); ++i) REQUIRE(doubled[i] == 2.0F * new_v[i]);
        for_each_element(context, count, impl::WithCopy<Sum>{}, on_w.template data<T>(), on_g.template data<T>(), again,
                         again);
        CHECK(reference::same_bits(on_w.template read<T>(), on_g.template read<T>()));
        CHECK(on_w.guards_intact());
        CHECK(on_v.guards_intact());
        CHECK(on_g.guards_intact());
    }
}

TEST_CASE_TEMPLATE("is_positive is correct for each 16-bit pattern, and false for a NaN", T, BFloat16, Float16) {
    for (std::uint32_t bits = 0; bits < 0x1'0000U; ++bits) {
        T x;
        x.bits = static_cast<std::uint16_t>(bits);
        REQUIRE(is_positive(x) == (static_cast<float>(x) > 0));
        REQUIRE(is_negative(x) == (static_cast<float>(x) < 0));
        REQUIRE(value_if(true, x).bits == x.bits);
        REQUIRE(value_if(false, x).bits == 0);
    }
}

TEST_CASE("signs and selection of floats") {
    constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(is_positive(inf));
    CHECK(is_positive(std::numeric_limits<float>::denorm_min()));
    CHECK(!is_positive(0.0F));
    CHECK(!is_positive(nan));
    CHECK(is_negative(-inf));
    CHECK(!is_negative(-0.0F));
    CHECK(!is_negative(nan));
    CHECK(value_if(true, 3.0F) == 3.0F);
    CHECK(value_if(false, nan) == 0.0F);
}
