// SPDX-License-Identifier: Apache-2.0
#include <cupola/core/checked_product.hpp>

#include "../test.hpp"

#include "throws_with.hpp"

namespace {
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max(), half = std::int64_t{1} << 32;
}

static_assert(saturating_product(3, 4) == 12 && saturating_product(half, half) == most);
static_assert(saturating_product(half, half, 0) == 0 && saturating_product(half, half, 3, 5) == most);
static_assert(saturating_product(half, half / 4) == std::int64_t{1} << 62);
static_assert(saturating_sum(3, 4) == 7 && saturating_sum(most, 1) == most);

TEST_CASE("a number of bytes beyond any memory is an OutOfMemory with the true number") {
    CHECK(checked_bytes("a batch needs", {1000, 3, 4}) == 12'000);
    CHECK(checked_bytes("a batch needs", {half, half, 0}) == 0);
    CHECK(checked_bytes("a batch needs", {half, half / 16}) == std::size_t{1} << 60);
    CHECK(message_of<OutOfMemory>([] {
              static_cast<void>(checked_bytes("a batch of 3 samples needs", {half, half, 4}));
          }) == "a batch of 3 samples needs 73786976294.8 GB, more than any computer has");
    CHECK(message_of<OutOfMemory>([] {
              static_cast<void>(checked_bytes("a tensor needs", {half, half / 8, 1}));
          }) == "a tensor needs 2305843009.2 GB, more than any computer has");
}
