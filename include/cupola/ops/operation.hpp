// SPDX-License-Identifier: Apache-2.0
//
// What an operation is: an object made once for a device and a batch size, that knows how much memory it needs beside
// its tensors, and computes forward and backward on pointers into arenas that it does not own.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cupola/core/extents.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/device/device.hpp>

namespace cupola::inline CUPOLA_ABI {

/// The most parameters that one layer has (weight, bias, scale, shift).
inline constexpr std::size_t max_parameters = 4;

/// What is fused into the operation before it.
enum class Activation : std::uint8_t { none, relu };

/// Bytes that an operation needs beside its tensors.
struct MemoryNeeds {
    /// Lives as long as the operation: packed weights.
    std::size_t packed = 0;
    /// Written by forward, read by backward: the places of maxima, a mask.
    std::size_t saved = 0;
    /// Used within one call.
    std::size_t scratch = 0;
};

/// Where an operation stands: what it is made from.
template <class Device, class T = float>
struct BuildContext {
    using DeviceType = Device;
    using Element = T;
    typename Device::Context& context;
    std::int64_t batch;
    Shape input;
    Shape output;
    /// Its place in the network: layers of one kind draw different random numbers.
    std::uint32_t layer = 0;
    Activation activation = Activation::none;
    /// Whether backward of this operation leaves out the mask of its fused activation, because the operation after it
    /// has applied it, and whether this operation applies it for the one before.
    bool relu_mask_applied_by_next = false, applies_relu_mask_of_previous = false;
    /// Whether weight and bias hold the batch normalisation after it too.
    bool folded_norm = false;
    /// Whether backward is called at all, and whether it is asked for the gradient of the input.
    bool training = true;
    bool input_gradient = true;
    /// Whether its outputs may have other bits than training's: not so in a plan that shows what training computed.
    bool inference = false;
};

/// What an operation's `prepare` and `forward` are called with. `T` is the element type of activations; parameters and their
/// gradients are float. Activations are batch x height x width x channels, or batch x features, in row-major order. A plan
/// binds the pointers once, when it is given its memory; from call to call only the batch, the bases of parameters and
/// buffers, and the last four members change.
template <class Device, class T = float>
struct ForwardArgs {
    typename Device::Context& context;
    const T* input = nullptr;
    T* output = nullptr;
    /// The other input of an operation that has two.
    const T* second_input = nullptr;
    std::array<const float*, max_parameters> parameters{};
    /// Running statistics, read outside training; and where training writes those of this batch, or null.
    std::array<const float*, max_parameters> buffers{};
    std::array<float*, max_parameters> statistics{};
    /// As asked for in MemoryNeeds.
    std::byte* packed = nullptr;
    std::byte* saved = nullptr;
    std::byte* scratch = nullptr;
    /// Random numbers: of the run, of the step, and the place of this batch's first sample in the global batch.
    bool training = true;
    std::uint64_t seed = 0;
    std::uint32_t step = 0;
    std::int64_t first_sample = 0;
};

/// What `backward` is called with: the tensors of forward, and gradients.
template <class Device, class T = float>
struct BackwardArgs : ForwardArgs<Device, T> {
    /// The gradient of `output`. The operation may overwrite it.
    T* output_gradient = nullptr;
    /// The gradient that the second reader of `output` wrote, where two operations read it.
    const T* second_output_gradient = nullptr;
    /// Written, not added to. Null where nobody wants it.
    T* input_gradient = nullptr;
    T* second_input_gradient = nullptr;
    /// Written, or added to where `accumulate` is set.
    std::array<float*, max_parameters> parameter_gradients{};
    bool accumulate = false;
};

namespace impl {

/// Whether this file may instantiate an operation: an operation of Cupola's own on `Host` only where cupola::ops is not linked, or
/// in its sources, as the library has it compiled. A formula's operation and another device's are the program's.
template <class Op>
[[nodiscard]] consteval bool compiled_here() {
#if defined(CUPOLA_OPS) && !defined(CUPOLA_COMPILING_OPS)
    const std::string_view name = function_name<Op>().substr(name_begin);
    const std::size_t arguments = name.find('<');
    if (arguments == std::string_view::npos) return true;
    const std::string_view scope = name.substr(0, arguments),
                           device = name.substr(arguments + 1, name.find(',') - arguments - 1);
    const bool own = scope.starts_with("cupola::") && scope.find("ops::") != std::string_view::npos &&
                     device.starts_with("cupola::") && device.ends_with("::Host");
    return !own || scope.ends_with("::Pointwise") || scope.ends_with("::Offloaded");
#else
    return true;
#endif
}

}  // namespace impl

/// Makes an operation. A function of its own, because cupola::ops has it compiled for each operation of `Host`.
template <class Op, class BuildContext, class Shape>
[[nodiscard]] Op make_operation(const BuildContext& build, const Shape& shape) {
    static_assert(impl::compiled_here<Op>(),
                  "cupola::ops lacks this operation: it is missing in <cupola/compiled_operations.hpp>");
    return {build, shape};
}

template <class Op, class Device, class T = float>
concept HasForward = requires(Op& op, const ForwardArgs<Device, T>& args) { op.forward(args); };

template <class Op, class Device, class T = float>
concept HasBackward = requires(Op& op, const BackwardArgs<Device, T>& args) { op.backward(args); };

template <class Op, class Device, class T = float>
concept Operation = HasForward<Op, Device, T> && HasBackward<Op, Device, T>;

/// An operation that reduces over the batch and can be cut in two there, so that replicas reduce over all their
/// batches:
///
///   std::int64_t statistics_size() const               how many sums, `double`s, they all-reduce in each direction
///   void forward_statistics(args, double* sums)      this replica's
///   void forward_apply(args, const double* sums)     the rest of forward, with the merged ones
///   void backward_statistics(args, double* sums), void backward_apply(args, const double* sums)
///   static merge_forward(std::span<const double* const> parts, std::int64_t size, double* merged), merge_backward(...)
template <class Op>
concept ReducesStatistics = requires(const Op& op) {
    { op.statistics_size() } -> std::convertible_to<std::int64_t>;
};

/// An operation may say what memory it needs; one that does not needs none.
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

}  // namespace cupola::inline CUPOLA_ABI
