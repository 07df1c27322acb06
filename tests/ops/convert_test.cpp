// SPDX-License-Identifier: Apache-2.0
//
// Conversions of element types: those of BFloat16 and Float16 themselves, element for element, and nothing beside them.
#include "../test.hpp"

#include <cupola/ops/convert.hpp>

#include "../devices.hpp"
#include "../reference/compare.hpp"
#include "operation_run.hpp"

namespace {

template <class D, class T>
void rounds_and_comes_back() {
    CAPTURE(to_string(element_type_of<T>));
    for (const int threads : thread_counts<D>()) {
        typename D::Context context(0, device_options<D>(threads));
        for (const std::int64_t count : {0, 1, 31, 4096, 4097, 30'001}) {
            const std::uint64_t seed = reference::fresh_seed();
            INFO(count, " elements, ", threads, " threads, seed ", seed);
            const auto size = static_cast<std::size_t>(count);
            reference::Floats from = reference::Random(seed).normal(count);
            // Values that vector loops may convert wrongly: NaN, infinities, and values halfway between two others.
            const std::vector<float> special{std::numeric_limits<float>::quiet_NaN(),
                                             -std::numeric_limits<float>::infinity(),
                                             std::bit_cast<float>(0x3F80'8000U),
                                             std::bit_cast<float>(0x3F81'8000U),
                                             std::bit_cast<float>(0x7F80'0001U),
                                             std::bit_cast<float>(0x7F7F'FFFFU),
                                             std::bit_cast<float>(0x0000'8001U),
                                             -0.0F,
                                             65519.9F,
                                             65520.0F,
                                             0x1.FFCp-15F,
                                             0x1.8p-24F,
                                             -0x1p-25F,
                                             0x1.002p-3F};
            for (std::size_t i = 0; i < size && i < special.size(); ++i) from[i] = special[i];
            operation_run::Guarded<D> source(context, from), narrow(context, size * sizeof(T)),
                wide(context, size * sizeof(float));
            ops::Convert<D>::run(context, source.data(), narrow.template data<T>(), count);
            ops::Convert<D>::run(context, narrow.template data<T>(), wide.data(), count);
            const reference::Floats to = narrow.template read<T>(), back = wide.read();
            for (std::size_t i = 0; i < size; ++i) {
                if (std::isnan(from[i])) {
                    REQUIRE(std::isnan(to[i]));
                    REQUIRE(std::isnan(back[i]));
                    continue;
                }
                REQUIRE(std::bit_cast<std::uint32_t>(to[i]) ==
                        std::bit_cast<std::uint32_t>(static_cast<float>(T(from[i]))));
                REQUIRE(std::bit_cast<std::uint32_t>(back[i]) == std::bit_cast<std::uint32_t>(to[i]));
            }
            CHECK(narrow.guards_intact());
            CHECK(wide.guards_intact());
        }
    }
}

}  // namespace

TYPED_TEST_CASE("floats are converted to narrower types and back, in blocks of any length and by any number of threads",
                D, Devices) {
    [&]<class... T>(std::tuple<T...>) { (rounds_and_comes_back<D, T>(), ...); }(NarrowElements{});
}
