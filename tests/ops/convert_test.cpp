// SPDX-License-Identifier: Apache-2.0
//
// Conversions of element types: those of BFloat16 itself, element for element, and nothing beside them.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>
#include <cupola/ops/convert.hpp>

#include "../devices.hpp"
#include "../reference/compare.hpp"
#include "operation_run.hpp"

using namespace cupola;

TEST_CASE_TEMPLATE_DEFINE("floats are rounded to BFloat16 and come back, in blocks of any length and by any number of threads", D,
                          convert_rounds) {
    for (const int threads : thread_counts<D>()) {
        typename D::Context context(0, device_options<D>(threads));
        for (const std::int64_t count : {0, 1, 31, 4096, 4097, 30'001}) {
            const std::uint64_t seed = reference::fresh_seed();
            INFO(count, " elements, ", threads, " threads, seed ", seed);
            const auto size = static_cast<std::size_t>(count);
            reference::Floats from = reference::Random(seed).normal(count);
            // What loops of vector instructions may get wrong: not numbers, infinities, and what lies between two.
            const std::vector<float> special{std::numeric_limits<float>::quiet_NaN(),   -std::numeric_limits<float>::infinity(),
                                             std::bit_cast<float>(0x3F80'8000U), std::bit_cast<float>(0x3F81'8000U),
                                             std::bit_cast<float>(0x7F80'0001U), std::bit_cast<float>(0x7F7F'FFFFU),
                                             std::bit_cast<float>(0x0000'8001U), -0.0F};
            for (std::size_t i = 0; i < size && i < special.size(); ++i) from[i] = special[i];
            operation_run::Guarded<D> source(context, from), narrow(context, size * sizeof(BFloat16)), wide(context, size * sizeof(float));
            ops::Convert<D>::run(context, source.data(), narrow.template data<BFloat16>(), count);
            ops::Convert<D>::run(context, narrow.template data<BFloat16>(), wide.data(), count);
            const reference::Floats to = narrow.template read<BFloat16>(), back = wide.read();
            for (std::size_t i = 0; i < size; ++i) {
                if (std::isnan(from[i])) {
                    REQUIRE(std::isnan(to[i]));
                    REQUIRE(std::isnan(back[i]));
                    continue;
                }
                REQUIRE(std::bit_cast<std::uint32_t>(to[i]) == static_cast<std::uint32_t>(BFloat16(from[i]).bits) << 16);
                REQUIRE(std::bit_cast<std::uint32_t>(back[i]) == std::bit_cast<std::uint32_t>(to[i]));
            }
            CHECK(narrow.guards_intact());
            CHECK(wide.guards_intact());
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(convert_rounds, Devices);
