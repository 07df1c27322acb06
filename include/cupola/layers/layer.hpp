// SPDX-License-Identifier: Apache-2.0
//
// The contract of a layer: a type without state. docs/how-to/your-own-layer.md writes one from scratch.
//
//   static constexpr ShapeResult output(const Shape& input)    its output extents, or what is wrong with its input
//   static auto operation(const BuildContext& build)           the object that computes it, for a device and batch size;
//                                                              a return type that a device lacks says that it is not for it
//
// and, where they apply,
//
//   static constexpr Parameters parameters(const Shape& input)   names, extents and initialisers
//   static constexpr Parameters buffers(const Shape& input)      the same for what is kept and not trained: running means
//   static constexpr LayerTraits traits                          what backward reads, what fuses, whether it is a view
//   static constexpr std::int64_t multiply_adds(const Shape& input)
//
// Extents are values here and types at the network's border: see core/extents.hpp.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <string_view>

#include <cupola/core/extents.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/layers/initializer.hpp>
#include <cupola/ops/local_response_norm.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola::inline CUPOLA_ABI {

/// What is wrong with a layer's input; `text` completes "layer 3 (Linear<10>) ...".
struct ShapeError {
    const char* text;
};

/// The output extents of a layer, or the mistake that prevents them.
struct ShapeResult {
    Shape shape{};
    const char* error = nullptr;

    constexpr ShapeResult(const Shape& output) : shape(output) {}   // NOLINT: a shape is the usual answer
    constexpr ShapeResult(ShapeError wrong) : error(wrong.text) {}  // NOLINT
};

/// One parameter of a layer.
struct Parameter {
    const char* name = "";
    Shape shape{};
    Initializer initializer{};
    std::int64_t fan_in = 1, fan_out = 1;
};

/// The parameters of a layer, at most `max_parameters`.
struct Parameters {
    std::array<Parameter, max_parameters> list{};
    std::size_t count = 0;

    constexpr Parameters() = default;
    template <std::same_as<Parameter>... P>
        requires(sizeof...(P) > 0 && sizeof...(P) <= max_parameters)
    constexpr Parameters(const P&... parameters) : list{parameters...}, count(sizeof...(P)) {}  // NOLINT
};

/// What the passes over a network need to know of a layer. The defaults are the safe ones.
struct LayerTraits {
    /// Backward reads the layer's input, or its output: they are kept until then.
    bool backward_reads_input = true;
    bool backward_reads_output = true;
    /// Output and input are the same memory.
    bool view = false;
    /// It is this activation and nothing else, so that a layer before it may take it in.
    Activation activation = Activation::none;
    /// Its operation can apply a ReLU to its output.
    bool absorbs_relu = false;
    /// Outside training its weight [out, ...] and bias can take in the normalisation of its output's channels: its
    /// operation then has a bias whatever the layer says (BuildContext::folded_norm).
    bool absorbs_norm = false;
    /// It is a sum of two inputs, or hands its input to two readers: see net/residual.hpp.
    bool two_inputs = false;
    bool two_readers = false;
    /// Where its buffers are a running mean and variance, what stays of them when a batch's come in, r = decay r +
    /// (1 - decay) b; negative where it has none.
    double statistics_decay = -1;
    double statistics_epsilon = 0;
    /// Its operation can mask its gradient for a ReLU in the layer before it: each output is one of the inputs.
    bool can_apply_relu_mask = false;
    /// Where it is a pooling or a local response normalisation, and nothing else: its shape for an input. Two such
    /// neighbours become one operation.
    PoolingShape (*pooling)(const Shape& input) = nullptr;
    LocalResponseNormShape (*local_norm)(const Shape& input) = nullptr;
    /// Whether it has them: under a sanitizer, g++ 12 compares no function's address with null in a constant.
    bool pools = false, normalizes_locally = false;
    /// The device that it is placed on (layers/on_device.hpp); empty for the network's own.
    std::string_view runs_on{};
};

template <class L>
concept InfersOutput = requires(const Shape& input) {
    { L::output(input) } -> std::convertible_to<ShapeResult>;
};

template <class L>
concept HasParameters = requires(const Shape& input) {
    { L::parameters(input) } -> std::convertible_to<Parameters>;
};

template <class L>
concept HasBuffers = requires(const Shape& input) {
    { L::buffers(input) } -> std::convertible_to<Parameters>;
};

template <class L>
concept HasTraits = requires {
    { L::traits } -> std::convertible_to<LayerTraits>;
};

template <class L, class D, class T = float>
concept HasOperation = requires(const BuildContext<D, T>& build) { L::operation(build); };

/// The operation of layer `L` on device `D`, on activations of type `T`.
template <class L, class D, class T = float>
using OperationOf = decltype(L::operation(std::declval<const BuildContext<D, T>&>()));

/// What can stand in a `Sequential`, on any device.
template <class L>
concept Layer = InfersOutput<L>;

/// What can be trained on device `D`.
template <class L, class D, class T = float>
concept LayerOn = Layer<L> && HasOperation<L, D, T> && HasForward<OperationOf<L, D, T>, D, T> &&
                  HasBackward<OperationOf<L, D, T>, D, T>;

template <class L>
[[nodiscard]] constexpr Parameters parameters_of(const Shape& input) {
    if constexpr (HasParameters<L>) {
        return L::parameters(input);
    } else {
        return {};
    }
}

template <class L>
[[nodiscard]] constexpr Parameters buffers_of(const Shape& input) {
    if constexpr (HasBuffers<L>) {
        return L::buffers(input);
    } else {
        return {};
    }
}

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

}  // namespace cupola::inline CUPOLA_ABI
