// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/core/split.hpp, cupola/net/pipeline/cuts.hpp
//
// Where networks may be cut, and the balance of their parts compared with all choices of cuts.
#include <cupola/net/pipeline/split.hpp>

#include "../../test.hpp"

#include <string>
#include <vector>

#include <cupola/layers.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/models/resnet.hpp>
#include <cupola/models/unet.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/net/inputs.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/tied.hpp>

using namespace cupola;

namespace {

struct SplitHalves : Split<ResNet<20>, 2> {};
struct SplitNamed : SplitAt<ResNet<20>, "layer2.0", "layer3.1.conv1"> {};

static_assert(part_count<ResNet<20>> == 1 && part_count<SplitHalves> == 2 && part_count<SplitNamed> == 3);
static_assert(CutNetwork<SplitNamed> && !CutNetwork<ResNet<20>>);
static_assert(SplitNamed::layers.data() == ResNet<20>::layers.data());
static_assert(SplitNamed::parameter_elements == ResNet<20>::parameter_elements);
static_assert(part_layers<ResNet<20>>(0) == LayerRange{0, ResNet<20>::layer_count});
static_assert(part_layers<SplitNamed>(2).end == ResNet<20>::layer_count);
/// Other wrappers keep the cuts.
struct SplitFrozen : Frozen<SplitNamed, "conv1.*"> {};
struct SplitNarrow : InPrecision<MixedBFloat16, SplitNamed> {};
static_assert(part_count<SplitFrozen> == 3 && part_count<SplitNarrow> == 3);
static_assert(part_layers<SplitFrozen>(1) == part_layers<SplitNamed>(1));

struct SplitPlain : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Sigmoid, Conv2d<8, 3>, MaxPool2d<2>, Conv2d<8, 3>, ReLU,
                               MaxPool2d<2>, Flatten, Linear<32>, ReLU, Linear<32>, Sigmoid, Linear<5>> {};
struct SplitLinear : Sequential<Input<64>, Linear<64>, Sigmoid, Linear<256>, Sigmoid, Linear<16>, Sigmoid, Linear<64>,
                                Sigmoid, Linear<64>, Sigmoid, Linear<10>> {};
struct SplitKept : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Sigmoid, Keep<"skip">, Conv2d<4, 3>, Sigmoid, Conv2d<4, 3>,
                              AddFrom<"skip">, Conv2d<4, 3>, Sigmoid, GlobalAvgPool2d, Linear<5>> {};
struct SplitTied : Sequential<Input<5>, Linear<5>, Sigmoid, Tied<"shared", Linear<5>>, Sigmoid, Linear<5>, Sigmoid,
                              Tied<"shared", Linear<5>>, Sigmoid, Linear<4>> {};
struct SplitColumns : Sequential<Input<6>, Linear<5>, Sigmoid, Keep<"a">, FromInput<"age", 3>, Linear<5>, AddFrom<"a">,
                                 Sigmoid, Linear<4>> {};
struct SplitOutputs : Sequential<Input<6>, Linear<5>, Sigmoid, Linear<5>, Output<"side">, Sigmoid, Linear<4>> {};

[[nodiscard]] std::vector<CutObstacle> obstacles(std::span<const LayerInfo> layers, bool fusion = true) {
    std::vector<CutObstacle> result;
    for (const CutPlace& place : find_cuts(layers, fusion)) result.push_back(place.obstacle);
    return result;
}

/// The smallest possible cost of the largest part, by trying all cuts.
[[nodiscard]] std::int64_t smallest_largest(const std::vector<std::int64_t>& segments, std::size_t parts) {
    constexpr std::int64_t impossible = std::numeric_limits<std::int64_t>::max();
    if (parts == 1) {
        std::int64_t sum = 0;
        for (const std::int64_t cost : segments) sum += cost;
        return sum;
    }
    std::int64_t best = impossible, sum = 0;
    for (std::size_t first = 1; first + parts - 1 <= segments.size(); ++first) {
        sum += segments[first - 1];
        best = std::min(best, std::max(sum, smallest_largest(
                                                {segments.begin() + static_cast<std::ptrdiff_t>(first), segments.end()},
                                                parts - 1)));
    }
    return best;
}

/// Compares the largest part of Split<Net, parts> with the best of all cuts.
template <class Net, std::size_t parts>
void check_balance() {
    CAPTURE(parts);
    std::vector<NodeInfo> nodes(Net::layers.size());
    nodes.resize(fuse(Net::layers, Net::fusion, nodes));
    const FixedArray<CutPlace> places = find_cuts(Net::layers, Net::fusion);
    std::vector<std::int64_t> segments;
    std::array<std::int64_t, parts> cost{};
    for (const NodeInfo& node : nodes) {
        if (segments.empty() || places[node.layer].obstacle == CutObstacle::none) segments.push_back(0);
        segments.back() += node_cost(Net::layers, node);
        for (std::size_t k = 0; k < parts; ++k) {
            const LayerRange range = part_layers<Split<Net, parts>>(k);
            if (range.begin <= node.layer && node.layer < range.end) cost[k] += node_cost(Net::layers, node);
        }
    }
    for (std::size_t k = 0; k < parts; ++k) {
        const LayerRange range = part_layers<Split<Net, parts>>(k);
        CHECK(range.begin < range.end);
        CHECK((k == 0 ? range.begin == 0 : places[range.begin].obstacle == CutObstacle::none));
    }
    CHECK(*std::ranges::max_element(cost) == smallest_largest(segments, parts));
}

}  // namespace

TEST_CASE("the largest part is as small as any choice of cuts makes it") {
    check_balance<ResNet<20>, 1>();
    check_balance<ResNet<20>, 2>();
    check_balance<ResNet<20>, 3>();
    check_balance<ResNet<20>, 4>();
    check_balance<ResNet<20>, 5>();
    check_balance<Cifar10Net, 2>();
    check_balance<SplitPlain, 2>();
    check_balance<SplitPlain, 4>();
    check_balance<SplitLinear, 2>();
    check_balance<SplitLinear, 3>();
    check_balance<SplitLinear, 5>();
    check_balance<Unfused<SplitLinear>, 10>();
    check_balance<SplitKept, 2>();
    check_balance<SplitTied, 3>();
}

TEST_CASE("the balance of many lists of costs is that of the best cuts") {
    std::uint32_t state = 1;
    for (int tried = 0; tried < 400; ++tried) {
        std::vector<std::int64_t> segments(1 + static_cast<std::size_t>(tried % 11)), before{0};
        for (std::int64_t& cost : segments) {
            state = state * 1664525U + 1013904223U;
            cost = 1 + static_cast<std::int64_t>((state >> 24) % (tried % 3 == 0 ? 3 : 100));
            before.push_back(before.back() + cost);
        }
        for (std::size_t parts = 1; parts <= segments.size() && parts <= 5; ++parts) {
            const std::int64_t best = smallest_largest(segments, parts);
            std::vector<std::size_t> begins(parts);
            CHECK(impl::fill_parts(before, best, begins));
            CHECK_FALSE(impl::fill_parts(before, best - 1, begins));
        }
    }
}

TEST_CASE("cuts lie between fused nodes only") {
    using enum CutObstacle;
    // The pooling applies the mask of the ReLU before it; the Linear behind one may sum its gradient.
    CHECK(obstacles(SplitPlain::layers) ==
          std::vector{beginning, none, none, none, none, fused, mask, view, none, fused, gradient_sum, none, none});
    CHECK(obstacles(SplitPlain::layers, false) ==
          std::vector{beginning, none, none, none, none, none, none, view, none, none, none, none, none});
}

TEST_CASE("cuts do not lie in blocks, or between values and parameters that belong together") {
    using enum CutObstacle;
    // Conv2d, Sigmoid, Keep, Conv2d, Sigmoid, Conv2d, AddFrom, Conv2d, Sigmoid, GlobalAvgPool2d, Linear
    CHECK(obstacles(SplitKept::layers) ==
          std::vector{beginning, none, none, fork, value, value, value, none, none, none, none});
    CHECK(obstacles(SplitTied::layers) == std::vector{beginning, none, none, tied, tied, tied, tied, none, none});
    // A part behind the column would have to read the batch.
    CHECK(obstacles(SplitColumns::layers).at(1) == column);
    CHECK(obstacles(SplitColumns::layers).back() == none);
    CHECK(obstacles(SplitOutputs::layers) == std::vector{beginning, none, none, none, output, output});
    // In a U-Net nearly every cut would cross a skip connection.
    CHECK(std::ranges::count(obstacles(UNet<64, 64, 1, 4>::layers), none) < 8);
}

TEST_CASE("the names of SplitAt are those of layers and of blocks") {
    const auto begin_of = [](std::size_t k) { return part_layers<SplitNamed>(k).begin; };
    const std::span<const LayerInfo> layers = SplitNamed::layers;
    CHECK(begin_of(0) == 0);
    CHECK(layers[begin_of(1)].kind == LayerKind::fork);
    CHECK(layers[begin_of(1) - 2].name == "layer1.2");
    CHECK(layers[begin_of(2)].kind == LayerKind::fork);
    CHECK(layers[begin_of(2) - 2].name == "layer3.0");
}
