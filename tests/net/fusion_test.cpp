// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/net/node_info.hpp
#include <cupola/net/fusion.hpp>

#include "../test.hpp"

#include <cupola/layers/relu6.hpp>
#include <cupola/net/plan.hpp>

#include "../instructions.hpp"
#include "tutorial.hpp"

namespace {

/// The row of the table for two kinds.
constexpr std::size_t row_of(LayerKind first, LayerKind second) {
    for (std::size_t i = 0; i < fusion_patterns.size(); ++i) {
        if (fusion_patterns[i].kinds.match(first, second)) return i;
    }
    return no_pattern;
}
constexpr std::size_t pool_then_lrn = row_of(LayerKind::pooling, LayerKind::local_response_norm),
                      lrn_then_pool = row_of(LayerKind::local_response_norm, LayerKind::pooling);
static_assert(pool_then_lrn != lrn_then_pool && fusion_patterns[pool_then_lrn].one_operation &&
              fusion_patterns[lrn_then_pool].one_operation);
static_assert(row_of(LayerKind::pooling, LayerKind::pooling) == no_pattern);
static_assert(row_of(LayerKind::plain, LayerKind::activation) == row_of(LayerKind::sum, LayerKind::activation),
              "whatever the first layer is");

}  // namespace

TEST_CASE("Conv2d or Linear with its ReLU, and Conv2d or BatchNorm2d with its ReLU6, become one node; others do not") {
    std::array<NodeInfo, tutorial::Net::layer_count> nodes{};
    CHECK(fuse(tutorial::Net::layers, true, nodes) == 8);
    CHECK(nodes[0].layers == 2);
    CHECK(nodes[0].activation == Activation::relu);
    CHECK(nodes[1].layer == 2);
    CHECK(fuse(tutorial::Net::layers, false, nodes) == 14);
    CHECK(nodes[0].activation == Activation::none);

    struct Alone : Sequential<Input<4>, ReLU, Linear<3>, ReLU, ReLU> {};
    std::array<NodeInfo, 4> few{};
    REQUIRE(fuse(Alone::layers, true, few) == 3);
    CHECK(few[0].layers == 1);
    CHECK(few[1].layers == 2);
    CHECK(few[2].layers == 1);

    struct OfRelu6 : Sequential<Input<4, 4, 3>, Conv2d<8, 3>, ReLU6, BatchNorm2d<>, ReLU6, Flatten, Linear<3>, ReLU6> {
    };
    std::array<NodeInfo, OfRelu6::layer_count> clipped{};
    REQUIRE(fuse(OfRelu6::layers, true, clipped) == 5);
    CHECK(clipped[0].activation == Activation::relu6);
    CHECK(clipped[1].activation == Activation::relu6);
    CHECK(clipped[3].layers == 1);  // Linear
    CHECK(clipped[4].layers == 1);

    // Its mask is not that of the pooled values: it stays where it is.
    struct Pooled : Sequential<Input<4, 4, 3>, Conv2d<8, 3>, ReLU6, MaxPool2d<2>> {};
    std::array<NodeInfo, 2> pooled{};
    REQUIRE(fuse(Pooled::layers, true, pooled) == 2);
    CHECK_FALSE(pooled[0].relu_mask_applied_by_next);
    CHECK_FALSE(pooled[1].applies_relu_mask_of_previous);
    CHECK(pooled[0].backward_reads_output);
}

TEST_CASE(
    "MaxPool2d and LocalResponseNorm become one node in either order, which applies the mask of a ReLU before it") {
    std::array<NodeInfo, tutorial::Net::layer_count> nodes{};
    fuse(tutorial::Net::layers, true, nodes);
    const NodeInfo &first = nodes[1], &second = nodes[3];
    CHECK(first.pattern == pool_then_lrn);
    CHECK(first.layer == 2);
    CHECK(first.layers == 2);
    CHECK(first.input == Shape{24, 24, 64});
    CHECK(first.output == Shape{12, 12, 64});
    CHECK(first.applies_relu_mask_of_previous);
    CHECK(nodes[0].relu_mask_applied_by_next);
    // It saves what its backward reads, so the output of the convolution is not kept.
    CHECK_FALSE(first.backward_reads_input);
    CHECK_FALSE(first.backward_reads_output);
    CHECK_FALSE(nodes[0].backward_reads_output);

    CHECK(second.pattern == lrn_then_pool);
    CHECK(second.layer == 6);
    CHECK(second.output == Shape{6, 6, 64});
    CHECK(second.applies_relu_mask_of_previous);
    CHECK(nodes[2].relu_mask_applied_by_next);
    CHECK(second.backward_reads_input);
    CHECK_FALSE(second.backward_reads_output);
    CHECK(second.reads == 3);

    // Windows whose places are no byte, means, and layers that have another between them stay apart.
    struct Apart : Sequential<Input<32, 32, 4>, MaxPool2d<16>, LocalResponseNorm<1>, AvgPool2d<1>, LocalResponseNorm<1>,
                              ReLU, MaxPool2d<2>> {};
    std::array<NodeInfo, 6> each{};
    REQUIRE(fuse(Apart::layers, true, each) == 6);
    for (const NodeInfo& node : each) CHECK(node.pattern == no_pattern);
    // The first two of three in a row are a pair.
    struct Three : Sequential<Input<8, 8, 4>, LocalResponseNorm<1>, MaxPool2d<2>, LocalResponseNorm<1>> {};
    std::array<NodeInfo, 3> three{};
    REQUIRE(fuse(Three::layers, true, three) == 2);
    CHECK(three[0].pattern == lrn_then_pool);
    CHECK(three[1].pattern == no_pattern);
    REQUIRE(fuse(Three::layers, false, three) == 3);
}

namespace {

template <class Net>
struct Result {
    std::vector<float> output, gradients;
    explicit Result(const std::vector<float>& parameters, const std::vector<float>& images, std::int64_t batch) {
        HostContext context(0, {.threads = 1});
        auto plan = PlanOf<Net, Host>::template make<Net>(context, {.batch = batch});
        HostArena arena(plan.bytes().total(), "test");
        plan.bind(arena.data());
        plan.prepare(context, parameters.data());
        const float* logits = plan.forward(context, images.data(), parameters.data(), {});
        output.assign(logits, logits + batch * Net::output_shape.size());
        for (std::size_t i = 0; i < output.size(); ++i)
            plan.output_gradient()[i] = 0.01F * static_cast<float>(i % 7) - 0.03F;
        gradients.assign(static_cast<std::size_t>(Net::parameter_elements), 0.0F);
        plan.backward(context, images.data(), parameters.data(), gradients.data(), {});
    }
};

/// The fused network and the plain one, from equal parameters: `seed` and the next are those of parameters and images.
/// The parameters are normal with a deviation of a tenth of `size`.
template <class Net>
void check_bits(std::int64_t batch, std::uint32_t seed, float size = 1) {
    std::vector<float> parameters(static_cast<std::size_t>(Net::parameter_elements));
    initialize(parameters, normal(0.1), 1, 1, seed, 0);
    for (float& parameter : parameters) parameter *= size;
    std::vector<float> images(static_cast<std::size_t>(batch * Net::input_shape.size()));
    initialize(images, normal(1.0), 1, 1, seed + 1, 0);
    const Result<Net> fused(parameters, images, batch);
    const Result<Unfused<Net>> plain(parameters, images, batch);
    REQUIRE(fused.output.size() == plain.output.size());
    CHECK(std::memcmp(fused.output.data(), plain.output.data(), fused.output.size() * sizeof(float)) == 0);
    CHECK(std::memcmp(fused.gradients.data(), plain.gradients.data(), fused.gradients.size() * sizeof(float)) == 0);
    double norm = 0;
    for (const float g : fused.gradients) norm += static_cast<double>(g) * static_cast<double>(g);
    CHECK(norm > 0);
}

}  // namespace

TEST_CASE("a network has the nodes of two layers only where it has layers of both kinds") {
    const auto made = [](const auto& makers) {
        std::vector<std::size_t> rows;
        for (std::size_t i = 0; i < makers.size(); ++i) {
            if (makers[i] != nullptr) rows.push_back(i);
        }
        return rows;
    };
    constexpr auto pooling = impl::kind_bit(LayerKind::pooling), norm = impl::kind_bit(LayerKind::local_response_norm),
                   others = impl::kind_bit(LayerKind::convolution) | impl::kind_bit(LayerKind::batch_norm) |
                            impl::kind_bit(LayerKind::activation);
    CHECK(made(impl::fused_node_makers<Host, float, pooling | others>).empty());
    CHECK(made(impl::fused_node_makers<Host, float, norm | others>).empty());
    CHECK(made(impl::fused_node_makers<Host, float, pooling | norm>) ==
          std::vector<std::size_t>{pool_then_lrn, lrn_then_pool});
}

TEST_CASE("fusion changes no bit of the output and the gradients") { check_bits<tutorial::SmallNet>(5, 5); }

namespace {

/// Both orders of pooling and normalisation, at odd sizes.
struct BothOrders : Sequential<Input<13, 11, 3>, Conv2d<64, 3>, ReLU, MaxPool2d<3, 2>, LocalResponseNorm<4, 0.1>,
                               Conv2d<20, 3>, ReLU, LocalResponseNorm<2, 0.1>, MaxPool2d<3, 2>, Flatten, Linear<5>> {};
/// The same with the padding of PyTorch, and a pooling that is fused with the ReLU before it only.
struct BothOrdersPadded
    : Sequential<Input<12, 11, 3>, Conv2d<64, 3>, ReLU, MaxPool2d<3, 2, pad(1)>, LocalResponseNorm<4, 0.1>,
                 Conv2d<20, 3>, ReLU, MaxPool2d<3, 1, pad(1)>, Conv2d<20, 3>, ReLU, LocalResponseNorm<2, 0.1>,
                 MaxPool2d<3, 2, pad(1)>, Flatten, Linear<5>> {};

struct WithRelu6
    : Sequential<Input<9, 8, 3>, Conv2d<16, 3>, ReLU6, MaxPool2d<2>, Linear<8, per_position>, ReLU6, Conv2d<16, 3>,
                 BatchNorm2d<>, ReLU6, MaxPool2d<2>, LocalResponseNorm<2, 0.1>, Flatten, Linear<5>> {};

}  // namespace

TEST_CASE("a ReLU6 inside an operation changes no bit") { check_bits<WithRelu6>(3, 5, 30); }

TEST_CASE("pooling and normalisation as one node change no bit, in either order and precision") {
    check_bits<BothOrders>(3, 7);
    check_bits<BothOrdersPadded>(3, 7);
    if (computes_bfloat16()) check_bits<InPrecision<MixedBFloat16, BothOrders>>(3, 7);
}
