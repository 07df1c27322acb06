// SPDX-License-Identifier: Apache-2.0
//
// The contract of a layer: a type without state. docs/how-to/your-own-layer.md writes one from scratch.
//
//   static constexpr ShapeResult output(const Shape& input)   the output extents, or the error in the input's extents
//   static auto operation(const BuildContext& build)          the operation for a device and batch size, or its factory
//                                                             (FactoryOf, ops/operation.hpp); the layer is not
//                                                             available on a device that lacks the return type
//
// and, where they apply,
//
//   static constexpr Parameters parameters(const Shape& input)   names, extents, initialisers and layouts in files
//   static constexpr Parameters buffers(const Shape& input)      the same for untrained state: running means
//   static constexpr LayerKind kind                              the kind that passes recognise: layers/layer_kind.hpp
//   static constexpr LayerTraits traits                          what backward reads and what the operation can fuse
//   static constexpr std::int64_t multiply_adds(const Shape& input)
//   static constexpr LayerDescription description                the text in a summary: layers/layer_description.hpp
//   static constexpr GraphOperators onnx(const Shape& input)     what it is in ONNX: layers/graph_operator.hpp
//
// Extents are values here, and types in the interface of a network: see core/extents.hpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string_view>

#include <cupola/core/element_type.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/layers/initializer.hpp>
#include <cupola/layers/layer_description.hpp>
#include <cupola/layers/layer_kind.hpp>
#include <cupola/layers/parameters.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/ops/plan_node.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// An error in a layer's input; `text`, which lives as long as the program, completes "layer 3 (Linear<10>) ...".
struct ShapeError {
    std::string_view text;
};

/// The output extents of a layer, or the error that prevents them; `error` is empty if there is none.
struct ShapeResult {
    Shape shape{};
    std::string_view error{};

    constexpr ShapeResult(const Shape& output) : shape(output) {}  // NOLINT: a shape is the usual answer
    constexpr ShapeResult(ShapeError wrong)                        // NOLINT
        : error(wrong.text.empty() ? "has an input that it does not accept" : wrong.text) {}
};

/// The properties of a layer, in addition to its kind, that passes over a network use. The defaults are the safe ones.
struct LayerTraits {
    /// Backward reads the layer's input, the second input of a layer of net/named_values.hpp that has two, or its
    /// output, which is kept until then.
    bool backward_reads_input = true;
    bool backward_reads_second_input = true;
    bool backward_reads_output = true;
    /// Its operation can apply a ReLU, or a ReLU6, to its output: BuildContext::activation.
    bool absorbs_relu = false, absorbs_relu6 = false;
    /// Its operation can apply the mask of a ReLU in the layer before it to its gradient, because each output is one of
    /// the inputs: BuildContext::applies_relu_mask_of_previous.
    bool can_apply_relu_mask = false;
    /// Its operation can leave out the gradients of its parameters, for a frozen layer:
    /// BuildContext::parameter_gradients. The gradients of another frozen layer are computed and discarded.
    bool can_omit_parameter_gradients = false;
    /// Backward reads the input for those gradients only.
    bool reads_input_for_parameters = false;
    /// The input has the extents of the output, and backward can write its gradient over that of the output: an element
    /// is read before that of the same place is written, and sums over all are computed before any is.
    bool input_gradient_in_place = false;
    /// What it reads: activations, or, with int32 (ids) or uint8, an input of the network of that type, unchanged from
    /// the batch: ForwardArgs::column.
    ElementType reads = ElementType::float32;
    /// For a layer of ids: they are in [0, ids).
    std::int64_t ids = 0;
    /// Its output lists the features of an image that files have in the order (channel, height, width), as Flatten's.
    bool flattens = false;
    /// It is the identity in evaluation, as Dropout is: two networks that differ in such layers alone predict the same.
    bool only_in_training = false;
    /// The device that the layer is placed on (layers/on_device.hpp); empty for the network's own device.
    std::string_view runs_on{};
};

template <class L>
concept InfersOutput = requires(const Shape& input) {
    { L::output(input) } -> std::convertible_to<ShapeResult>;
};

template <class L>
concept HasTraits = requires {
    { L::traits } -> std::convertible_to<LayerTraits>;
};

template <class L, class D, class T = float>
concept HasOperation = requires(const BuildContext<D, T>& build) { L::operation(build); };

namespace impl {

template <class L, class D, class T>
using ReturnedBy = decltype(L::operation(std::declval<const BuildContext<D, T>&>()));

template <class Returned>
struct OperationIn {
    using Type = Returned;
};
template <class Op, class Shape>
struct OperationIn<OperationFactory<Op, Shape>> {
    using Type = Op;
};

}  // namespace impl

/// The operation of layer `L` on device `D`, on activations of type `T`.
template <class L, class D, class T = float>
using OperationOf = typename impl::OperationIn<impl::ReturnedBy<L, D, T>>::Type;

/// Makes the operation of layer `L`, whose class must be defined.
template <class L, class D, class T>
[[nodiscard]] OperationOf<L, D, T> operation_of(const BuildContext<D, T>& build) {
    if constexpr (std::same_as<impl::ReturnedBy<L, D, T>, OperationOf<L, D, T>>) {
        return L::operation(build);
    } else {
        return L::operation(build)(build);
    }
}

/// Makes the node of layer `L`. Layers with the same operation share the code behind it.
template <class L, class Device, class T = float>
[[nodiscard]] std::unique_ptr<PlanNode<Device, T>> make_node(const BuildContext<Device, T>& build) {
    using Op = OperationOf<L, Device, T>;
    using Returned = impl::ReturnedBy<L, Device, T>;
    if constexpr (std::same_as<Returned, Op>) {
        return impl::node_made_by<Op, Device, T>([](const BuildContext<Device, T>& b) -> Op { return L::operation(b); },
                                                 build);
    } else if constexpr (std::same_as<Returned, OperationFactory<Op>>) {
        return impl::node_of<Op>(build);
    } else {
        return impl::node_of<Op>(build, L::operation(build).shape);
    }
}

/// A type that a `Sequential` accepts as a layer, on any device.
template <class L>
concept Layer = InfersOutput<L> && CompletesItsKind<L>;

/// A layer that can be trained on device `D`.
template <class L, class D, class T = float>
concept LayerOn = Layer<L> && HasOperation<L, D, T> && HasForward<OperationOf<L, D, T>, D, T> &&
                  HasBackward<OperationOf<L, D, T>, D, T>;

template <class L>
[[nodiscard]] constexpr LayerTraits traits_of() {
    if constexpr (HasTraits<L>) {
        return L::traits;
    } else {
        return {};
    }
}

template <class L>
[[nodiscard]] constexpr std::int64_t multiply_adds_of(const Shape& input) {
    if constexpr (requires {
                      { L::multiply_adds(input) } -> std::convertible_to<std::int64_t>;
                  }) {
        return L::multiply_adds(input);
    } else {
        return 0;
    }
}

}}  // namespace cupola::CUPOLA_ABI
