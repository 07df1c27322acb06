// SPDX-License-Identifier: Apache-2.0
//
// An operation is an object made once for a device and a batch size. It declares the memory that it needs in addition
// to its tensors, and computes forward and backward on pointers into arenas that it does not own.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cupola/core/element_type.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/device/device.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The maximum number of parameters of a layer (weight, bias, scale, shift).
inline constexpr std::size_t max_parameters = 4;

enum class Direction : std::uint8_t { forward, backward };

/// The activation that is fused into the preceding operation.
enum class Activation : std::uint8_t { none, relu, relu6 };

[[nodiscard]] constexpr std::string_view to_string(Activation activation) {
    constexpr std::string_view names[] = {"none", "ReLU", "ReLU6"};
    return names[static_cast<std::size_t>(activation)];
}

/// An activation that an operation applies as it writes its output, outside training (net/prediction/join.hpp): the
/// formula's number and constants in the device's library, and a factor of its values; and, for other kernels, a
/// function that applies it to `count` activations of the plan's type.
struct OutputFormula {
    int algorithm = 0;
    float alpha = 0, beta = 0, scale = 1;
    void (*apply)(void* values, std::int64_t count) = nullptr;
};

/// The bytes that an operation needs in addition to its tensors.
struct MemoryNeeds {
    /// Lives as long as the operation: packed weights.
    std::size_t packed = 0;
    /// Written by forward, read by backward: the window offsets of maxima, a mask.
    std::size_t saved = 0;
    /// Used within one call.
    std::size_t scratch = 0;
};

/// What a call of an operation with a member `OperationWork work(Direction) const` computes, for a profile.
struct OperationWork {
    /// Floating-point operations on vectors of floats, in place of its layers' multiply-adds; 0: those.
    double operations = 0;
    /// Bytes of its own memory that it writes and reads again, both counted, in blocks that fit the nearest cache.
    double cached_bytes = 0;
};

/// The arguments from which an operation is made.
template <class Device, class T = float>
struct BuildContext {
    using DeviceType = Device;
    using Element = T;
    typename Device::Context& context;
    std::int64_t batch;
    Shape input;
    Shape output;
    /// The layer's index in the network: layers of the same kind draw different random numbers.
    std::uint32_t layer = 0;
    Activation activation = Activation::none;
    /// Whether backward of this operation omits the mask of its fused activation, because the next operation has
    /// applied it, and whether this operation applies the mask for the preceding one.
    bool relu_mask_applied_by_next = false, applies_relu_mask_of_previous = false;
    /// Whether weight and bias contain the following batch normalisation.
    bool folded_norm = false;
    /// Whether it adds its result to what is in its output, and what it applies to the sum in place of `activation`.
    bool adds_to_output = false;
    const OutputFormula* formula = nullptr;
    /// Whether backward is called, and whether it must compute the gradient of the input.
    bool training = true;
    bool input_gradient = true;
    /// False where an operation is a part of another one that calls its backward only: it may leave out what forward
    /// needs, and `prepare` is called for backward.
    bool forward = true;
    /// False for a frozen layer whose traits say that its operation can leave out the gradients of its parameters
    /// (LayerTraits::can_omit_parameter_gradients): BackwardArgs::parameter_gradients are then null.
    bool parameter_gradients = true;
    /// Whether outputs may differ in rounding from those in training: false in a plan that reports what training
    /// computed.
    bool inference = false;
    /// Whether backward adds to the gradient of its second input, because a later reader of that value has written it.
    bool adds_second_gradient = false;
    /// The extents of the second input of an operation that has two.
    Shape second_input{};
};

/// The arguments of an operation's `prepare` and `forward`. `T` is the element type of activations; parameters and
/// their gradients are float. Activations are batch x height x width x channels, or batch x features, in row-major
/// order. A plan binds the pointers once, when it is given its memory; from call to call only the batch, the bases of
/// parameters and buffers, and the last four members change.
template <class Device, class T = float>
struct ForwardArgs {
    typename Device::Context& context;
    const T* input = nullptr;
    T* output = nullptr;
    /// The second input of an operation that has two.
    const T* second_input = nullptr;
    /// The column of the batch that a FromInput reads (floats), or a layer whose LayerTraits::reads is another type
    /// (values of that type).
    const void* column = nullptr;
    std::array<const float*, max_parameters> parameters{};
    /// Running statistics, which are read outside training; and the place where training writes the statistics of this
    /// batch, or null.
    std::array<const float*, max_parameters> buffers{};
    std::array<float*, max_parameters> statistics{};
    /// Memory as requested by MemoryNeeds; `scratch` starts at a multiple of scratch_alignment<Device>, the others of
    /// `alignment`.
    std::byte* packed = nullptr;
    std::byte* saved = nullptr;
    std::byte* scratch = nullptr;
    /// Random numbers: the seed of the run, the step, and the place of this batch's first sample in the global batch.
    bool training = true;
    std::uint64_t seed = 0;
    std::uint32_t step = 0;
    std::int64_t first_sample = 0;
};

/// Sums of a gradient over its positions, per channel, in parts: one row of floats per part, whose sum is added in the
/// order of the parts. An operation that writes a gradient can sum it for the one that reads it: see
/// PlanNode::gradient_sum_parts.
struct ChannelSums {
    float* partial = nullptr;
    std::int64_t parts = 0;
    /// Whether the gradient, before it is summed, is masked for the ReLU of the operation that reads it, although
    /// BuildContext::applies_relu_mask_of_previous is not set.
    bool masked = false;
};

/// The arguments of `backward`: the tensors of forward, and gradients.
template <class Device, class T = float>
struct BackwardArgs : ForwardArgs<Device, T> {
    /// The gradient of `output`. The operation may overwrite it.
    T* output_gradient = nullptr;
    /// The gradient that the second reader of `output` wrote, where two operations read it.
    const T* second_output_gradient = nullptr;
    /// Written, not added to; the second is added to where BuildContext::adds_second_gradient is set. Null where not
    /// needed. The first may be `output_gradient` for a layer with LayerTraits::input_gradient_in_place.
    T* input_gradient = nullptr;
    T* second_input_gradient = nullptr;
    /// Written, or added to where `accumulate` is set.
    std::array<float*, max_parameters> parameter_gradients{};
    bool accumulate = false;
    /// The sums of `output_gradient` that the next operation has written, and those of `input_gradient`, which this
    /// operation writes; without parts where they are not needed.
    ChannelSums output_gradient_sums{}, input_gradient_sums{};
};

namespace impl {

/// Whether the program is compiled separately and src.hpp compiles the operation for the device, in float and bfloat16
/// (listed in compiled_operations.hpp). The headers then need not define its class.
template <template <class, class> class Op, class Device>
inline constexpr bool compiled_for = false;

template <class Op>
inline constexpr bool in_library = false;
template <template <class, class> class Op, class Device, class T>
    requires(std::same_as<T, float> || std::same_as<T, BFloat16>)
inline constexpr bool in_library<Op<Device, T>> = compiled_for<Op, Device>;

}  // namespace impl

/// An operation that exists on its device: its class is defined, or compiled separately.
template <class Op>
concept AvailableOperation = impl::in_library<Op> || requires { sizeof(Op); };

/// An operation without a shape is made from the BuildContext alone.
struct NoShape {};

/// Makes an operation as `Op(build, shape)`. The layers return it from `operation` in place of the operation, whose
/// class may be only declared in a program that is compiled separately.
template <class Op, class Shape = NoShape>
struct OperationFactory {
    using Operation = Op;
    [[no_unique_address]] Shape shape{};

    template <class BuildContext>
    [[nodiscard]] Op operator()(const BuildContext& build) const {
        if constexpr (std::same_as<Shape, NoShape>) {
            return Op(build);
        } else {
            return Op(build, shape);
        }
    }
};

/// The factory of `Op` for the device and the element type of a BuildContext; not a type where the device lacks the
/// operation.
template <template <class, class> class Op, class BuildContext, class Shape = NoShape>
    requires AvailableOperation<Op<typename BuildContext::DeviceType, typename BuildContext::Element>>
using FactoryOf = OperationFactory<Op<typename BuildContext::DeviceType, typename BuildContext::Element>, Shape>;

template <class Op, class Device, class T = float>
concept HasForward = impl::in_library<Op> || requires(Op& op, const ForwardArgs<Device, T>& args) { op.forward(args); };

template <class Op, class Device, class T = float>
concept HasBackward =
    impl::in_library<Op> || requires(Op& op, const BackwardArgs<Device, T>& args) { op.backward(args); };

template <class Op, class Device, class T = float>
concept Operation = HasForward<Op, Device, T> && HasBackward<Op, Device, T>;

/// An operation that reduces over the batch and can be split there, so that replicas reduce over all their batches:
///
///   std::int64_t statistics_size() const               the number of sums, `double`s, to all-reduce in each direction
///   void forward_statistics(args, double* sums)      the sums of this replica
///   void forward_apply(args, const double* sums)     the rest of forward, with the merged sums
///   void backward_statistics(args, double* sums), void backward_apply(args, const double* sums)
///   static merge_forward(std::span<const double* const> parts, std::int64_t size, double* merged), merge_backward(...)
template <class Op>
concept ReducesStatistics = requires(const Op& op) {
    { op.statistics_size() } -> std::convertible_to<std::int64_t>;
};

/// The memory that an operation declares that it needs; none without a declaration.
template <class Op>
[[nodiscard]] MemoryNeeds memory_needs(const Op& op) {
    if constexpr (requires {
                      { op.needs() } -> std::convertible_to<MemoryNeeds>;
                  }) {
        return op.needs();
    } else {
        return {};
    }
}

}}  // namespace cupola::CUPOLA_ABI
