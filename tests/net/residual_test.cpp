// SPDX-License-Identifier: Apache-2.0
//
// Residual blocks: their layers and names, what they compute, their gradients through the whole plan, and the memory they
// share.
#include <cupola/net/residual.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/layers/option_a_shortcut.hpp>
#include <cupola/net/check_gradients.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/summary.hpp>

#include "../reference/compare.hpp"

using reference::same_bits;

namespace {

template <class Shortcut, std::int64_t channels, std::int64_t step>
using Block =
    Residual<Shortcut, Named<"conv1", Conv2d<channels, 3, stride(step), pad(1), no_bias>>, Named<"bn1", BatchNorm2d<>>,
             ReLU, Named<"conv2", Conv2d<channels, 3, no_bias>>, Named<"bn2", BatchNorm2d<>>>;

struct Plain : Sequential<Input<6, 6, 3>, Named<"stem", Conv2d<4, 3>>, ReLU, Named<"block", Block<Identity, 4, 1>>,
                          ReLU, GlobalAvgPool2d, Named<"fc", Linear<5>>> {};

// Fork, the block's rows, the shortcut's, Add.
static_assert(Plain::layer_count == 2 + 1 + 5 + 1 + 3);
static_assert(Plain::layers[2].kind == LayerKind::fork && Plain::layers[2].reads == 2 && Plain::layers[2].name.empty());
static_assert(Plain::layers[3].name == "block.conv1" && Plain::layers[3].reads == 3);
static_assert(Plain::layers[8].kind == LayerKind::sum && Plain::layers[8].name == "block");
static_assert(Plain::layers[8].reads == 8 && Plain::layers[8].also_reads == 3);
static_assert(Plain::layers[9].reads == 9);
static_assert(Plain::parameter_count == 3 * 9 * 4 + 4 + 2 * (4 * 9 * 4 + 8) + 4 * 5 + 5);
static_assert(Plain::buffer_elements == 4 * arena_extent(4));

/// All kinds of shortcut, one after another.
struct Every : Sequential<Input<8, 8, 3>, Named<"stem", Conv2d<4, 3, no_bias>>, BatchNorm2d<>, ReLU,
                          Named<"a", Block<Identity, 4, 1>>, ReLU, Named<"b", Block<OptionAShortcut<8, 2>, 8, 2>>, ReLU,
                          Named<"c", Block<Projection<Named<"downsample.0", Conv2d<12, 1, stride(2), no_bias>>,
                                                      Named<"downsample.1", BatchNorm2d<>>>,
                                           12, 2>>,
                          ReLU, Named<"d", Residual<Identity, Named<"conv", Conv2d<12, 1>>>>, GlobalAvgPool2d,
                          Named<"fc", Linear<5>>> {};
static_assert(Every::output == Extents<5>{});

/// The same kinds without kinks, so that differences are precise.
template <class Shortcut, std::int64_t channels, std::int64_t step>
using SmoothBlock = Residual<Shortcut, Conv2d<channels, 3, stride(step), pad(1), no_bias>, BatchNorm2d<>>;
struct Smooth : Sequential<Input<8, 8, 3>, Conv2d<4, 3, no_bias>, BatchNorm2d<>, SmoothBlock<Identity, 4, 1>,
                           SmoothBlock<OptionAShortcut<8, 2>, 8, 2>, Dropout<0.2>,
                           SmoothBlock<Projection<Conv2d<12, 1, stride(2), no_bias>, BatchNorm2d<>>, 12, 2>,
                           GlobalAvgPool2d, Linear<5>> {};

/// A block with nothing before it, and ends that are views.
struct First
    : Sequential<Input<4, 4, 2>, Residual<Projection<Flatten, Linear<6>>, Conv2d<3, 3>, ReLU, Flatten, Linear<6>>, ReLU,
                 Linear<4>> {};
/// A pre-activation block whose way through has no layer with parameters, and one without a ReLU after it.
struct Odd
    : Sequential<Input<4, 4, 3>, Residual<Projection<Conv2d<3, 3>, ReLU>, ReLU, MaxPool2d<3, 1>>,
                 Residual<Identity, ReLU, Conv2d<3, 3>>,
                 Residual<Projection<AvgPool2d<2, 1>>, Conv2d<3, 1>, ReLU, MaxPool2d<2, 1>>, Flatten, Linear<3>> {};
/// The first block has no parameters.
struct Bare
    : Sequential<Input<4, 4, 3>, Residual<Projection<AvgPool2d<3, 1>>, ReLU>, Conv2d<3, 3>, ReLU, Flatten, Linear<3>> {
};
/// A block in a block, first in it, in its shortcut, and last.
struct Nested
    : Sequential<Input<4, 4, 3>, Conv2d<4, 3>,
                 Named<"outer", Residual<Projection<Named<"side", Residual<Identity, Named<"conv", Conv2d<4, 1>>>>>,
                                         Named<"inner", Residual<Identity, Named<"conv", Conv2d<4, 3>>, ReLU>>,
                                         BatchNorm2d<>, Named<"last", Residual<Identity, Conv2d<4, 3>>>>>,
                 ReLU, Flatten, Linear<3>> {};
static_assert(Nested::layers[3].name == "outer.inner.conv");

/// Batch normalisations behind a convolution, a sum and each other, first in the ways of a block, first and last.
template <class Norm>
struct Norms
    : Sequential<Input<4, 4, 3>, Norm, Conv2d<4, 3>, Norm, ReLU,
                 Residual<Projection<Norm, Conv2d<4, 1>, Norm>, Norm, ReLU, Conv2d<4, 3>, Norm, Norm>, Norm,
                 Residual<Identity, Norm, ReLU, Conv2d<4, 3>>, ReLU, Residual<Identity, Conv2d<4, 3>, Norm>, Norm> {};
struct Apart : BatchNorm2d<> {
    static constexpr LayerTraits traits = [] {
        LayerTraits traits = BatchNorm2d<>::traits;
        traits.input_gradient_in_place = false;
        return traits;
    }();
};

/// A block with a type of its own is one too.
struct OwnBlock : Residual<Identity, Named<"conv", Conv2d<2, 3>>> {};
struct Own : Sequential<Input<3, 3, 2>, Named<"own", OwnBlock>, Flatten, Linear<2>> {};
static_assert(Own::layers[1].name == "own.conv" && Own::layer_count == 5);

template <class Net>
std::vector<float> parameters_of_net(std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(Net::parameter_elements));
    initialize(values, normal(0.3), 1, 1, seed, 0);
    return values;
}

/// Runs a plan, whose memory is filled with NaN first.
template <class Net>
struct Ran {
    std::vector<float> output, gradients, input_gradient, statistics;

    Ran(const std::vector<float>& parameters, const std::vector<float>& images, std::int64_t batch,
        bool input_gradient_too = false) {
        HostContext context(0, {.threads = 2});
        const PlanOptions options{.batch = batch, .input_gradient = input_gradient_too};
        auto plan = Plan<Host>::make<Net>(context, options);
        HostArena arena(plan.bytes().total(), "test");
        auto* floats = reinterpret_cast<float*>(arena.data());
        std::fill(floats, floats + arena.size() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
        plan.bind(arena.data());
        plan.prepare(context, parameters.data());
        statistics.assign(static_cast<std::size_t>(Net::buffer_elements), 0.0F);
        const float* y = plan.forward(context, images.data(), parameters.data(), {},
                                      {.running = nullptr, .batch = statistics.data()});
        output.assign(y, y + batch * Net::output_shape.size());
        for (std::size_t i = 0; i < output.size(); ++i)
            plan.output_gradient()[i] = 0.01F * static_cast<float>(i % 7) - 0.02F;
        gradients.assign(static_cast<std::size_t>(Net::parameter_elements), 0.0F);
        plan.backward(context, images.data(), parameters.data(), gradients.data(), {});
        if (input_gradient_too) input_gradient.assign(plan.input_gradient(), plan.input_gradient() + images.size());
    }
};

template <class Net>
void right_gradients(std::int64_t batch = 4, double tolerance = 0) {
    for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{2}}) {
        CAPTURE(Net::layer_count);
        const GradientCheck fused = check_gradients<Net, CrossEntropy<Net::output_shape.size()>, Host>(
            {.batch = batch, .seed = seed, .tolerance = tolerance}, {.threads = 2});
        INFO(fused.report());
        CHECK(static_cast<bool>(fused));
        const GradientCheck plain = check_gradients<Unfused<Net>, CrossEntropy<Net::output_shape.size()>, Host>(
            {.batch = batch, .seed = seed, .tolerance = tolerance});
        INFO(plain.report());
        CHECK(static_cast<bool>(plain));
    }
}

/// Two networks with the same layers have the same bits in training.
template <class Net, class Other>
void same_in_training() {
    const std::vector<float> parameters = parameters_of_net<Net>(3);
    std::vector<float> images(static_cast<std::size_t>(5 * Net::input_shape.size()));
    initialize(images, normal(1.0), 1, 1, 6, 0);
    for (const bool input_gradient : {false, true}) {
        const Ran<Net> fused(parameters, images, 5, input_gradient);
        const Ran<Other> plain(parameters, images, 5, input_gradient);
        CHECK(same_bits(fused.output, plain.output));
        CHECK(same_bits(fused.gradients, plain.gradients));
        CHECK(same_bits(fused.input_gradient, plain.input_gradient));
        CHECK(same_bits(fused.statistics, plain.statistics));
        double norm = 0;
        for (const float g : fused.gradients) norm += static_cast<double>(g) * static_cast<double>(g);
        CHECK(norm > 0);
        CHECK(std::isfinite(norm));
    }
}
template <class Net>
void same_fused_and_unfused() {
    same_in_training<Net, Unfused<Net>>();
}

}  // namespace

TEST_CASE("names inside a block begin with the block's name") {
    const auto names = [](std::span<const LayerInfo> layers) {
        std::string result;
        for (std::size_t i = 0; i < layers.size(); ++i) {
            for (std::size_t p = 0; p < layers[i].parameters.count; ++p) result += parameter_name(layers, i, p) + " ";
            for (std::size_t b = 0; b < layers[i].buffers.count; ++b) result += buffer_name(layers, i, b) + " ";
        }
        return result;
    };
    CHECK(
        names(Plain::layers) ==
        "stem.weight stem.bias block.conv1.weight block.bn1.weight block.bn1.bias block.bn1.running_mean block.bn1.running_var "
        "block.conv2.weight block.bn2.weight block.bn2.bias block.bn2.running_mean block.bn2.running_var fc.weight fc.bias ");
    CHECK(names(Every::layers).find(" c.downsample.0.weight c.downsample.1.weight ") != std::string::npos);
    CHECK(names(Nested::layers).find(" outer.inner.conv.weight ") != std::string::npos);
    CHECK(names(Nested::layers).find(" outer.side.conv.weight ") != std::string::npos);
}

TEST_CASE("buffers have PyTorch's initial values, names and offsets") {
    const std::vector<float> buffers = initial_buffers(Every::layers);
    const FixedArray<RunningStatistics> all = running_statistics(Every::layers);
    REQUIRE(all.size() == 8);
    for (const RunningStatistics& s : all) {
        for (std::int64_t c = 0; c < s.channels; ++c) {
            CHECK(buffers[static_cast<std::size_t>(s.mean + c)] == 0.0F);
            CHECK(buffers[static_cast<std::size_t>(s.variance + c)] == 1.0F);
        }
        CHECK(s.decay == 0.9);
    }
    CHECK(all[0].channels == 4);
    CHECK(all[0].elements_per_sample == 64);
    CHECK(all[0].unbiased(2) == doctest::Approx(128.0 / 127));
    CHECK(all[7].elements_per_sample == 4);
    CHECK(RunningStatistics{.elements_per_sample = 1}.unbiased(1) == 1.0);
}

TEST_CASE("a block is the sum of its layers and its shortcut") {
    struct Net : Sequential<Input<6, 6, 4>, Residual<OptionAShortcut<8, 2>, Conv2d<8, 3, stride(2), pad(1)>>> {};
    struct Through : Sequential<Input<6, 6, 4>, Conv2d<8, 3, stride(2), pad(1)>> {};
    struct Around : Sequential<Input<6, 6, 4>, OptionAShortcut<8, 2>> {};
    const std::vector<float> parameters = parameters_of_net<Net>(1);
    std::vector<float> images(3 * 6 * 6 * 4);
    initialize(images, normal(1.0), 1, 1, 6, 0);
    const std::vector<float> sum = Ran<Net>(parameters, images, 3).output;
    const std::vector<float> through = Ran<Through>(parameters, images, 3).output;
    const std::vector<float> around = Ran<Around>({}, images, 3).output;
    for (std::size_t i = 0; i < sum.size(); ++i) REQUIRE(sum[i] == through[i] + around[i]);
}

TEST_CASE("networks with each kind of shortcut have correct gradients, fused and unfused") {
    right_gradients<Plain>();
    right_gradients<Smooth>(6, 2e-3);
    right_gradients<Every>(6, 0.06);  // a bias before a ReLU moves many figures over its kink
    right_gradients<First>();
    right_gradients<Odd>();
    right_gradients<Bare>();
    right_gradients<Nested>();
    right_gradients<Own>();
}

TEST_CASE("fusion changes no bit of a network with blocks") {
    same_fused_and_unfused<Plain>();
    same_fused_and_unfused<Every>();
    same_fused_and_unfused<First>();
    same_fused_and_unfused<Odd>();
    same_fused_and_unfused<Bare>();
    same_fused_and_unfused<Nested>();
}

TEST_CASE("gradients that batch normalisations write in place have the bits of those in memory of their own") {
    same_in_training<Norms<BatchNorm2d<>>, Norms<Apart>>();
    same_fused_and_unfused<Norms<BatchNorm2d<>>>();
    std::vector<NodeInfo> nodes(Norms<Apart>::layer_count);
    nodes.resize(fuse(Norms<BatchNorm2d<>>::layers, true, nodes));
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const bool norm = Norms<Apart>::layers[nodes[i].layer].kind == LayerKind::batch_norm;
        CHECK(nodes[i].input_gradient_in_place == (norm && !nodes[i].reads_aside));
        if (nodes[i].input_gradient_in_place)
            CHECK(gradient_entry(nodes, i + 1) == gradient_entry(nodes, nodes[i].reads));
    }
    CHECK(activation_bytes<Norms<BatchNorm2d<>>>(5) <= activation_bytes<Norms<Apart>>(5));
}

TEST_CASE("BatchNorm2d and the sum of a block fuse the ReLU that follows; a ReLU in a shortcut is not the block's") {
    std::vector<NodeInfo> nodes(Every::layer_count);
    nodes.resize(fuse(Every::layers, true, nodes));
    for (const NodeInfo& node : nodes) {
        const LayerKind kind = Every::layers[node.layer].kind;
        CHECK(kind != LayerKind::activation);
        if (kind == LayerKind::sum) CHECK((node.layers == 2) == (Every::layers[node.layer].name != "d"));
    }
    struct Apart : Sequential<Input<4, 4, 2>, Residual<Projection<ReLU, Conv2d<2, 1>>, Conv2d<2, 3>>> {};
    std::vector<NodeInfo> apart(Apart::layer_count);
    REQUIRE(fuse(Apart::layers, true, apart) == Apart::layer_count);
    CHECK(apart[1].activation == Activation::none);
    CHECK(apart[0].second_reader == 2);
    CHECK_FALSE(apart[0].second_reader_adds);
}

TEST_CASE("tensors of a network with blocks never share bytes while both are alive") {
    const auto check = [](std::span<const LayerInfo> layers, bool fusion, bool training, bool input_gradient) {
        std::vector<NodeInfo> nodes(layers.size());
        nodes.resize(fuse(layers, fusion, nodes));
        std::vector<Lifetime> lifetimes(lifetimes_of(nodes.size()));
        const std::size_t total = plan_activations(nodes, 3, training, input_gradient, lifetimes);
        std::size_t planned = 0;
        for (const Lifetime& x : lifetimes) {
            if (x.bytes == 0) continue;
            ++planned;
            CHECK(x.offset + x.bytes <= total);
            for (const Lifetime& y : lifetimes) {
                if (&x == &y || y.bytes == 0 || x.last < y.first || y.last < x.first) continue;
                CHECK((x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset));
            }
        }
        CHECK(planned > nodes.size() / 2);
    };
    for (const bool fusion : {false, true}) {
        for (const bool training : {false, true}) {
            for (const bool input_gradient : {false, true}) {
                check(Every::layers, fusion, training, input_gradient);
                check(Nested::layers, fusion, training, input_gradient);
                check(First::layers, fusion, training, input_gradient);
            }
        }
    }
}

TEST_CASE("the summary shows a block's layers in their order") {
    const std::string table = summary<Plain>(2);
    CHECK(table.find("block.conv1") < table.find("block.bn2"));
    for (const char* part : {"Fork", "Add", "BatchNorm2d ", "GlobalAvgPool2d"}) {
        CAPTURE(part);
        CHECK(table.find(part) != std::string::npos);
    }
}

TEST_CASE("a network with running statistics is not run outside training without them") {
    HostContext context(0, {});
    const PlanOptions options{.batch = 1, .training = false};
    auto plan = Plan<Host>::make<Plain>(context, options);
    HostArena arena(plan.bytes().total(), "test");
    plan.bind(arena.data());
    const std::vector<float> parameters = parameters_of_net<Plain>(1), image(6 * 6 * 3);
    const std::vector<float> buffers = initial_buffers(Plain::layers);
    plan.prepare(context, parameters.data(), buffers.data());
    const RngKey key{.training = false};
    std::string said;
    try {
        plan.forward(context, image.data(), parameters.data(), key);
    } catch (const InvalidArgument& error) {
        said = error.what();
    }
    CHECK(said == "outside training the network reads running statistics (block.bn1.running_mean), and was given none");
    CHECK_NOTHROW(
        plan.forward(context, image.data(), parameters.data(), key, {.running = buffers.data(), .batch = nullptr}));
}

TEST_CASE("inspection shows each layer of a network with blocks once, as in training") {
    const std::vector<float> parameters = parameters_of_net<Every>(3);
    std::vector<float> images(static_cast<std::size_t>(5 * Every::input_shape.size()));
    initialize(images, normal(1.0), 1, 1, 6, 0);
    const Ran<Every> trained(parameters, images, 5);
    HostContext context(0, {.threads = 2});
    const PlanOptions options{.batch = 5, .inspect = true};
    auto plan = Plan<Host>::make<Every>(context, options);
    HostArena arena(plan.bytes().total(), "test");
    auto* floats = reinterpret_cast<float*>(arena.data());
    std::fill(floats, floats + arena.size() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
    plan.bind(arena.data());
    plan.prepare(context, parameters.data());
    std::vector<std::vector<float>> seen;
    plan.forward_each(context, images.data(), parameters.data(), {}, {},
                      [&](std::size_t layer, const float* values, std::int64_t elements) {
                          CHECK(layer == seen.size());
                          CHECK(elements == 5 * Every::layers[layer].output.size());
                          seen.emplace_back(values, values + elements);
                      });
    REQUIRE(seen.size() == Every::layer_count);
    CHECK(same_bits(seen.back(), trained.output));
    for (std::size_t i = 0; i < seen.size(); ++i) {
        const LayerInfo& layer = Every::layers[i];
        if (layer.kind == LayerKind::fork) CHECK(same_bits(seen[i], seen[layer.reads - 1]));
        if (layer.kind != LayerKind::sum) continue;
        for (std::size_t k = 0; k < seen[i].size(); ++k)
            REQUIRE(seen[i][k] == seen[layer.reads - 1][k] + seen[layer.also_reads - 1][k]);
    }
}
