// SPDX-License-Identifier: Apache-2.0
//
// The contract of a layer: what satisfies it, that each missing part is found, and what a layer that says nothing is
// taken to be.
#include <string_view>

#include <doctest/doctest.h>
#include <cupola/host.hpp>
#include <cupola/layers/avg_pool2d.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/dropout.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/local_response_norm.hpp>
#include <cupola/layers/max_pool2d.hpp>
#include <cupola/layers/relu.hpp>

using namespace cupola;

namespace {

template <class... Ls>
inline constexpr bool all_on_host = (LayerOn<Ls, Host> && ...);
static_assert(all_on_host<Conv2d<64, 5>, Linear<10>, ReLU, MaxPool2d<3, 2>, AvgPool2d<2>, LocalResponseNorm<4>, Flatten,
                          Dropout<0.5>>);

/// The least that a layer is: y = x.
struct Unchanging {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    struct Operation {
        template <class PassArgs>
        void forward(const PassArgs&) {}
        template <class PassArgs>
        void backward(const PassArgs&) {}
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
static_assert(!traits_of<Unchanging>().view && !traits_of<Unchanging>().absorbs_relu &&
              !traits_of<Unchanging>().can_apply_relu_mask && traits_of<Unchanging>().activation == Activation::none);

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
        void forward(const PassArgs<Host>&) {}
    };
    static Operation operation(const BuildContext<Host>&) { return {}; }
};
static_assert(HasOperation<WithoutBackward, Host> && HasForward<OperationOf<WithoutBackward, Host>, Host>);
static_assert(!HasBackward<OperationOf<WithoutBackward, Host>, Host> && !LayerOn<WithoutBackward, Host>);

struct WithoutForward {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    struct Operation {
        void backward(const PassArgs<Host>&) {}
    };
    static Operation operation(const BuildContext<Host>&) { return {}; }
};
static_assert(!HasForward<OperationOf<WithoutForward, Host>, Host> && !LayerOn<WithoutForward, Host>);

struct ParametersOfAnotherKind : Unchanging {
    static constexpr int parameters(const Shape&) { return 3; }
};
static_assert(!HasParameters<ParametersOfAnotherKind>);

// An operation that names no memory needs none.
static_assert(Operation<Unchanging::Operation, Host> && !Operation<WithoutBackward::Operation, Host>);

}  // namespace

TEST_CASE("a layer's output is a shape or an error") {
    const ShapeResult shape = Shape{3, 4};
    CHECK(shape.error == nullptr);
    CHECK(shape.shape == Shape{3, 4});
    const ShapeResult error = ShapeError{"has a size of zero"};
    CHECK(std::string_view(error.error) == "has a size of zero");
}

TEST_CASE("an operation that says nothing of memory needs none") {
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
