// SPDX-License-Identifier: Apache-2.0
//
// A network is a type: a flat list of layers after one Input.
//
//   struct Net : Sequential<Input<28, 28, 1>, Flatten, Named<"hidden", Linear<128>>, ReLU, Linear<10>> {};
//   static_assert(Net::output == Extents<10>{} && Net::parameter_count == 101'770);
//
// Deriving a struct gives the type a short name in errors and symbols. The list is walked once; the first error is
// reported in one compiler diagnostic with the layer's place, its type and the extents on both sides.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <cupola/core/checked_product.hpp>
#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/fusion.hpp>
#include <cupola/net/impl/each_layer.hpp>
#include <cupola/net/impl/walk.hpp>
#include <cupola/net/memory_plan.hpp>
#include <cupola/net/modules.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/table.hpp>
#include <cupola/ops/plan_node.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A flat list of layers. See the head of this file.
template <class... Modules>
struct Sequential {
private:
    static constexpr impl::WholeWalk<Modules...> walk{};
    static_assert(static_assert_message<walk.diagnostic>());
    static constexpr impl::LayerTable<walk.layers.size(), walk.list_count> table{walk.layers};

public:
    /// False after an error: code that uses the network then reports nothing further.
    static constexpr bool valid = walk.diagnostic.empty();
    /// Whether the fusion pass runs; false in `Unfused<Net>`.
    static constexpr bool fusion = true;
    /// The precision of the activations; `InPrecision<P, Net>` sets another.
    using Precision = Float32;

    static constexpr std::size_t layer_count = walk.layers.size();
    static constexpr std::span<const LayerInfo> layers{table.layers};
    static constexpr Shape input_shape = valid ? walk.layers[0].input : Shape{1};
    static constexpr Shape output_shape = valid ? walk.shape : Shape{1};
    static constexpr ExtentsOf<input_shape> input{};
    static constexpr ExtentsOf<output_shape> output{};
    /// The outputs of the network, in the order of the list: one per Output, and the last value, whose extents are
    /// `output`.
    static constexpr auto outputs = [] {
        std::array<NetworkOutput, valid ? count_outputs(walk.layers) : 0> result{};
        if (valid) find_outputs(walk.layers, result);
        return result;
    }();
    /// The number of parameters, and the number of elements of an arena that holds them (each starts on a cache line);
    /// the same for the buffers.
    static constexpr std::int64_t parameter_count = count_parameters(walk.layers);
    static constexpr std::int64_t parameter_elements = walk.parameter_elements;
    static constexpr std::int64_t buffer_elements = walk.buffer_elements;
    /// The same for the parameters that are trained: all, or those that are not frozen (net/frozen.hpp).
    static constexpr std::int64_t trained_count = parameter_count, trained_elements = parameter_elements;

    /// Makes the operation of a node for a device and a batch size.
    template <class Device, class T>
    [[nodiscard]] static std::unique_ptr<PlanNode<Device, T>> node(const NodeInfo& info,
                                                                   const BuildContext<Device, T>& build) {
        static constexpr auto collected = [] {
            impl::CollectMakers<Device, T, layer_count> result;
            impl::for_each_layer_of(impl::ModuleList<Modules...>{}, result);
            return result;
        }();
        if (info.pattern == no_pattern) return collected.makers[info.layer](build);
        return impl::fused_node_makers<Device, T, collected.kinds>[info.pattern](table.layers, info, build);
    }

    /// Calls visitor.template layer<L>() for the type of each of `layers`, in their order.
    template <class Visitor>
    static constexpr void visit_layer_types(Visitor& visitor) {
        impl::for_each_layer_of(impl::ModuleList<Modules...>{}, visitor);
    }

    /// A message about the first layer that cannot be trained on `Device` in a precision or, without `backward`, cannot
    /// be run; empty if there is none.
    template <class Device, class Policy = Float32, bool backward = true>
    [[nodiscard]] static constexpr CompileTimeMessage operations_diagnostic() {
        impl::RequireTrainable<Device, Policy, backward> required{table.layers};
        impl::for_each_layer_of(impl::ModuleList<Modules...>{}, required);
        return required.message;
    }
};

/// The same network without the fusion pass, to test the pass.
template <class Net>
struct Unfused : Net {
    static constexpr bool fusion = false;
};

/// The same network computed in another precision (core/element_type.hpp): `struct Net16 : InPrecision<MixedBFloat16,
/// Net> {}`. Its parameters, its checkpoints, its inputs and its outputs stay float.
template <class Policy, class Net>
struct InPrecision : Net {
    using Precision = Policy;
};

/// A network that can be trained and run: `Sequential`, or a type derived from one.
template <class N>
concept Network = requires {
    { N::layers } -> std::convertible_to<std::span<const LayerInfo>>;
    { N::valid } -> std::convertible_to<bool>;
    { N::fusion } -> std::convertible_to<bool>;
    { N::parameter_count } -> std::convertible_to<std::int64_t>;
    { N::parameter_elements } -> std::convertible_to<std::int64_t>;
    { N::buffer_elements } -> std::convertible_to<std::int64_t>;
    { N::trained_elements } -> std::convertible_to<std::int64_t>;
    typename N::Precision::Activation;
};

namespace impl {

[[nodiscard]] constexpr ElementType input_type(std::span<const LayerInfo> layers) {
    return layers.empty() ? ElementType::float32 : layers.front().column_type;
}
template <ElementType type>
struct InputValueOf {
    using Type = float;
};
template <>
struct InputValueOf<ElementType::int32> {
    using Type = std::int32_t;
};
template <>
struct InputValueOf<ElementType::uint8> {
    using Type = std::uint8_t;
};

}  // namespace impl

/// The type of the values of a network's Input: float, std::int32_t for ids, or std::uint8_t for bytes.
template <Network Net>
using InputValue = typename impl::InputValueOf<impl::input_type(Net::layers)>::Type;

namespace impl {

/// Throws OutOfMemory with the bytes of the activations for a batch, as laid out by the memory plan.
[[noreturn, gnu::cold]] inline void throw_uncountable(std::span<const LayerInfo> layers, bool fusion,
                                                      std::int64_t batch, bool training, std::size_t element_bytes) {
    // Every tensor of a batch of this size ends on a cache line: the bytes of a plan are proportional to the batch.
    constexpr std::int64_t counted = 64;
    FixedArray<NodeInfo> nodes(layers.size());
    nodes.keep_first(fuse(layers, fusion, nodes, training));
    FixedArray<Lifetime> lifetimes(lifetimes_of(nodes.size(), recomputes(layers)));
    std::size_t bytes = plan_activations(nodes, counted, training, false, lifetimes, element_bytes);
    if (element_bytes != sizeof(float)) bytes += plan_ends(layers, counted, training, false, element_bytes).bytes;
    throw_too_many_bytes(text("the activations of a batch of ", batch, " samples need"),
                         static_cast<double>(bytes) / static_cast<double>(counted) * static_cast<double>(batch));
}

/// Throws OutOfMemory for a batch whose plan may have sums of bytes that do not fit in 64 bits.
constexpr void require_countable(std::span<const LayerInfo> layers, bool fusion, std::int64_t batch, bool training,
                                 std::size_t element_bytes) {
    double elements = 0;
    for (const LayerInfo& layer : layers)
        elements += static_cast<double>(layer.input.size()) + static_cast<double>(layer.output.size());
    // Counts each value and its gradients; with what the operations save, the sum stays far below 2^64.
    constexpr double limit = 1LL << 56;
    if (3.0 * elements * static_cast<double>(element_bytes) * static_cast<double>(batch) > limit)
        throw_uncountable(layers, fusion, batch, training, element_bytes);
}

/// `activation_bytes` of a network for a batch in training, computed at run time.
[[nodiscard, gnu::cold]] inline std::size_t planned_activation_bytes(std::span<const LayerInfo> layers, bool fusion,
                                                                     std::int64_t batch, std::size_t element_bytes) {
    require_countable(layers, fusion, batch, true, element_bytes);
    FixedArray<NodeInfo> nodes(layers.size());
    nodes.keep_first(fuse(layers, fusion, nodes, true));
    FixedArray<Lifetime> lifetimes(lifetimes_of(nodes.size(), recomputes(layers)));
    const std::size_t ends =
        element_bytes == sizeof(float) ? 0 : plan_ends(layers, batch, true, false, element_bytes).bytes;
    return plan_activations(nodes, batch, true, false, lifetimes, element_bytes) + ends;
}

}  // namespace impl

/// Bytes of the activations and their gradients for a batch, as laid out by the memory plan: computed from the type.
/// Throws OutOfMemory if they exceed any computer's memory.
template <Network Net>
[[nodiscard]] constexpr std::size_t activation_bytes(std::int64_t batch, bool training = true) {
    std::array<NodeInfo, Net::layer_count> nodes{};
    std::array<Lifetime, lifetimes_of(Net::layer_count, recomputes(Net::layers))> lifetimes{};
    const std::size_t count = fuse(Net::layers, Net::fusion, nodes, training);
    using T = typename Net::Precision::Activation;
    impl::require_countable(Net::layers, Net::fusion, batch, training, sizeof(T));
    return plan_activations(std::span(nodes).first(count), batch, training, false, lifetimes, sizeof(T)) +
           (std::same_as<T, float> ? 0 : plan_ends(Net::layers, batch, training, false, sizeof(T)).bytes);
}

}}  // namespace cupola::CUPOLA_ABI
