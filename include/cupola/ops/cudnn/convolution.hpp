// SPDX-License-Identifier: Apache-2.0
//
// Convolution on `Cuda` by cuDNN's graph interface, with bias and ReLU in the same call. Plans are chosen in the
// constructor: CudaOptions says by which rules, and may hold the choices of another run.
//
// In float, weights and their gradients are used where they lie. In bfloat16 and in half, cuDNN 9.19 wants the weights
// and the bias in it too, and gives the gradient of the weights in it: `prepare` rounds the former, `backward` widens
// the latter.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/convolution.hpp>
#include <cupola/ops/cudnn/activation.hpp>
#include <cupola/ops/cudnn/convert.hpp>
#include <cupola/ops/cudnn/impl/convolution_kernels.cuh>
#include <cupola/ops/cudnn/impl/convolution_plans.hpp>
#include <cupola/ops/cudnn/impl/elementwise.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::CudaElement T>
class Convolution<Cuda, T> {
public:
    [[gnu::cold]] Convolution(const Site<Cuda, T>& site, const ConvolutionShape& shape)
        : shape_(shape),
          relu_(site.activation == Activation::relu),
          mask_(relu_ && !site.masked_by_next),
          weights_(shape.out_channels * shape.height.window * shape.width.window * shape.in_channels),
          outputs_(site.batch * site.output.size()),
          rows_(site.batch * shape.height.output * shape.width.output, shape.out_channels) {
        const CudaContext& context = site.context;
        const impl::CudnnTarget target{.handle = context.cudnn(),
                                       .device_name = impl::cuda_device_name(context.ordinal())};
        const impl::EngineRules rules =
            impl::convolution_rules(element_type_of<T>, context.options().tf32, context.options().deterministic);
        PlanChoices* const choices = context.options().plan_choices.get();
        const auto plan = [&](impl::ConvolutionDirection direction) {
            impl::ConvolutionProblem problem{direction, site.batch, shape, element_type_of<T>, relu_};
            // cuDNN's engines with a ReLU have a bias before it: without one, zeros.
            problem.shape.bias = adds_bias();
            return std::move(impl::plan_convolution(target, problem, rules, choices).plan);
        };
        forward_ = plan(impl::ConvolutionDirection::forward);
        if (!site.training) return;
        backward_weights_ = plan(impl::ConvolutionDirection::backward_weights);
        if (site.input_gradient) backward_data_ = plan(impl::ConvolutionDirection::backward_data);
    }

    [[nodiscard]] MemoryNeeds needs() const {
        const std::size_t workspace = std::max(
            {forward_.workspace_bytes(), backward_weights_.workspace_bytes(), backward_data_.workspace_bytes()});
        if (!backward_weights_) return {.packed = packed_weights_bytes() + packed_bias_bytes(), .scratch = workspace};
        return {.packed = packed_weights_bytes() + packed_bias_bytes(),
                .scratch = gradient_bytes() + std::max(workspace, shape_.bias ? rows_.partial_bytes() : 0)};
    }

    /// Rounds the weights and the bias. Called once after each change of the parameters.
    void prepare(const Pass<Cuda, T>& pass) {
        if constexpr (!std::same_as<T, float>) {
            Convert<Cuda>::run(pass.context, pass.parameters[0], reinterpret_cast<T*>(pass.packed), weights_);
            if (shape_.bias)
                Convert<Cuda>::run(pass.context, pass.parameters[1], packed_bias(pass), shape_.out_channels);
        }
        if (adds_bias() && !shape_.bias) {
            impl::check_cuda(cudaMemsetAsync(packed_bias(pass), 0, packed_bias_bytes(), pass.context.stream()),
                             "cudaMemsetAsync");
        }
    }

    void forward(const Pass<Cuda, T>& pass) {
        const std::array<const void*, 4> pointers{pass.input, weights(pass), pass.output,
                                                  adds_bias() ? bias(pass) : nullptr};
        forward_.run(pass.context.cudnn(), pass.scratch, std::span(pointers).first(adds_bias() ? 4 : 3));
    }

    void backward(const Pass<Cuda, T>& pass) {
        const CudaContext& context = pass.context;
        std::byte* const workspace = pass.scratch + gradient_bytes();
        if (shape_.bias) {
            impl::mask_and_sum_rows(context, rows_, mask_ ? pass.output : nullptr, pass.output_gradient,
                                    pass.accumulate, pass.parameter_gradients[1], workspace);
        } else if (mask_) {
            impl::relu_backward(context, pass.output, pass.output_gradient, pass.output_gradient, outputs_);
        }

        float* const gradient = pass.parameter_gradients[0];
        const bool in_place = std::same_as<T, float> && !pass.accumulate;
        void* const computed = in_place ? static_cast<void*>(gradient) : static_cast<void*>(pass.scratch);
        backward_weights_.run(context.cudnn(), workspace,
                              std::array<const void*, 3>{pass.input, computed, pass.output_gradient});
        if (!in_place) {
            const auto* const from = reinterpret_cast<const T*>(pass.scratch);
            if (pass.accumulate) {
                impl::launch_elementwise<float>(context, weights_, impl::aligned_for_packs(from, gradient),
                                                impl::AddAt<float, T>{gradient, from, gradient, false});
            } else {
                Convert<Cuda>::run(context, from, gradient, weights_);
            }
        }

        if (pass.input_gradient != nullptr) {
            backward_data_.run(context.cudnn(), workspace,
                               std::array<const void*, 3>{pass.input_gradient, weights(pass), pass.output_gradient});
        }
    }

private:
    [[nodiscard]] bool adds_bias() const { return shape_.bias || relu_; }
    [[nodiscard]] bool bias_is_packed() const { return adds_bias() && (!std::same_as<T, float> || !shape_.bias); }
    [[nodiscard]] std::size_t packed_weights_bytes() const {
        return std::same_as<T, float> ? 0 : aligned(static_cast<std::size_t>(weights_) * sizeof(T));
    }
    [[nodiscard]] std::size_t packed_bias_bytes() const {
        return bias_is_packed() ? aligned(static_cast<std::size_t>(shape_.out_channels) * sizeof(T)) : 0;
    }
    /// Where cuDNN writes the weights' gradient when it cannot write it into the arena.
    [[nodiscard]] std::size_t gradient_bytes() const { return aligned(static_cast<std::size_t>(weights_) * sizeof(T)); }

    [[nodiscard]] T* packed_bias(const Pass<Cuda, T>& pass) const {
        return reinterpret_cast<T*>(pass.packed + packed_weights_bytes());
    }
    [[nodiscard]] const void* weights(const Pass<Cuda, T>& pass) const {
        return std::same_as<T, float> ? static_cast<const void*>(pass.parameters[0])
                                      : static_cast<const void*>(pass.packed);
    }
    [[nodiscard]] const void* bias(const Pass<Cuda, T>& pass) const {
        return bias_is_packed() ? static_cast<const void*>(packed_bias(pass))
                                : static_cast<const void*>(pass.parameters[1]);
    }

    ConvolutionShape shape_;
    bool relu_, mask_;
    std::int64_t weights_, outputs_;
    impl::RowSlabs rows_;
    impl::CudnnPlan forward_, backward_weights_, backward_data_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
