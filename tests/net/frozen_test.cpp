// SPDX-License-Identifier: Apache-2.0
//
// Networks with frozen parameters: their layout, their gradients, the end of backward and the memory of a plan.
#include <cupola/net/frozen.hpp>

#include "../test.hpp"

#include <cupola/layers.hpp>
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/net/check_gradients.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/net/tied.hpp>

#include "devices.hpp"

namespace {

struct FrozenTestNet : Sequential<Input<6, 6, 3>, Named<"conv1", Conv2d<4, 3>>, Named<"norm1", BatchNorm2d<>>, ReLU,
                                  MaxPool2d<2>, Named<"conv2", Conv2d<5, 3>>, Named<"norm2", BatchNorm2d<>>, ReLU,
                                  Flatten, Named<"hidden", Linear<7>>, ReLU, Linear<4>> {};
/// A body below the first layer that is trained.
struct FrozenBody : Frozen<FrozenTestNet, "conv*", "norm?.*"> {};
/// Layers in the middle, through which the gradient passes.
struct FrozenMiddle : Frozen<FrozenTestNet, "conv2.*", "norm2.*", "hidden.*"> {};
struct FrozenMiddleOfBatch : Frozen<FrozenTestNet, "conv2.*", FrozenNorms::batch_statistics, "norm2.*"> {};
/// Parts of layers.
struct FrozenBiases : Frozen<FrozenTestNet, "*.bias", "conv1.*"> {};
struct FrozenTwice : Frozen<FrozenBody, "hidden.*"> {};
struct FrozenUnfused : Unfused<FrozenMiddle> {};
/// Branches: everything up to the convolution in the block, and the projection beside it.
struct FrozenBranchesNet
    : Sequential<Input<6, 6, 3>, Named<"stem", Conv2d<4, 3>>, ReLU,
                 Named<"block", Residual<Projection<Named<"side", Conv2d<4, 1>>>, Named<"a", Conv2d<4, 3>>, ReLU,
                                         Named<"b", Conv2d<4, 3>>>>,
                 ReLU, GlobalAvgPool2d, Linear<4>> {};
struct FrozenBranches : Frozen<FrozenBranchesNet, "stem.*", "block.side.*", "block.a.*"> {};
struct FrozenSide : Frozen<FrozenBranchesNet, "block.side.*"> {};
/// Layers that share parameters, with one that is trained between them; frozen as a whole and in part.
struct FrozenTiedNet : Sequential<Input<5>, Tied<"shared", Linear<5>>, Sigmoid, Named<"between", Linear<5>>, Sigmoid,
                                  Tied<"shared", Linear<5>>, Sigmoid, Linear<4>> {};
struct FrozenTied : Frozen<FrozenTiedNet, "shared.*"> {};
struct FrozenTiedWeight : Frozen<FrozenTiedNet, "shared.weight"> {};

static_assert(FrozenBody::trained_count + 112 + 8 + 185 + 10 == FrozenTestNet::parameter_count);
static_assert(FrozenBody::parameter_count == FrozenTestNet::parameter_count);
static_assert(FrozenBody::parameter_elements == FrozenTestNet::parameter_elements);
static_assert(FrozenTestNet::trained_elements == FrozenTestNet::parameter_elements);
static_assert(FrozenTwice::trained_count == 7 * 4 + 4);

template <class Net>
[[nodiscard]] std::size_t activations() {
    return activation_bytes<Net>(16);
}

}  // namespace

TEST_CASE("frozen parameters lie behind the others, and none overlap") {
    const auto check = [](std::span<const LayerInfo> layers, std::int64_t trained, std::int64_t all) {
        CHECK(trained_elements(layers) == trained);
        CHECK(arena_elements(layers) == all);
        std::vector<int> used(static_cast<std::size_t>(all));
        for (const LayerInfo& layer : layers) {
            for (std::size_t p = 0; p < layer.parameters.count; ++p) {
                CHECK(layer.frozen[p] == (layer.offsets[p] >= trained));
                for (std::int64_t i = 0; i < layer.parameters.list[p].shape.size(); ++i)
                    ++used[static_cast<std::size_t>(layer.offsets[p] + i)];
            }
        }
        CHECK(*std::max_element(used.begin(), used.end()) == 1);
    };
    check(FrozenTestNet::layers, FrozenTestNet::trained_elements, FrozenTestNet::parameter_elements);
    check(FrozenBody::layers, FrozenBody::trained_elements, FrozenBody::parameter_elements);
    check(FrozenBiases::layers, FrozenBiases::trained_elements, FrozenBiases::parameter_elements);
    check(FrozenTwice::layers, FrozenTwice::trained_elements, FrozenTwice::parameter_elements);
}

TEST_CASE("a layer without a name is matched by its number, and a norm is frozen with all of its parameters") {
    struct Last : Frozen<FrozenTestNet, "1?.weight"> {};
    CHECK(Last::layers[10].frozen[0]);
    CHECK_FALSE(Last::layers[10].frozen[1]);
    CHECK(FrozenBody::layers[1].uses_running_statistics);
    CHECK_FALSE(FrozenMiddle::layers[1].uses_running_statistics);
    CHECK(FrozenMiddle::layers[5].uses_running_statistics);
    CHECK_FALSE(FrozenMiddleOfBatch::layers[5].uses_running_statistics);
    CHECK_FALSE(FrozenBiases::layers[5].uses_running_statistics);
    // A Frozen around another one changes only norms that it freezes itself, unless it names a FrozenNorms.
    struct Around : Frozen<FrozenMiddleOfBatch, "conv1.*"> {};
    CHECK_FALSE(Around::layers[5].uses_running_statistics);
    struct Named : Frozen<FrozenMiddleOfBatch, FrozenNorms::running_statistics, "conv1.*"> {};
    CHECK(Named::layers[5].uses_running_statistics);
}

TYPED_TEST_CASE("the gradients of what is trained, and of the input, are correct", D, Devices) {
    const auto check = []<class Net>(Net, std::size_t trained) {
        const GradientCheck result = check_gradients<Net, CrossEntropy<4>, D>({.batch = 3}, device_options<D>(1));
        CHECK_MESSAGE(result, result.report());
        CHECK(result.tensors().size() == trained + 1);
    };
    check(FrozenTestNet{}, 12);
    check(FrozenBody{}, 4);
    check(FrozenMiddle{}, 6);
    check(FrozenMiddleOfBatch{}, 8);
    check(FrozenBiases{}, 5);
    check(FrozenTwice{}, 2);
    check(FrozenUnfused{}, 6);
    check(FrozenBranches{}, 4);
    check(FrozenSide{}, 8);
    check(FrozenTiedNet{}, 6);
    check(FrozenTied{}, 4);
    check(FrozenTiedWeight{}, 5);
}

namespace {

/// The gradients of one step of `Net`, by the names of the parameters; the memory of the plan is NaN before it.
template <class Net, class D>
struct FrozenStep {
    explicit FrozenStep(const PlanOptions& options)
        : context(0, device_options<D>(1)),
          plan(Plan<D>::template make<Net>(context, options)),
          memory(context, plan.bytes().total()) {
        const auto team = context.team();
        plan.bind(memory.bytes());
        std::vector<float> values(static_cast<std::size_t>(Net::parameter_elements)),
            samples(static_cast<std::size_t>(options.batch * Net::input_shape.size()));
        std::uint32_t number = 0;
        for (const LayerInfo& layer : Net::layers) {
            for (std::size_t p = 0; p < layer.parameters.count; ++p) {
                initialize(std::span(values).subspan(static_cast<std::size_t>(layer.offsets[p]),
                                                     static_cast<std::size_t>(layer.parameters.list[p].shape.size())),
                           normal(0.4), 1, 1, 3, number++);
            }
        }
        initialize(samples, normal(1.0), 1, 1, 4, 0);
        std::vector<float> seed(static_cast<std::size_t>(options.batch * Net::output_shape.size()));
        initialize(seed, normal(1.0), 1, 1, 5, 0);
        impl::CheckMemory<D> parameters(context, values.size() * sizeof(float)),
            batch(context, samples.size() * sizeof(float)), running(context, running_bytes()),
            gradients(context, static_cast<std::size_t>(Net::trained_elements) * sizeof(float));
        parameters.write(values);
        batch.write(samples);
        running.write(initial_buffers(Net::layers));
        const float* const from = parameters.data();
        plan.prepare(context, from, running.data());
        const float* const result = plan.forward(context, batch.data(), from, {.seed = 1}, {.running = running.data()});
        output.resize(seed.size());
        D::copy_to_host(context, reinterpret_cast<std::byte*>(output.data()),
                        reinterpret_cast<const std::byte*>(result), output.size() * sizeof(float));
        D::copy_from_host(context, reinterpret_cast<std::byte*>(plan.output_gradient()),
                          reinterpret_cast<const std::byte*>(seed.data()), seed.size() * sizeof(float));
        plan.backward(context, batch.data(), from, gradients.data(), {.seed = 1});
        gradient = gradients.read();
        intact = gradients.intact() && memory.intact() && parameters.read() == values;
    }
    static std::size_t running_bytes() { return static_cast<std::size_t>(Net::buffer_elements) * sizeof(float); }
    [[nodiscard]] std::vector<float> of(std::size_t layer, std::size_t p) const {
        const auto begin = gradient.begin() + Net::layers[layer].offsets[p];
        return {begin, begin + Net::layers[layer].parameters.list[p].shape.size()};
    }

    typename D::Context context;
    Plan<D> plan;
    impl::CheckMemory<D> memory;
    std::vector<float> output, gradient;
    bool intact = false;
};

}  // namespace

TYPED_TEST_CASE("what is trained has the bits of the gradients that it has in the whole network", D, Devices) {
    FrozenStep<FrozenBranchesNet, D> whole({.batch = 4});
    FrozenStep<FrozenBranches, D> frozen({.batch = 4});
    CHECK(whole.intact);
    CHECK(frozen.intact);
    CHECK(frozen.output == whole.output);
    int compared = 0;
    for (std::size_t layer = 0; layer < FrozenBranches::layers.size(); ++layer) {
        for (std::size_t p = 0; p < FrozenBranches::layers[layer].parameters.count; ++p) {
            if (FrozenBranches::layers[layer].frozen[p]) continue;
            CHECK(frozen.of(layer, p) == whole.of(layer, p));
            ++compared;
        }
    }
    CHECK(compared == 4);
}

TEST_CASE("a frozen normalisation is folded into the frozen convolution before it, in training too") {
    const auto nodes_of = [](std::span<const LayerInfo> layers) {
        std::vector<NodeInfo> nodes(layers.size());
        nodes.resize(fuse(layers, true, nodes));
        return nodes;
    };
    const auto folded = [&](std::span<const LayerInfo> layers) {
        return std::ranges::count_if(nodes_of(layers), [](const NodeInfo& n) { return n.folded_norm != no_layer; });
    };
    CHECK(folded(FrozenBody::layers) == 2);
    CHECK(folded(FrozenMiddle::layers) == 1);
    struct Twice
        : Sequential<Input<6, 6, 3>, Tied<"conv", Conv2d<3, 3>>, Named<"norm1", BatchNorm2d<>>,
                     Tied<"conv", Conv2d<3, 3>>, Named<"norm2", BatchNorm2d<>>, Flatten, Named<"head", Linear<2>>> {};
    CHECK(folded(Frozen<Twice, "conv.*", "norm?.*">::layers) == 2);
    // Not one that reads the statistics of the batch, nor one before which, or in which, something is trained.
    struct Convolution : Frozen<FrozenTestNet, "conv2.*"> {};
    struct Norm : Frozen<FrozenTestNet, "norm2.*"> {};
    struct Bias : Frozen<FrozenTestNet, "conv2.bias", "norm2.*"> {};
    for (const auto& layers :
         {FrozenTestNet::layers, FrozenMiddleOfBatch::layers, Convolution::layers, Norm::layers, Bias::layers})
        CHECK(folded(layers) == 0);
    // Convolution, normalisation and ReLU are one node.
    CHECK(nodes_of(FrozenTestNet::layers).size() == nodes_of(FrozenMiddle::layers).size() + 1);
}

TYPED_TEST_CASE("a folded normalisation changes no gradient of what is trained but by rounding", D, Devices) {
    FrozenStep<FrozenMiddle, D> folded({.batch = 4});
    FrozenStep<FrozenUnfused, D> apart({.batch = 4});
    CHECK(folded.intact);
    const auto near = [](const std::vector<float>& a, const std::vector<float>& b) {
        float largest = 0, off = 0;
        for (std::size_t i = 0; i < a.size(); ++i) {
            largest = std::max(largest, std::abs(b[i]));
            off = std::max(off, std::abs(a[i] - b[i]));
        }
        return off <= 1e-5F * largest;
    };
    CHECK(near(folded.output, apart.output));
    for (const std::size_t layer : {0U, 1U, 10U}) {
        // The bias of a convolution before a normalisation with the statistics of the batch has the gradient 0.
        for (std::size_t p = 0; p < 2; ++p) {
            if (layer != 0 || p != 1) CHECK(near(folded.of(layer, p), apart.of(layer, p)));
        }
    }
}

TEST_CASE("a plan keeps nothing for the backward pass of layers that it does not reach") {
    CHECK(activations<FrozenBody>() < activations<FrozenTestNet>());
    CHECK(activations<FrozenBranches>() < activations<FrozenBranchesNet>());
    // A frozen convolution in the middle does not keep its input.
    CHECK(activations<FrozenMiddleOfBatch>() <= activations<FrozenTestNet>());
    FrozenStep<FrozenTestNet, AnyDevice> whole({.batch = 4});
    FrozenStep<FrozenBody, AnyDevice> frozen({.batch = 4});
    CHECK(frozen.intact);
    CHECK(frozen.plan.bytes().saved < whole.plan.bytes().saved);
    CHECK(frozen.plan.bytes().total() < whole.plan.bytes().total());
}

TEST_CASE("a network whose frozen parameters none of its layers can omit discards their gradients") {
    struct All : FrozenTestNet {};
    FrozenStep<FrozenBiases, AnyDevice> frozen({.batch = 4});
    FrozenStep<All, AnyDevice> whole({.batch = 4});
    CHECK(frozen.intact);
    CHECK(frozen.gradient.size() == static_cast<std::size_t>(FrozenBiases::trained_elements));
    for (const std::size_t layer : {1U, 4U, 5U, 8U, 10U}) CHECK(frozen.of(layer, 0) == whole.of(layer, 0));
}

TEST_CASE("a summary names what is frozen, and the statistics that frozen norms use") {
    const std::string body = summary<FrozenBody>(2), batch = summary<FrozenMiddleOfBatch>(2),
                      biases = summary<FrozenBiases>(2);
    const auto has = [](const std::string& text, const std::string& part) { return text.find(part) != text.npos; };
    CHECK(has(body, "Conv2d 4, 3 x 3, frozen"));
    CHECK(has(body, "BatchNorm2d, frozen"));
    CHECK_FALSE(has(body, "Linear 7, frozen"));
    CHECK(has(body, "\n315 of 669 parameters are frozen; frozen batch normalisations use their running statistics\n"));
    CHECK(has(batch, "; frozen batch normalisations use those of the batch\n"));
    CHECK(has(biases, "Conv2d 5, 3 x 3, bias frozen"));
    CHECK_FALSE(has(summary<FrozenTestNet>(2), "frozen"));
}
