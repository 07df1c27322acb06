// SPDX-License-Identifier: Apache-2.0
//
// Convolution on `Cuda` by cuDNN's graph interface, with bias and ReLU in the same call; the ReLU of a convolution
// without a bias, which cuDNN's engines lack, is a kernel after it, and so is every ReLU6. Plans are chosen in the
// constructor, by their time on the GPU: CudaOptions sets the rules, and may contain the choices of another run. A
// convolution has the same plan with a fused ReLU as without it.
//
// In float, weights and their gradients are used in place. In bfloat16 and in half, cuDNN 9.19 requires the weights and
// the bias in the same type, and returns the gradient of the weights in it: `prepare` rounds the former, `backward`
// widens the latter.
//
// Where an input in bfloat16 or half has fewer than 8 channels and no groups, forward may pad it and the weights to 8,
// in one kernel: this is chosen if it takes less time than any plan without padding or, where nothing is timed, if
// cuDNN ranks the tensor cores first for the padded convolution only.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/activation.hpp>
#include <cupola/ops/convert.hpp>
#include <cupola/ops/convolution.hpp>
#include <cupola/ops/cuda/elementwise.hpp>
#include <cupola/ops/cuda/impl/convolution_kernels.cuh>
#include <cupola/ops/cuda/impl/convolution_plans.hpp>
#include <cupola/ops/cuda/impl/joined_gradients.cuh>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/impl/kernel_parts/pad_channels.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <impl::CudaElement T>
class Convolution<Cuda, T> {
public:
    [[gnu::cold]] Convolution(const BuildContext<Cuda, T>& build, const ConvolutionShape& shape)
        : shape_(shape),
          activation_(build.activation),
          mask_(activation_ != Activation::none && !build.relu_mask_applied_by_next),
          weights_(shape.weights()),
          outputs_(build.batch * build.output.size()),
          rows_(build.batch * shape.height.output * shape.width.output, shape.out_channels) {
        const CudaContext& context = build.context;
        const impl::CudnnTarget target{.handle = context.cudnn(), .device_name = context.gpu_name()};
        impl::EngineRules rules =
            impl::convolution_rules(element_type_of<T>, context.options().tf32 || context.options().tf32_convolutions,
                                    context.options().deterministic);
        rules.max_workspace = std::min(rules.max_workspace, context.max_workspace());
        const impl::PlanTrial trial{.stream = context.stream(), .seconds = context.options().plan_seconds};
        const auto problem_of = [&](impl::ConvolutionDirection direction) {
            return impl::convolution_problem(direction, build.batch, shape, element_type_of<T>,
                                             activation_ == Activation::relu);
        };
        const auto plan = [&](impl::ConvolutionDirection direction) {
            return std::move(
                impl::plan_convolution(target, problem_of(direction), rules, &context.plan_choices(), trial).plan);
        };
        if (build.forward) plan_forward(context, target, problem_of(impl::ConvolutionDirection::forward), rules, trial);
        if (!build.training) return;
        if (build.parameter_gradients) backward_weights_ = plan(impl::ConvolutionDirection::backward_weights);
        if (build.input_gradient) backward_data_ = plan(impl::ConvolutionDirection::backward_data);
        side_by_side_ = context.options().side_by_side_gradients && backward_weights_ && backward_data_ &&
                        side_workspace_offset() + backward_weights_.workspace_bytes() <= context.max_workspace();
    }

    [[nodiscard]] MemoryNeeds needs() const {
        const std::size_t forward = padded_bytes() + forward_.workspace_bytes(),
                          of_weights = backward_weights_.workspace_bytes(),
                          backward = side_by_side_ ? side_workspace_offset() + of_weights
                                                   : std::max(of_weights, backward_data_.workspace_bytes());
        return {.packed = packed_weights_bytes() + packed_bias_bytes(),
                .saved = keeps_gradient && backward_weights_ ? gradient_bytes() : 0,
                .scratch = std::max(forward, backward + used_bytes())};
    }

    [[nodiscard]] bool reads_gradient_sums() const { return shape_.bias && backward_weights_ && !mask_; }

    /// Rounds the weights and the bias. Called once per change of the parameters.
    void prepare(const ForwardArgs<Cuda, T>& args) {
        if constexpr (!std::same_as<T, float>) {
            Convert<Cuda>::run_joined(args.context, args.parameters[0], reinterpret_cast<T*>(args.packed), weights_);
            if (shape_.bias)
                Convert<Cuda>::run_joined(args.context, args.parameters[1], packed_bias(args), shape_.out_channels);
        }
    }

    void forward(const ForwardArgs<Cuda, T>& args) {
        std::array<const void*, 4> pointers{args.input, weights(args), args.output, shape_.bias ? bias(args) : nullptr};
        if (padded_) {
            pointers[0] = args.scratch;
            pointers[1] = args.scratch + padded_input_bytes();
            queue_padding(args.context, args.input, weights(args), args.scratch, args.scratch + padded_input_bytes());
        }
        forward_.run(args.context.cudnn(), args.scratch + padded_bytes(), std::span(pointers).first(graph_tensors()));
        const T* const sums = args.output;
        if (activation_ == Activation::relu && !shape_.bias)
            for_each_element(args.context, outputs_, impl::ForwardOf<impl::ReluFormula>{}, args.output, sums);
        if (activation_ == Activation::relu6)
            for_each_element(args.context, outputs_, impl::ForwardOf<impl::Relu6Formula>{}, args.output, sums);
    }
    /// Whether forward pads the channels.
    [[nodiscard]] bool pads() const { return padded_; }

    void backward(const BackwardArgs<Cuda, T>& args) {
        const CudaContext& context = args.context;
        const bool trains(backward_weights_);
        std::byte* const partial = args.scratch + (keeps_gradient ? 0 : gradient_bytes());
        std::byte* const workspace = args.scratch + used_bytes();
        const bool sums = shape_.bias && trains;
        // The parts of the sums, if the operation that wrote the gradient has also masked and summed it.
        const ChannelSums& given = args.output_gradient_sums;
        const bool masks_and_sums = sums && activation_ == Activation::relu;
        if (mask_ && !masks_and_sums)
            impl::activation_backward(context, activation_, args.output, args.output_gradient, outputs_);
        if (sums && given.parts == 0) {
            impl::mask_and_sum_slabs(context, rows_, mask_ && masks_and_sums ? args.output : nullptr,
                                     args.output_gradient, reinterpret_cast<float*>(partial));
        }
        const auto data = [&] {
            if (args.input_gradient == nullptr) return;
            backward_data_.run(context.cudnn(), workspace,
                               std::array<const void*, 3>{args.input_gradient, weights(args), args.output_gradient});
        };
        if (trains) {
            const bool side_by_side = side_by_side_ && args.input_gradient != nullptr;
            write_weight_gradient(args, data, side_by_side, workspace + (side_by_side ? side_workspace_offset() : 0));
        } else {
            data();
        }
        if (sums) {
            const bool own = given.parts == 0;
            impl::queue_slab_sums(context, own ? reinterpret_cast<const float*>(partial) : given.partial,
                                  own ? rows_.slabs : given.parts, shape_.out_channels, args.accumulate,
                                  args.parameter_gradients[1], !own);
        }
    }

private:
    [[gnu::cold]] void plan_forward(const CudaContext& context, const impl::CudnnTarget& target,
                                    const impl::ConvolutionProblem& problem, const impl::EngineRules& rules,
                                    const impl::PlanTrial& trial) {
        std::vector<impl::PlanVariant> variants;
        variants.push_back(impl::convolution_variant(target, problem, rules));
        const auto pad = [&](std::span<const void* const> tensors) {
            const std::size_t plain = graph_tensors();
            queue_padding(context, tensors[plain], tensors[plain + 1], const_cast<void*>(tensors[0]),
                          const_cast<void*>(tensors[1]));
        };
        // With groups each of them would need channels of its own that are zeros.
        if (!std::same_as<T, float> && shape_.groups == 1 && shape_.in_channels < impl::padded_channels<T>) {
            padded_input_rows_ = problem.batch * shape_.height.input * shape_.width.input;
            impl::ConvolutionProblem wide = problem;
            wide.shape.in_channels = impl::padded_channels<T>;
            const std::vector<std::size_t> plain = impl::tensor_bytes(problem);
            padded_ = true;
            variants.push_back(
                impl::convolution_variant(target, wide, rules, {plain[0], plain[1]}, padded_bytes(), pad));
            // A different key from that of a convolution with so many channels: the time includes that of the kernel
            // that pads.
            variants.back().key += text(", of ", shape_.in_channels, " channels and zeros");
        }
        impl::ChosenPlan chosen =
            impl::plan_convolution(target, problem, rules, variants, &context.plan_choices(), trial);
        padded_ = chosen.variant == 1;
        forward_ = std::move(chosen.plan);
    }
    void queue_padding(const CudaContext& context, const void* input, const void* weights, void* padded_input,
                       void* padded_weights) const {
        const impl::PadChannels<T> pad{
            {static_cast<const T*>(input), static_cast<T*>(padded_input), padded_input_rows_},
            {static_cast<const T*>(weights), static_cast<T*>(padded_weights), weights_ / shape_.in_channels},
            shape_.in_channels};
        impl::launch(context, pad.size(), pad);
    }
    /// Computes the weights' gradient, and calls `data`, which queues the input's: on two streams if `side_by_side`.
    template <class Data>
    void write_weight_gradient(const BackwardArgs<Cuda, T>& args, const Data& data, bool side_by_side,
                               std::byte* workspace) {
        const CudaContext& context = args.context;
        float* const gradient = args.parameter_gradients[0];
        const bool in_place = std::same_as<T, float> && !args.accumulate;
        void* const computed =
            in_place ? static_cast<void*>(gradient) : static_cast<void*>(keeps_gradient ? args.saved : args.scratch);
        context.queue_side_by_side(side_by_side, data, [&] {
            backward_weights_.run(context.cudnn(), workspace,
                                  std::array<const void*, 3>{args.input, computed, args.output_gradient});
        });
        if (!in_place)
            impl::queue_widened_gradient(context, static_cast<const T*>(computed), gradient, weights_, args.accumulate,
                                         keeps_gradient);
    }
    /// The number of tensors of forward's graph.
    [[nodiscard]] std::size_t graph_tensors() const { return shape_.bias ? 4 : 3; }
    [[nodiscard]] bool bias_is_packed() const { return shape_.bias && !std::same_as<T, float>; }
    [[nodiscard]] std::size_t packed_weights_bytes() const {
        return std::same_as<T, float> ? 0 : aligned(static_cast<std::size_t>(weights_) * sizeof(T));
    }
    /// The padded input and weights in the scratch memory, in this order, before the library's workspace.
    [[nodiscard]] std::size_t padded_input_bytes() const {
        return padded_ ? aligned(impl::PaddedRows<T>::bytes(padded_input_rows_)) : 0;
    }
    [[nodiscard]] std::size_t padded_bytes() const {
        if (!padded_) return 0;
        return aligned(padded_input_bytes() + impl::PaddedRows<T>::bytes(weights_ / shape_.in_channels),
                       Cuda::scratch_alignment);
    }
    [[nodiscard]] std::size_t packed_bias_bytes() const {
        return bias_is_packed() ? aligned(static_cast<std::size_t>(shape_.out_channels) * sizeof(T)) : 0;
    }
    /// Whether the weights' gradient in T has memory of its own, so that all those of a pass are widened by one kernel.
    /// In float it is computed in the arena, and in separate memory only where several batches are added.
    static constexpr bool keeps_gradient = !std::same_as<T, float>;
    /// The scratch memory of backward in addition to the library's workspace.
    [[nodiscard]] std::size_t used_bytes() const {
        if (!backward_weights_) return 0;
        return aligned((keeps_gradient ? 0 : gradient_bytes()) + partial_bytes(), Cuda::scratch_alignment);
    }
    /// The offset of the workspace for the weights' gradient while the input's gradient is computed: after that one's.
    [[nodiscard]] std::size_t side_workspace_offset() const {
        return aligned(backward_data_.workspace_bytes(), Cuda::scratch_alignment);
    }
    /// The place where cuDNN writes the weights' gradient when it cannot write into the arena.
    [[nodiscard]] std::size_t gradient_bytes() const { return aligned(static_cast<std::size_t>(weights_) * sizeof(T)); }

    [[nodiscard]] std::size_t partial_bytes() const { return shape_.bias ? aligned(rows_.partial_bytes()) : 0; }

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
    Activation activation_;
    bool mask_, padded_ = false, side_by_side_ = false;
    std::int64_t weights_, outputs_, padded_input_rows_ = 0;
    impl::RowSlabs rows_;
    impl::CudnnPlan forward_, backward_weights_, backward_data_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
