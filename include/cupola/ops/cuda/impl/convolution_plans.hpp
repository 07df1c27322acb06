// SPDX-License-Identifier: Apache-2.0
//
// The three directions of a convolution as cuDNN graphs, and the plans chosen for them:
//
//   forward           y  = relu(x * w + b), b and relu where present      tensors x, w, y, and b where present
//   backward data     dx from dy and w                                    tensors dx, w, dy
//   backward weights  dw from x and dy                                    tensors x, dw, dy
//
// All tensors, including the weights and the bias, have the activations' element type: cuDNN 9.19 has no engine for
// weight gradients in float from bfloat16 or half, and for a float bias with those types only engines compiled at run
// time. Sums are in float.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/device/plan_choices.hpp>
#include <cupola/ops/convolution.hpp>
#include <cupola/ops/cuda/impl/cudnn_engines.hpp>
#include <cupola/ops/cuda/impl/plan_timer.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

enum class ConvolutionDirection : std::uint8_t { forward, backward_data, backward_weights };

/// One graph: the key of a plan.
struct ConvolutionProblem {
    ConvolutionDirection direction = ConvolutionDirection::forward;
    std::int64_t batch = 1;
    ConvolutionShape shape;
    ElementType element = ElementType::float32;
    /// The activation after forward; `shape.bias` says whether a bias is added.
    bool relu = false;
};

/// Whether cuDNN computes the ReLU after a forward convolution: it has precompiled engines for one after a bias only.
[[nodiscard]] constexpr bool can_have_relu(ConvolutionDirection direction, const ConvolutionShape& shape) {
    return direction == ConvolutionDirection::forward && shape.bias;
}
/// The graph for a convolution that has a ReLU or none: with the ReLU where it can have one.
[[nodiscard]] constexpr ConvolutionProblem convolution_problem(ConvolutionDirection direction, std::int64_t batch,
                                                               const ConvolutionShape& shape, ElementType element,
                                                               bool relu) {
    return {direction, batch, shape, element, relu && can_have_relu(direction, shape)};
}

/// "forward, bias, ReLU of a convolution in float32: 128 x 24 x 24 x 3 -> 24 x 24 x 64, window 5 x 5, stride 1 x 1,
/// padding 2 2 2 2": used in messages, and as the key of a choice. Padding is given for height before and after, then
/// for width. ", dilation 2 x 2" and ", 4 groups" follow where there are such.
[[nodiscard, gnu::cold]] inline std::string describe(const ConvolutionProblem& problem) {
    const auto& [h, w, in, out, bias, groups] = problem.shape;
    const bool forward = problem.direction == ConvolutionDirection::forward;
    const std::string_view name = forward                                                    ? "forward"
                                  : problem.direction == ConvolutionDirection::backward_data ? "input gradient"
                                                                                             : "weight gradient";
    return text(name, forward && bias ? ", bias" : "", forward && problem.relu ? ", ReLU" : "", " of a convolution in ",
                to_string(problem.element), ": ", problem.batch, " x ", h.input, " x ", w.input, " x ", in, " -> ",
                h.output, " x ", w.output, " x ", out, ", window ", h.window, " x ", w.window, ", stride ", h.stride,
                " x ", w.stride, ", padding ", h.pad_begin, ' ', h.pad_end, ' ', w.pad_begin, ' ', w.pad_end,
                h.dilation == 1 && w.dilation == 1 ? "" : text(", dilation ", h.dilation, " x ", w.dilation),
                groups == 1 ? "" : text(", ", groups, " groups"));
}

[[nodiscard]] constexpr cudnnDataType_t cudnn_type(ElementType element) {
    return element == ElementType::bfloat16  ? CUDNN_DATA_BFLOAT16
           : element == ElementType::float16 ? CUDNN_DATA_HALF
                                             : CUDNN_DATA_FLOAT;
}

/// The graph; its tensors are numbered in the order given at the head of this file. cuDNN finds the number of groups
/// from the channels of the weights.
[[nodiscard, gnu::cold]] inline CudnnDescriptor convolution_graph(const CudnnTarget& target,
                                                                  const ConvolutionProblem& problem) {
    const ConvolutionShape& shape = problem.shape;
    const auto& [h, w] = std::pair(shape.height, shape.width);
    const cudnnDataType_t type = cudnn_type(problem.element);
    const std::array<std::int64_t, 4> outputs{problem.batch, shape.out_channels, h.output, w.output};
    const CudnnDescriptor x = cudnn_tensor(0, type, {problem.batch, shape.in_channels, h.input, w.input});
    const CudnnDescriptor weights =
        cudnn_tensor(1, type, {shape.out_channels, shape.group_channels(), h.window, w.window});
    const CudnnDescriptor y = cudnn_tensor(2, type, outputs);
    const CudnnDescriptor convolution = cudnn_convolution({h.stride, w.stride}, {h.pad_begin, w.pad_begin},
                                                          {h.pad_end, w.pad_end}, {h.dilation, w.dilation});
    std::vector<CudnnDescriptor> operations;
    if (problem.direction != ConvolutionDirection::forward) {
        const bool data = problem.direction == ConvolutionDirection::backward_data;
        const CudnnConvolutionNames& names = data ? cudnn_backward_data_names : cudnn_backward_weights_names;
        operations.push_back(cudnn_convolution_operation(names, convolution, x, weights, y));
        return cudnn_operation_graph(target, operations);
    }
    const CudnnDescriptor bias = cudnn_tensor(3, type, {1, shape.out_channels, 1, 1});
    const CudnnDescriptor sum = cudnn_tensor(4, CUDNN_DATA_FLOAT, outputs, true);
    const CudnnDescriptor biased = cudnn_tensor(5, CUDNN_DATA_FLOAT, outputs, true);
    operations.push_back(cudnn_convolution_operation(cudnn_forward_names, convolution, x, weights,
                                                     shape.bias || problem.relu ? sum : y));
    if (shape.bias)
        operations.push_back(cudnn_pointwise_operation(CUDNN_POINTWISE_ADD, sum, &bias, problem.relu ? biased : y));
    if (problem.relu)
        operations.push_back(
            cudnn_pointwise_operation(CUDNN_POINTWISE_RELU_FWD, shape.bias ? biased : sum, nullptr, y));
    return cudnn_operation_graph(target, operations);
}

/// The rules for an element type: float is float32 throughout unless `tf32` allows its factors to be rounded. Where
/// factors are rounded in any case, the tensor cores multiply them.
[[nodiscard]] constexpr EngineRules convolution_rules(ElementType element, bool tf32, bool deterministic) {
    const bool rounded = element != ElementType::float32 || tf32;
    return {.rounded_factors = rounded, .tensor_cores = rounded, .deterministic = deterministic};
}

/// The key under which a choice is kept: cuDNN's version, the device, the rules, and the problem.
[[nodiscard, gnu::cold]] inline std::string plan_key(const CudnnTarget& target, const ConvolutionProblem& problem,
                                                     const EngineRules& rules) {
    const bool tf32 = problem.element == ElementType::float32 && rules.rounded_factors;
    return text("cuDNN ", static_cast<std::int64_t>(cudnnGetVersion()), ", ", target.device_name, ", ",
                tf32 ? "TF32, " : "", rules.deterministic ? "deterministic, " : "", describe(problem));
}

/// The bytes of the tensors of the graph, in their order.
[[nodiscard, gnu::cold]] inline std::vector<std::size_t> tensor_bytes(const ConvolutionProblem& problem) {
    const auto& [h, w, in, out, bias, groups] = problem.shape;
    const auto bytes = [&](std::int64_t elements) {
        return static_cast<std::size_t>(elements) * size_of(problem.element);
    };
    std::vector<std::size_t> result{bytes(problem.batch * h.input * w.input * in), bytes(problem.shape.weights()),
                                    bytes(problem.batch * h.output * w.output * out)};
    if (problem.direction == ConvolutionDirection::forward && bias) result.push_back(bytes(out));
    return result;
}

/// A variant of the problem. The engine of a convolution that could have a ReLU is chosen, timed and kept as if it
/// had one, so that fusing a ReLU changes no other bits: with a bias cuDNN numbers the engines of both graphs in the
/// same way, and times that are measured twice may lead to two choices. `before` is called with the tensors of the
/// graph and then with those of `more_tensors`, and writes `scratch` bytes.
[[nodiscard, gnu::cold]] inline PlanVariant convolution_variant(
    const CudnnTarget& target, const ConvolutionProblem& problem, const EngineRules& rules,
    const std::vector<std::size_t>& more_tensors = {}, std::size_t scratch = 0,
    FunctionRef<void(std::span<const void* const> tensors)> before = {}) {
    ConvolutionProblem chosen = problem;
    chosen.relu = problem.relu || can_have_relu(problem.direction, problem.shape);
    PlanVariant variant{.graph = convolution_graph(target, chosen),
                        .used = chosen.relu == problem.relu ? CudnnDescriptor() : convolution_graph(target, problem),
                        .key = plan_key(target, chosen, rules),
                        .tensors = tensor_bytes(problem),
                        .scratch = scratch,
                        .before = before};
    variant.graph_tensors = variant.tensors.size();
    variant.tensors.insert(variant.tensors.end(), more_tensors.begin(), more_tensors.end());
    return variant;
}

/// The plan of one of the variants of a problem. `trial` has the stream and the limit of time; without a limit nothing
/// is timed. Throws DeviceError with the problem and the rejected engines where no engine is left.
[[nodiscard, gnu::cold]] inline ChosenPlan plan_convolution(const CudnnTarget& target,
                                                            const ConvolutionProblem& problem, const EngineRules& rules,
                                                            std::span<const PlanVariant> variants, PlanChoices* choices,
                                                            const PlanTrial& trial) {
    ChosenPlan result = choose_plan(target, variants, rules, choices, trial);
    require<DeviceError>(static_cast<bool>(result), "cuDNN has no engine on ", target.device_name, " for the ",
                         describe(problem), "; ", result.dropped.to_text());
    return result;
}
[[nodiscard, gnu::cold]] inline ChosenPlan plan_convolution(const CudnnTarget& target,
                                                            const ConvolutionProblem& problem, const EngineRules& rules,
                                                            PlanChoices* choices = nullptr,
                                                            const PlanTrial& trial = {}) {
    const PlanVariant variant = convolution_variant(target, problem, rules);
    return plan_convolution(target, problem, rules, std::span(&variant, 1), choices, trial);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
