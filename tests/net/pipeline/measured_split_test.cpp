// SPDX-License-Identifier: Apache-2.0
#include <cupola/net/pipeline/measured_split.hpp>

#include "../../test.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <cupola/layers.hpp>
#include <cupola/models/resnet.hpp>
#include <cupola/net/sequential.hpp>

#include "../../throws_with.hpp"

using namespace cupola;

namespace {

struct Small : Sequential<Input<6>, Named<"a", Linear<5>>, Sigmoid, Named<"b", Linear<5>>, Sigmoid, Linear<5>, Sigmoid,
                          Named<"c", Linear<4>>> {};

/// The first nodes of all segments that SplitAt can begin a part with, and the end.
std::vector<std::size_t> segments_of(std::span<const LayerInfo> layers) {
    std::vector<NodeInfo> nodes(layers.size());
    nodes.resize(fuse(layers, true, nodes));
    const FixedArray<CutPlace> places = find_cuts(layers, true);
    std::vector<std::size_t> all{0};
    for (std::size_t i = 1; i < nodes.size(); ++i) {
        if (places[nodes[i].layer].obstacle == CutObstacle::none && !impl::cut_name(layers, nodes[i].layer).empty())
            all.push_back(i);
    }
    all.push_back(nodes.size());
    return all;
}

/// The time of the longest part, by trying all cuts of the segments from `first` on.
double shortest_longest(std::span<const std::size_t> segments, std::span<const double> seconds, std::size_t parts) {
    const auto sum = [&](std::size_t begin, std::size_t end) {
        double all = 0;
        for (std::size_t i = begin; i < end; ++i) all += seconds[i];
        return all;
    };
    if (parts == 1) return sum(segments.front(), segments.back());
    double best = std::numeric_limits<double>::max();
    for (std::size_t i = 1; i + parts - 1 < segments.size(); ++i) {
        best = std::min(best, std::max(sum(segments.front(), segments[i]),
                                       shortest_longest(segments.subspan(i), seconds, parts - 1)));
    }
    return best;
}

}  // namespace

TEST_CASE("no other cuts make the longest part shorter") {
    constexpr std::span<const LayerInfo> layers = ResNet<20>::layers;
    const std::vector<std::size_t> segments = segments_of(layers);
    REQUIRE(segments.size() == 12);  // the first layers, nine blocks, the last layers
    std::uint32_t state = 7;
    for (int tried = 0; tried < 30; ++tried) {
        std::vector<double> seconds(segments.back());
        for (double& each : seconds) {
            state = state * 1664525U + 1013904223U;
            each = 1e-6 * static_cast<double>((state >> 16) % (tried % 3 == 0 ? 4 : 1000));
        }
        for (std::size_t parts = 1; parts <= 4; ++parts) {
            const MeasuredSplit split = measured_split(layers, true, seconds, parts);
            REQUIRE(split.seconds.size() == parts);
            CHECK(split.names.size() == parts - 1);
            CHECK(*std::ranges::max_element(split.seconds) ==
                  doctest::Approx(shortest_longest(segments, seconds, parts)).epsilon(1e-3));
        }
    }
}

TEST_CASE("the names are those of SplitAt, which cuts where the times say") {
    constexpr std::span<const LayerInfo> layers = ResNet<20>::layers;
    const std::vector<std::size_t> segments = segments_of(layers);
    std::vector<double> seconds(segments.back());
    // All of the time is in the fourth and in the eighth segment: layer2.0 and layer3.1.
    seconds[segments[4]] = 3;
    seconds[segments[8]] = 1;
    const MeasuredSplit split = measured_split(layers, true, seconds, 2);
    CHECK(split.seconds == std::vector<double>{3, 1});
    CHECK(split.largest_over_mean() == 1.5);
    CHECK(to_string(split) ==
          "SplitAt<Net, \"" + split.names[0] + "\"> is the best of 2 parts: the longest has 1.50 of the mean time");
    const std::size_t begin = impl::first_layer_of(layers, split.names[0]);
    CHECK(find_cuts(layers, true)[begin].obstacle == CutObstacle::none);
    CHECK(impl::cut_name(layers, part_layers<SplitAt<ResNet<20>, "layer2.0">>(1).begin) == "layer2");
    CHECK(impl::cut_name(layers, part_layers<SplitAt<ResNet<20>, "layer2.1">>(1).begin) == "layer2.1");
}

TEST_CASE("a place without a name is no place, and too many parts are none") {
    // Sigmoids begin parts of Split, and SplitAt cannot name them, nor the Linear without a name.
    const std::vector<double> seconds{1, 1, 1, 1, 1, 1, 1};
    CHECK(measured_split(Small::layers, true, seconds, 3).names == std::vector<std::string>{"b", "c"});
    CHECK(measured_split(Small::layers, true, seconds, 4).seconds.empty());
    CHECK(impl::cut_name(Small::layers, 4).empty());
}
TEST_CASE("times that are too few, negative, not finite or too long are errors") {
    const auto message = [](std::vector<double> seconds) {
        return message_of<InvalidArgument>([&] { static_cast<void>(measured_split(Small::layers, true, seconds, 2)); });
    };
    CHECK(message({1}) == "measured_split needs the times of the 7 operations of the network, not 1 time");
    CHECK(message({1, 1, 1, 1, 1, 1, 1, 1}) ==
          "measured_split needs the times of the 7 operations of the network, not 8 times");
    CHECK(message({1, 1, -0.5, 1, 1, 1, 1}) == "the seconds of operation 2 must be at least 0, not -0.5");
    CHECK(message({1, 1, 1, 1, 1, 1, impl::not_a_number<double>()}) ==
          "the seconds of operation 6 must be at least 0, not nan");
    CHECK(message({std::numeric_limits<double>::infinity(), 1, 1, 1, 1, 1, 1}) ==
          "the seconds of operation 0 must be at least 0, not inf");
    CHECK(message({8e9, 1, 1, 1, 8e9, 1, 1}) ==
          "the seconds of all operations must be at most 9e+09 together, not 1.6e+10");
    CHECK(measured_split(Small::layers, true, std::vector<double>{9e9, 0, 0, 0, 0, 0, 0}, 2).seconds ==
          std::vector<double>{9e9, 0});
}
