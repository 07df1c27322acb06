// SPDX-License-Identifier: Apache-2.0
#include <cupola/net/prediction/join.hpp>

#include "../../test.hpp"

#include <cupola/layers.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/residual.hpp>

#include "../../instructions.hpp"
#include "../../reference/compare.hpp"
#include "prediction_run.hpp"

using prediction_run::Floats;
using prediction_run::nodes_of;
using prediction_run::outputs;
using prediction_run::random;

namespace {

// clang-format off
/// The blocks of ResNet-34 and ResNet-50.
struct Blocks : Sequential<Input<8, 7, 16>, Conv2d<16, 3>, ReLU,
    Residual<Identity, Conv2d<16, 3, no_bias>, BatchNorm2d<>, ReLU, Conv2d<16, 3, no_bias>, BatchNorm2d<>>, ReLU,
    Residual<Projection<Conv2d<32, 1, stride(2), no_bias>, BatchNorm2d<>>,
        Conv2d<16, 1>, ReLU, Conv2d<16, 3, stride(2)>, ReLU, Conv2d<32, 1, no_bias>, BatchNorm2d<>>, ReLU,
    Residual<Identity, Conv2d<32, 3, groups(4)>, ReLU6, Conv2d<32, 3, depthwise>>, GELU<>,
    GlobalAvgPool2d, Residual<Identity, Linear<24>, Tanh, Linear<32>>, ReLU6, Linear<5>> {};

/// The shortcut is the batch.
struct OfTheBatch : Sequential<Input<6, 6, 16>, Residual<Identity, Conv2d<16, 3>, ReLU, Conv2d<16, 3>>, ReLU> {};
/// The convolution reads the shortcut.
struct OneLayer : Sequential<Input<6, 6, 16>, Conv2d<16, 1>, Residual<Identity, Conv2d<16, 3>>, ReLU> {};
/// The first sum's shortcut is read again, that of the second one is not; the sum itself has a name.
struct ReadAgain : Sequential<Input<6, 6, 16>, Conv2d<16, 1>, Keep<"a">, Conv2d<16, 3>, ReLU, Conv2d<16, 3>,
    AddFrom<"a">, Keep<"sum">, Conv2d<16, 1>, Tanh, Conv2d<16, 3>, AddFrom<"a">, Conv2d<16, 3>, ReLU,
    Conv2d<16, 1>, AddFrom<"sum">> {};
struct ReadByCaller : Sequential<Input<6, 6, 16>, Conv2d<16, 1>, Output<"a">, Conv2d<16, 3>, ReLU, Conv2d<16, 3>,
    AddFrom<"a">, ReLU, Output<"sum">, Conv2d<8, 1>> {};
/// What is added is the ReLU of a convolution; and the value before a sum has a name.
struct OtherOrder : Sequential<Input<6, 6, 16>, Conv2d<16, 1>, Keep<"a">, Conv2d<16, 3>, Tanh, Conv2d<16, 3>, ReLU,
    AddFrom<"a">, Keep<"b">, Conv2d<16, 1>, Keep<"c">, AddFrom<"b">, MultiplyBy<"c">> {};
/// Three branches, whose sums follow each other.
struct Three : Sequential<Input<6, 6, 16>, Conv2d<16, 1>,
    cupola::Add<Branch<Conv2d<16, 3>, ReLU>, Branch<Conv2d<16, 1>>, Branch<Conv2d<16, 3>>>, ReLU, Conv2d<4, 1>> {};
/// A layer that makes its operation itself.
struct OwnConvolution : Conv2d<16, 3> {
    template <class BuildContext>
        requires std::same_as<typename BuildContext::DeviceType, Host>
    static ops::Convolution<Host, typename BuildContext::Element> operation(const BuildContext& build) {
        return {{.context = build.context, .batch = build.batch, .input = build.input, .output = build.output,
                 .training = false}, shape(build.input)};
    }
};
struct OfOwnLayer : Sequential<Input<6, 6, 16>, Conv2d<16, 1>, Residual<Identity, Conv2d<16, 3>, OwnConvolution>> {};
// clang-format on

template <class N>
std::size_t joined_sums() {
    return static_cast<std::size_t>(
        std::ranges::count_if(nodes_of<N>(true), [](const NodeInfo& node) { return node.adds_to_second_input; }));
}

template <class N>
void compare(double tolerance, const HostOptions& options) {
    const Floats parameters = random(N::parameter_elements, 1, 0.2);
    for (const std::int64_t samples : {1, 3}) {
        const Floats batch = random(samples * N::input_shape.size(), 4, 1.0);
        CHECK(reference::distance(outputs<N>(batch, parameters, true, options),
                                  outputs<Unfused<N>>(batch, parameters, false, options)) < tolerance);
    }
}

template <class N>
void compare_all() {
    compare<N>(2e-6, {.threads = 2});
    compare<N>(1e-5, {.threads = 1, .convolution = &prediction_run::tiled});
    compare<N>(1e-5, {.threads = 2, .convolution = &prediction_run::tiled_apart});
}

}  // namespace

TEST_CASE("a sum is joined to the convolution or the product before it if nothing else needs the other summand") {
    CHECK(joined_sums<Blocks>() == 4);
    CHECK(joined_sums<OfTheBatch>() == 0);
    CHECK(joined_sums<OneLayer>() == 0);
    CHECK(joined_sums<ReadAgain>() == 2);
    CHECK(joined_sums<ReadByCaller>() == 0);
    CHECK(joined_sums<OtherOrder>() == 0);
    CHECK(joined_sums<OfOwnLayer>() == 0);
    CHECK(joined_sums<Three>() == 0);  // its sums follow the last of the branches
    CHECK(nodes_of<Blocks>(false).size() > nodes_of<Blocks>(true).size());
}

TEST_CASE("a node has the layers that are joined to it") {
    const std::vector<NodeInfo> nodes = nodes_of<Blocks>(true);
    const auto last = std::ranges::find_if(nodes, [](const NodeInfo& node) { return node.adds_to_second_input; });
    REQUIRE(last != nodes.end());
    CHECK(last->layers == 4);  // Conv2d, BatchNorm2d, Add, ReLU
    CHECK(last->activation == Activation::relu);
    CHECK(Blocks::layers[last->layer + 2].kind == LayerKind::sum);
    std::size_t layer = 0;
    for (const NodeInfo& node : nodes) {
        CHECK(node.layer == layer);
        layer += node.layers;
    }
    CHECK(layer == Blocks::layer_count);
}

TEST_CASE("networks with joined sums compute what they compute without") {
    SUBCASE("blocks") { compare_all<Blocks>(); }
    SUBCASE("of the batch") { compare_all<OfTheBatch>(); }
    SUBCASE("of one layer") { compare_all<OneLayer>(); }
    SUBCASE("read again") { compare_all<ReadAgain>(); }
    SUBCASE("read by the caller") { compare_all<ReadByCaller>(); }
    SUBCASE("in another order") { compare_all<OtherOrder>(); }
    SUBCASE("of three branches") { compare_all<Three>(); }
}

TEST_CASE("nothing is joined with an algorithm of the user's that cannot compute what is joined") {
    CHECK((join_of<Blocks, Host>({}) != nullptr));
    CHECK((join_of<Blocks, Host>({.convolution = &prediction_run::tiled}) != nullptr));
    CHECK((join_of<Blocks, Host>({.convolution = &winograd}) != nullptr));
    CHECK((join_of<Blocks, Host>({.convolution = &prediction_run::tiled_apart}) == nullptr));
}

TEST_CASE("a joined sum needs no memory of its own") {
    const auto bytes = [](bool joined) {
        std::vector<NodeInfo> nodes = nodes_of<Blocks>(joined);
        std::vector<Lifetime> lifetimes(lifetimes_of(nodes.size()));
        return plan_activations(nodes, 8, false, false, lifetimes);
    };
    CHECK(bytes(true) <= bytes(false));
}

TEST_CASE("joined sums in bfloat16 round less often") {
    if (!computes_bfloat16()) return;
    struct Rounded : InPrecision<MixedBFloat16, Blocks> {};
    const Floats parameters = random(Blocks::parameter_elements, 1, 0.2),
                 batch = random(3 * Blocks::input_shape.size(), 4, 1.0);
    const Floats exact = outputs<Unfused<Blocks>>(batch, parameters, false);
    for (const ConvolutionAlgorithm* const algorithm :
         {static_cast<const ConvolutionAlgorithm*>(nullptr), &prediction_run::tiled}) {
        const HostOptions options{.threads = 2, .convolution = algorithm};
        CHECK(reference::distance(outputs<Rounded>(batch, parameters, true, options), exact) <
              1.2 * reference::distance(outputs<Unfused<Rounded>>(batch, parameters, false, options), exact));
    }
}

TEST_CASE("a NaN and an infinity pass through a joined sum as through one apart") {
    struct Plain : Sequential<Input<4, 4, 16>, Conv2d<16, 1>, Residual<Identity, Conv2d<16, 1>, Conv2d<16, 1>>> {};
    const Floats parameters = random(Plain::parameter_elements, 1, 0.2);
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        Floats batch = random(Plain::input_shape.size(), 4, 1.0);
        batch[37] = value;
        const Floats joined = outputs<Plain>(batch, parameters, true),
                     apart = outputs<Unfused<Plain>>(batch, parameters, false);
        for (std::size_t i = 0; i < joined.size(); ++i) CHECK(std::isfinite(joined[i]) == std::isfinite(apart[i]));
        CHECK(std::ranges::any_of(joined, [](float y) { return !std::isfinite(y); }));
    }
}
