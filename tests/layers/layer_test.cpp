// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/layers/parameters.hpp, cupola/layers/layer_kind.hpp
//
// The contract of a layer: what satisfies it, that each missing part is found, and what a layer that says nothing is
// taken to be.
#include "../test.hpp"

#include <cupola/host.hpp>
#include <cupola/layers.hpp>

namespace {

template <class... Ls>
inline constexpr bool all_on_host = (LayerOn<Ls, Host> && ...);
static_assert(all_on_host<Conv2d<64, 5>, Linear<10>, ReLU, MaxPool2d<3, 2>, AvgPool2d<2>, LocalResponseNorm<4>, Flatten,
                          Dropout<0.5>>);

/// The least that a layer is: y = x.
struct Unchanging {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    struct Operation {
        template <class Args>
        void forward(const Args&) {}
        template <class Args>
        void backward(const Args&) {}
    };
    template <class BuildContext>
    static Operation operation(const BuildContext&) {
        return {};
    }
};
static_assert(Layer<Unchanging> && LayerOn<Unchanging, Host> && HasOperation<Unchanging, Host>);
static_assert(!HasParameters<Unchanging> && !HasTraits<Unchanging>);
static_assert(parameters_of<Unchanging>(Shape{4}).count == 0 && multiply_adds_of<Unchanging>(Shape{4}) == 0);
// The defaults are the safe ones: everything is kept for backward, nothing is fused, nothing is a view.
static_assert(traits_of<Unchanging>().backward_reads_input && traits_of<Unchanging>().backward_reads_output);
static_assert(!traits_of<Unchanging>().absorbs_relu && !traits_of<Unchanging>().can_apply_relu_mask);
static_assert(!HasKind<Unchanging> && kind_of<Unchanging>() == LayerKind::plain);

struct Empty {};
static_assert(!Layer<Empty> && !Layer<int> && !Layer<void>);

struct OutputOfAnotherKind {
    static constexpr int output(const Shape&) { return 3; }
};
static_assert(!Layer<OutputOfAnotherKind>);

struct OutputNotStatic {
    ShapeResult output(const Shape& input) const { return input; }
};
static_assert(!Layer<OutputNotStatic>, "a layer has no state");

struct WithoutOperation {
    static constexpr ShapeResult output(const Shape& input) { return input; }
};
static_assert(Layer<WithoutOperation> && !HasOperation<WithoutOperation, Host> && !LayerOn<WithoutOperation, Host>);

struct WithoutBackward {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    struct Operation {
        void forward(const ForwardArgs<Host>&) {}
    };
    static Operation operation(const BuildContext<Host>&) { return {}; }
};
static_assert(HasOperation<WithoutBackward, Host> && HasForward<OperationOf<WithoutBackward, Host>, Host>);
static_assert(!HasBackward<OperationOf<WithoutBackward, Host>, Host> && !LayerOn<WithoutBackward, Host>);

struct WithoutForward {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    struct Operation {
        void backward(const BackwardArgs<Host>&) {}
    };
    static Operation operation(const BuildContext<Host>&) { return {}; }
};
static_assert(!HasForward<OperationOf<WithoutForward, Host>, Host> && !LayerOn<WithoutForward, Host>);

/// A layer returns its operation, or the operation's factory, and neither where a device lacks the operation.
static_assert(std::is_same_v<OperationOf<Linear<8>, Host>, ops::Linear<Host, float>>);
static_assert(std::is_same_v<OperationOf<WithoutBackward, Host>, WithoutBackward::Operation>);
static_assert(LayerOn<Linear<8>, Host> && LayerOn<Linear<8>, Host, BFloat16> && !LayerOn<Linear<8>, Host, Float16>);

struct ParametersOfAnotherKind : Unchanging {
    static constexpr int parameters(const Shape&) { return 3; }
};
static_assert(!HasParameters<ParametersOfAnotherKind>);

// A layer says once what it is, and what belongs to its kind goes with it.
static_assert(kind_of<MaxPool2d<3, 2>>() == LayerKind::pooling && PoolingLayer<MaxPool2d<3, 2>>);
static_assert(kind_parts_of<MaxPool2d<3, 2>>().pooling(Shape{8, 8, 4}).height.window == 3);
static_assert(kind_of<LocalResponseNorm<4>>() == LayerKind::local_response_norm &&
              kind_parts_of<LocalResponseNorm<4>>().local_response_norm(Shape{8, 8, 4}).radius == 4);
static_assert(kind_of<ReLU>() == LayerKind::activation && kind_parts_of<ReLU>().activation == Activation::relu);
static_assert(kind_of<Conv2d<8, 3>>() == LayerKind::convolution && kind_of<Flatten>() == LayerKind::view);
static_assert(kind_of<Linear<8>>() == LayerKind::plain && kind_of<int>() == LayerKind::plain);

/// A layer that lacks the members of its kind is not a layer.
template <LayerKind which>
struct OfKind : Unchanging {
    static constexpr LayerKind kind = which;
};
static_assert(Layer<OfKind<LayerKind::view>> && Layer<OfKind<LayerKind::activation>>);
static_assert(kind_parts_of<OfKind<LayerKind::activation>>().activation == Activation::none,
              "an activation that no operation takes over");
static_assert(!Layer<OfKind<LayerKind::pooling>> && !Layer<OfKind<LayerKind::local_response_norm>>);
static_assert(!Layer<OfKind<LayerKind::convolution>> && !Layer<OfKind<LayerKind::batch_norm>>);
struct PoolingOfAnotherShape : OfKind<LayerKind::pooling> {
    static constexpr LocalResponseNormShape shape(const Shape&) { return {}; }
};
static_assert(!Layer<PoolingOfAnotherShape>);
struct OwnPooling : OfKind<LayerKind::pooling> {
    static constexpr PoolingShape shape(const Shape&) { return {}; }
};
static_assert(Layer<OwnPooling> && LayerOn<OwnPooling, Host>);
struct KindOfAnotherType : Unchanging {
    static constexpr int kind = 4;
};
static_assert(!HasKind<KindOfAnotherType> && Layer<KindOfAnotherType>);

/// Everything that a batch normalisation has, but for one member.
struct OwnNorm : OfKind<LayerKind::batch_norm> {
    static constexpr BatchNormStatistics statistics{.epsilon = 1e-3, .decay = 0.5};
    static constexpr Parameters parameters(const Shape& input) {
        return {Parameter{.name = "scale", .shape = {input.channels()}},
                Parameter{.name = "shift", .shape = {input.channels()}}};
    }
    static constexpr Parameters buffers(const Shape& input) {
        return {Parameter{.name = "mean", .shape = {input.channels()}},
                Parameter{.name = "var", .shape = {input.channels()}}};
    }
};
static_assert(Layer<OwnNorm> && kind_parts_of<OwnNorm>().batch_norm.decay == 0.5);
struct NormWithoutStatistics : OwnNorm {
    static constexpr int statistics = 0;
};
struct NormWithoutParameters : OwnNorm {
    static constexpr int parameters(const Shape&) { return 0; }
};
struct NormWithoutBuffers : OwnNorm {
    static constexpr int buffers(const Shape&) { return 0; }
};
static_assert(!Layer<NormWithoutStatistics> && !Layer<NormWithoutParameters> && !Layer<NormWithoutBuffers>);

// An operation that names no memory needs none.
static_assert(Operation<Unchanging::Operation, Host> && !Operation<WithoutBackward::Operation, Host>);

}  // namespace

TEST_CASE("a layer's output is a shape or an error") {
    const ShapeResult shape = Shape{3, 4};
    CHECK(shape.error.empty());
    CHECK(shape.shape == Shape{3, 4});
    const ShapeResult error = ShapeError{"has a size of zero"};
    CHECK(error.error == "has a size of zero");
    CHECK(!ShapeResult(ShapeError{""}).error.empty());
}

TEST_CASE("an operation that declares no memory needs none") {
    const MemoryNeeds needs = memory_needs(Unchanging::Operation{});
    CHECK(needs.packed == 0);
    CHECK(needs.saved == 0);
    CHECK(needs.scratch == 0);
}

TEST_CASE("parameters are listed in the order they are given in") {
    const Parameters none, two{Parameter{.name = "weight", .shape = {3}}, Parameter{.name = "bias", .shape = {1}}};
    CHECK(none.count == 0);
    CHECK(two.count == 2);
    CHECK(std::string_view(two.list[0].name) == "weight");
    CHECK(two.list[1].shape == Shape{1});
}

TEST_CASE("the members that a layer lacks for its kind are one message") {
    const auto message = []<class L>(L) {
        CompileTimeMessage result;
        impl::describe_missing_members<L>(result);
        return std::string(result.characters, result.size);
    };
    CHECK(message(OfKind<LayerKind::pooling>{}) ==
          "has the kind pooling and lacks `static constexpr PoolingShape shape(const Shape&)`");
    CHECK(message(OfKind<LayerKind::local_response_norm>{}) ==
          "has the kind local_response_norm and lacks `static constexpr LocalResponseNormShape shape(const Shape&)`");
    CHECK(message(OfKind<LayerKind::convolution>{}) ==
          "has the kind convolution and lacks `static constexpr Parameters parameters(const Shape&)`");
    CHECK(
        message(OfKind<LayerKind::batch_norm>{}) ==
        "has the kind batch_norm and lacks `static constexpr BatchNormStatistics statistics`, "
        "`static constexpr Parameters parameters(const Shape&)`, `static constexpr Parameters buffers(const Shape&)`");
    CHECK(message(NormWithoutBuffers{}) ==
          "has the kind batch_norm and lacks `static constexpr Parameters buffers(const Shape&)`");
}

namespace {

/// An operation that adds 1 and has a need for memory.
struct AddsOne {
    std::int64_t elements = 0;
    [[nodiscard]] MemoryNeeds needs() const { return {.saved = 12}; }
    void forward(const ForwardArgs<Host>& args) const {
        for (std::int64_t i = 0; i < elements; ++i) args.output[i] = args.input[i] + 1.0F;
    }
    void backward(const BackwardArgs<Host>& args) const { args.input_gradient[0] = 7.0F; }
};
struct AddsOneLayer : Unchanging {
    static AddsOne operation(const BuildContext<Host>& build) { return {build.batch * build.output.size()}; }
};
struct AddsOneByFactory : Unchanging {
    struct Made : AddsOne {
        Made(const BuildContext<Host>& build, std::int64_t more) : AddsOne{build.batch * build.output.size() - more} {}
    };
    static OperationFactory<Made, std::int64_t> operation(const BuildContext<Host>&) { return {1}; }
};

template <class L>
void check_node(std::int64_t computed) {
    CAPTURE(computed);
    HostContext context(0, {});
    const BuildContext<Host> build{.context = context, .batch = 2, .input = {2}, .output = {2}};
    const auto node = make_node<L>(build);
    CHECK(node->needs().saved == 12);
    const float input[4] = {1, 2, 3, 4};
    float output[4] = {}, input_gradient[4] = {};
    BackwardArgs<Host> args{{.context = context, .input = input, .output = output}};
    args.input_gradient = input_gradient;
    node->forward(args);
    node->backward(args);
    for (std::int64_t i = 0; i < 4; ++i) {
        CHECK(output[i] == (i < computed ? input[i] + 1.0F : 0.0F));
    }
    CHECK(input_gradient[0] == 7.0F);
    CHECK(operation_of<L>(build).elements == computed);
}

}  // namespace

TEST_CASE("a layer's node runs the operation that the layer returns, or that its factory makes") {
    check_node<AddsOneLayer>(4);
    check_node<AddsOneByFactory>(3);
}
