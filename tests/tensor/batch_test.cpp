// SPDX-License-Identifier: Apache-2.0
//
// A batch is a view that owns nothing and is empty until it is given memory.
#include <type_traits>

#include <doctest/doctest.h>
#include <cupola/tensor/batch.hpp>

static_assert(std::is_trivially_copyable_v<cupola::BatchView>);

TEST_CASE("a batch without memory has no samples") {
    const cupola::BatchView batch;
    CHECK(batch.samples == nullptr);
    CHECK(batch.labels == nullptr);
    CHECK(batch.size == 0);
}
