// SPDX-License-Identifier: Apache-2.0
//
// Conversions of element types: those of BFloat16 itself, element for element, and nothing beside them.
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>
#include <cupola/ops/onednn/convert.hpp>

#include "../devices.hpp"
#include "../reference/compare.hpp"

using namespace cupola;

TEST_CASE("floats are rounded to BFloat16 and come back, in blocks of any length and by any number of threads") {
    for (const int threads : {1, 2}) {
        HostContext context(0, {.threads = threads});
        for (const std::int64_t count : {0, 1, 31, 4096, 4097, 30'001}) {
            const std::uint64_t seed = reference::fresh_seed();
            INFO(count, " elements, ", threads, " threads, seed ", seed);
            const auto size = static_cast<std::size_t>(count);
            reference::Floats from = reference::Random(seed).normal(count), back(size + 1, 7.0F);
            // What loops of vector instructions may get wrong: not numbers, infinities, and what lies between two.
            const std::vector<float> special{std::numeric_limits<float>::quiet_NaN(),   -std::numeric_limits<float>::infinity(),
                                             std::bit_cast<float>(0x3F80'8000U), std::bit_cast<float>(0x3F81'8000U),
                                             std::bit_cast<float>(0x7F80'0001U), std::bit_cast<float>(0x7F7F'FFFFU),
                                             std::bit_cast<float>(0x0000'8001U), -0.0F};
            for (std::size_t i = 0; i < size && i < special.size(); ++i) from[i] = special[i];
            std::vector<BFloat16> to(size + 1, BFloat16(7.0F));
            ops::Convert<Host>::run(context, from.data(), to.data(), count);
            ops::Convert<Host>::run(context, to.data(), back.data(), count);
            for (std::size_t i = 0; i < size; ++i) {
                REQUIRE(to[i].bits == BFloat16(from[i]).bits);
                REQUIRE(std::bit_cast<std::uint32_t>(back[i]) == static_cast<std::uint32_t>(to[i].bits) << 16);
            }
            CHECK(to[size].bits == BFloat16(7.0F).bits);
            CHECK(back[size] == 7.0F);
        }
    }
}
