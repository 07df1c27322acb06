// SPDX-License-Identifier: Apache-2.0
//
// The segments for an optimiser: the offset of each parameter, and the part of the regularisers in its gradient.
#include <cupola/optim/segments_of.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/layers/scale_channels.hpp>

TEST_CASE("a parameter that several regularisers name has the sum of their coefficients") {
    struct Net : Sequential<Input<4>, Named<"first", Linear<3>>, Named<"second", Linear<2>>> {};
    using Loss = LossCollection<CrossEntropy<2>, WeightDecayAll<0.25>, WeightDecay<0.5, "second">>;
    const FixedArray<Segment> segments = impl::segments_of(Net::layers, Loss::regularized(Net::layers));
    REQUIRE(segments.size() == 4);
    CHECK(segments[0].l2 == 0.25);
    CHECK(segments[1].l2 == 0.25);
    CHECK(segments[2].l2 == 0.75);  // the weight; its bias is not named
    CHECK(segments[3].l2 == 0.25);
    std::int64_t end = 0;
    for (const Segment& segment : segments) {
        CHECK(segment.offset >= end);
        end = segment.offset + segment.size;
    }
    CHECK(segments[2].size == 6);
    CHECK(segments[2].rank == 2);
    CHECK(segments[3].rank == 1);
}

TEST_CASE("a factor per channel of an image is a vector, whose update has no trust ratio") {
    struct Net : Sequential<Input<4, 4, 3>, Conv2d<1, 1, no_bias>, ScaleChannels<>, Conv2d<5, 1, no_bias>> {};
    const FixedArray<Segment> segments = impl::segments_of(Net::layers, {});
    REQUIRE(segments.size() == 3);
    CHECK(segments[0].rank == 4);
    CHECK(segments[1].rank == 1);
    CHECK(segments[2].rank == 4);
}
