// SPDX-License-Identifier: Apache-2.0
//
// A batch is a view that owns nothing, is empty without memory, and has its samples' extents.
#include <cstdint>
#include <type_traits>

#include <doctest/doctest.h>
#include <cupola/tensor/batch.hpp>

using cupola::BatchView;
using cupola::Shape;

static_assert(std::is_trivially_copyable_v<BatchView>);
static_assert(!std::is_constructible_v<BatchView, const float*, const std::int32_t*>);

TEST_CASE("a batch without memory has no samples") {
    const BatchView batch;
    CHECK(batch.samples == nullptr);
    CHECK(batch.labels == nullptr);
    CHECK(batch.size == 0);
    CHECK(batch.sample_shape == Shape{});
}

TEST_CASE("a batch has the extents that it was made with") {
    const float samples[12]{};
    const std::int32_t labels[2]{};
    const BatchView batch{samples, labels, 2, Shape{2, 3, 1}};
    CHECK(batch.samples == samples);
    CHECK(batch.labels == labels);
    CHECK(batch.size == 2);
    CHECK(batch.sample_shape == Shape{2, 3, 1});
}
