// SPDX-License-Identifier: Apache-2.0
//
// Convolution on `Cuda` by cuDNN's graph interface, with bias and ReLU in the same call. Plans are chosen in the
// constructor: CudaOptions sets the rules, and may contain the choices of another run.
//
// In float, weights and their gradients are used in place. In bfloat16 and in half, cuDNN 9.19 requires the weights and
// the bias in the same type, and returns the gradient of the weights in it: `prepare` rounds the former, `backward`
// widens the latter.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/activation.hpp>
#include <cupola/ops/convert.hpp>
#include <cupola/ops/convolution.hpp>
#include <cupola/ops/cuda/elementwise.hpp>
#include <cupola/ops/cuda/impl/convolution_kernels.cuh>
#include <cupola/ops/cuda/impl/convolution_plans.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::CudaElement T>
class Convolution<Cuda, T> {
public:
    [[gnu::cold]] Convolution(const BuildContext<Cuda, T>& build, const ConvolutionShape& shape)
        : shape_(shape),
          relu_(build.activation == Activation::relu),
          mask_(relu_ && !build.relu_mask_applied_by_next),
          weights_(shape.out_channels * shape.height.window * shape.width.window * shape.in_channels),
          outputs_(build.batch * build.output.size()),
          rows_(build.batch * shape.height.output * shape.width.output, shape.out_channels) {
        const CudaContext& context = build.context;
        const impl::CudnnTarget target{.handle = context.cudnn(),
                                       .device_name = impl::cuda_device_name(context.ordinal())};
        const impl::EngineRules rules =
            impl::convolution_rules(element_type_of<T>, context.options().tf32, context.options().deterministic);
        PlanChoices* const choices = context.options().plan_choices.get();
        const auto plan = [&](impl::ConvolutionDirection direction) {
            impl::ConvolutionProblem problem{direction, build.batch, shape, element_type_of<T>, relu_};
            // cuDNN's engines with a ReLU require a bias before it: zeros where there is none.
            problem.shape.bias = adds_bias();
            return std::move(impl::plan_convolution(target, problem, rules, choices).plan);
        };
        forward_ = plan(impl::ConvolutionDirection::forward);
        if (!build.training) return;
        if (build.parameter_gradients) backward_weights_ = plan(impl::ConvolutionDirection::backward_weights);
        if (build.input_gradient) backward_data_ = plan(impl::ConvolutionDirection::backward_data);
    }

    [[nodiscard]] MemoryNeeds needs() const {
        const std::size_t workspace = std::max(
            {forward_.workspace_bytes(), backward_weights_.workspace_bytes(), backward_data_.workspace_bytes()});
        if (!backward_weights_) return {.packed = packed_weights_bytes() + packed_bias_bytes(), .scratch = workspace};
        return {.packed = packed_weights_bytes() + packed_bias_bytes(),
                .scratch = gradient_bytes() + std::max(workspace, shape_.bias ? rows_.partial_bytes() : 0)};
    }

    /// Rounds the weights and the bias. Called once per change of the parameters.
    void prepare(const ForwardArgs<Cuda, T>& args) {
        if constexpr (!std::same_as<T, float>) {
            Convert<Cuda>::run(args.context, args.parameters[0], reinterpret_cast<T*>(args.packed), weights_);
            if (shape_.bias)
                Convert<Cuda>::run(args.context, args.parameters[1], packed_bias(args), shape_.out_channels);
        }
        if (adds_bias() && !shape_.bias) {
            impl::check_cuda(cudaMemsetAsync(packed_bias(args), 0, packed_bias_bytes(), args.context.stream()),
                             "cudaMemsetAsync");
        }
    }

    void forward(const ForwardArgs<Cuda, T>& args) {
        const std::array<const void*, 4> pointers{args.input, weights(args), args.output,
                                                  adds_bias() ? bias(args) : nullptr};
        forward_.run(args.context.cudnn(), args.scratch, std::span(pointers).first(adds_bias() ? 4 : 3));
    }

    void backward(const BackwardArgs<Cuda, T>& args) {
        const CudaContext& context = args.context;
        const bool trains(backward_weights_);
        std::byte* const workspace = args.scratch + (trains ? gradient_bytes() : 0);
        if (shape_.bias && trains) {
            impl::mask_and_sum_rows(context, rows_, mask_ ? args.output : nullptr, args.output_gradient,
                                    args.accumulate, args.parameter_gradients[1], workspace);
        } else if (mask_) {
            impl::relu_backward(context, args.output, args.output_gradient, args.output_gradient, outputs_);
        }

        if (trains) write_weight_gradient(args, workspace);
        if (args.input_gradient != nullptr) {
            backward_data_.run(context.cudnn(), workspace,
                               std::array<const void*, 3>{args.input_gradient, weights(args), args.output_gradient});
        }
    }

private:
    void write_weight_gradient(const BackwardArgs<Cuda, T>& args, std::byte* workspace) {
        const CudaContext& context = args.context;
        float* const gradient = args.parameter_gradients[0];
        const bool in_place = std::same_as<T, float> && !args.accumulate;
        void* const computed = in_place ? static_cast<void*>(gradient) : static_cast<void*>(args.scratch);
        backward_weights_.run(context.cudnn(), workspace,
                              std::array<const void*, 3>{args.input, computed, args.output_gradient});
        if (!in_place) {
            const auto* const from = reinterpret_cast<const T*>(args.scratch);
            if (args.accumulate) {
                for_each_element(context, weights_, impl::AddElement{}, gradient, from);
            } else {
                Convert<Cuda>::run(context, from, gradient, weights_);
            }
        }
    }
    [[nodiscard]] bool adds_bias() const { return shape_.bias || relu_; }
    [[nodiscard]] bool bias_is_packed() const { return adds_bias() && (!std::same_as<T, float> || !shape_.bias); }
    [[nodiscard]] std::size_t packed_weights_bytes() const {
        return std::same_as<T, float> ? 0 : aligned(static_cast<std::size_t>(weights_) * sizeof(T));
    }
    [[nodiscard]] std::size_t packed_bias_bytes() const {
        return bias_is_packed() ? aligned(static_cast<std::size_t>(shape_.out_channels) * sizeof(T)) : 0;
    }
    /// The place where cuDNN writes the weights' gradient when it cannot write into the arena.
    [[nodiscard]] std::size_t gradient_bytes() const { return aligned(static_cast<std::size_t>(weights_) * sizeof(T)); }

    [[nodiscard]] T* packed_bias(const ForwardArgs<Cuda, T>& args) const {
        return reinterpret_cast<T*>(args.packed + packed_weights_bytes());
    }
    [[nodiscard]] const void* weights(const ForwardArgs<Cuda, T>& args) const {
        return std::same_as<T, float> ? static_cast<const void*>(args.parameters[0])
                                      : static_cast<const void*>(args.packed);
    }
    [[nodiscard]] const void* bias(const ForwardArgs<Cuda, T>& args) const {
        return bias_is_packed() ? static_cast<const void*>(packed_bias(args))
                                : static_cast<const void*>(args.parameters[1]);
    }

    ConvolutionShape shape_;
    bool relu_, mask_;
    std::int64_t weights_, outputs_;
    impl::RowSlabs rows_;
    impl::CudnnPlan forward_, backward_weights_, backward_data_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
