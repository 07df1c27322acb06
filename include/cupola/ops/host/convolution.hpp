// SPDX-License-Identifier: Apache-2.0
//
// Convolution on `Host` by oneDNN. oneDNN chooses the packing of the weights, a different one for each direction; with
// a plain layout it uses its reference code (seconds instead of milliseconds). So weights are packed in `prepare`, when
// they have changed, and weight gradients are unpacked into the arena's own layout. Where one of Cupola's own kernels
// is faster for a weight gradient (ops/host/weight_gradient.hpp), oneDNN's primitive is not created.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <cupola/ops/activation.hpp>
#include <cupola/ops/convolution.hpp>
#include <cupola/ops/host/convolution_algorithm.hpp>
#include <cupola/ops/host/elementwise.hpp>
#include <cupola/ops/host/onednn_primitive.hpp>
#include <cupola/ops/host/weight_gradient.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <impl::HostElement T>
class Convolution<Host, T> {
public:
    [[gnu::cold]] Convolution(const BuildContext<Host, T>& build, const ConvolutionShape& shape)
        : shape_(shape),
          activation_(build.activation),
          mask_(activation_ != Activation::none && !build.relu_mask_applied_by_next),
          parameter_gradients_(build.parameter_gradients),
          outputs_(build.batch * build.output.size()) {
        impl::require_instructions<T>("bfloat16 convolutions need");
        if (const auto* const other = build.context.convolution(); other != nullptr)
            other_ = other->make_for(build, shape);
        if (other_) return;
        const Tensors tensors(build, shape);
        make_forward(build, tensors);
        if (build.forward) pack_for_forward(build.context, tensors);
        if (!build.training) return;
        if (parameter_gradients_) weight_gradient_ = make_weight_gradient(build, shape);
        if (parameter_gradients_ && !weight_gradient_) make_backward_weights(build.context, tensors);
        if (build.input_gradient) make_backward_data(build.context, tensors);
    }

    [[nodiscard]] OperationWork work(Direction to) const { return other_ ? other_->work(to) : OperationWork{}; }
    [[nodiscard]] MemoryNeeds needs() const {
        if (other_) return other_->needs();
        std::size_t scratch = 0;
        for (const impl::DnnlCall* call :
             {&backward_weights_, &backward_data_, &pack_forward_, &pack_backward_, &unpack_, &unpack_adding_})
            scratch = std::max(scratch, aligned(call->scratch_bytes()));
        // Without it, oneDNN makes the others from its description, and it does not run.
        if (pack_forward_) scratch = std::max(scratch, aligned(forward_.scratch_bytes()));
        scratch += packed_gradient_bytes() + bias_bytes();
        if (weight_gradient_) scratch = std::max(scratch, aligned(weight_gradient_->scratch_bytes()));
        return {.packed = packed_forward_bytes_ + packed_backward_bytes_, .scratch = scratch};
    }

    /// Packs the weights. Called once per change of the parameters.
    void prepare(const ForwardArgs<Host, T>& args) {
        if (other_) return other_->prepare(args);
        if (pack_forward_) pack_forward_.run(args.scratch, {args.parameters[0], args.packed});
        if (pack_backward_) pack_backward_.run(args.scratch, {args.parameters[0], args.packed + packed_forward_bytes_});
    }

    void forward(const ForwardArgs<Host, T>& args) {
        if (other_) return other_->forward(args);
        forward_.run(args.scratch, {args.input, args.packed, args.output, args.parameters[1]});
    }

    void backward(const BackwardArgs<Host, T>& args) {
        if (other_) return other_->backward(args);
        // A gradient that only the weights' is computed from is masked in that pass.
        const bool mask_weights = mask_ && activation_ == Activation::relu && args.input_gradient == nullptr &&
                                  weight_gradient_ && weight_gradient_->masks();
        if (mask_ && !mask_weights)
            impl::activation_backward(args.context, activation_, args.output, args.output_gradient, outputs_);
        if (weight_gradient_) {
            weight_gradient_->run(args, mask_weights);
        } else if (parameter_gradients_) {
            backward_weights(args);
        }
        if (args.input_gradient != nullptr) {
            backward_data_.run(args.scratch,
                               {args.output_gradient, args.packed + packed_forward_bytes_, args.input_gradient});
        }
    }

private:
    /// oneDNN's descriptions of the tensors and of the window, which the three directions share.
    struct Tensors {
        [[gnu::cold]] Tensors(const BuildContext<Host, T>& build, const ConvolutionShape& s)
            : source(impl::dnnl_tensor({build.batch, s.in_channels, s.height.input, s.width.input}, dnnl_nhwc, type)),
              target(
                  impl::dnnl_tensor({build.batch, s.out_channels, s.height.output, s.width.output}, dnnl_nhwc, type)),
              packed(weights(s, dnnl_format_tag_any, type)),
              packed_gradient(weights(s, dnnl_format_tag_any, dnnl_f32)),
              plain(weights(s, s.groups == 1 ? dnnl_ohwi : dnnl_gohwi, dnnl_f32)),
              bias(impl::dnnl_tensor({s.out_channels}, dnnl_a)),
              bias_or_none(s.bias ? bias.get() : nullptr),
              strides{s.height.stride, s.width.stride},
              dilates{s.height.dilation - 1, s.width.dilation - 1},
              begin{s.height.pad_begin, s.width.pad_begin},
              end{s.height.pad_end, s.width.pad_end} {}

        [[nodiscard]] static impl::DnnlMemoryDesc weights(const ConvolutionShape& s, dnnl_format_tag_t tag,
                                                          dnnl_data_type_t element) {
            if (s.groups == 1)
                return impl::dnnl_tensor({s.out_channels, s.in_channels, s.height.window, s.width.window}, tag,
                                         element);
            return impl::dnnl_tensor(
                {s.groups, s.out_channels / s.groups, s.group_channels(), s.height.window, s.width.window}, tag,
                element);
        }

        static constexpr dnnl_data_type_t type = impl::dnnl_type<T>;
        /// The gradient of the weights is a sum, so it is float for any type of activations.
        impl::DnnlMemoryDesc source, target, packed, packed_gradient, plain, bias;
        const_dnnl_memory_desc_t bias_or_none;
        /// In oneDNN a window without dilation has the dilation 0.
        dnnl_dims_t strides, dilates, begin, end;
    };
    static constexpr dnnl_alg_kind_t algorithm = dnnl_convolution_direct;

    /// oneDNN makes the primitives of backward from that of forward.
    [[gnu::cold]] void make_forward(const BuildContext<Host, T>& build, const Tensors& t) {
        const auto with_activation = impl::dnnl_attributes(activation_, build.adds_to_output, build.formula);
        const auto kind = build.training ? dnnl_forward_training : dnnl_forward_inference;
        impl::DnnlPrimitiveDesc description;
        const dnnl_status_t status = dnnl_convolution_forward_primitive_desc_create(
            description.out(), build.context.engine(), kind, algorithm, t.source.get(), t.packed.get(), t.bias_or_none,
            t.target.get(), t.strides, t.dilates, t.begin, t.end, with_activation.get());
        forward_ = impl::DnnlCall(build.context, status, std::move(description), "convolution");
        forward_.add(DNNL_ARG_SRC, t.source.get(), DNNL_ARG_WEIGHTS, forward_.query(dnnl_query_weights_md),
                     DNNL_ARG_DST, t.target.get(), DNNL_ARG_BIAS, t.bias_or_none);
    }
    [[gnu::cold]] void pack_for_forward(const HostContext& context, const Tensors& t) {
        pack_forward_ = impl::dnnl_reorder(context, t.plain.get(), forward_.query(dnnl_query_weights_md));
        packed_forward_bytes_ = aligned(forward_.bytes(dnnl_query_weights_md));
    }
    [[gnu::cold]] void make_backward_weights(const HostContext& context, const Tensors& t) {
        impl::DnnlPrimitiveDesc description;
        const dnnl_status_t status = dnnl_convolution_backward_weights_primitive_desc_create(
            description.out(), context.engine(), algorithm, t.source.get(), t.packed_gradient.get(), t.bias_or_none,
            t.target.get(), t.strides, t.dilates, t.begin, t.end, forward_.description(),
            impl::dnnl_attributes().get());
        backward_weights_ = impl::DnnlCall(context, status, std::move(description), "weight gradient of a convolution");
        const auto* packed_gradient = backward_weights_.query(dnnl_query_diff_weights_md);
        backward_weights_.add(DNNL_ARG_SRC, t.source.get(), DNNL_ARG_DIFF_DST, t.target.get(), DNNL_ARG_DIFF_WEIGHTS,
                              packed_gradient, DNNL_ARG_DIFF_BIAS, t.bias_or_none);
        unpack_ = impl::dnnl_reorder(context, packed_gradient, t.plain.get());
        unpack_adding_ = impl::dnnl_reorder(context, packed_gradient, t.plain.get(), true);
    }
    [[gnu::cold]] void make_backward_data(const HostContext& context, const Tensors& t) {
        impl::DnnlPrimitiveDesc description;
        const dnnl_status_t status = dnnl_convolution_backward_data_primitive_desc_create(
            description.out(), context.engine(), algorithm, t.source.get(), t.packed.get(), t.target.get(), t.strides,
            t.dilates, t.begin, t.end, forward_.description(), impl::dnnl_attributes().get());
        backward_data_ = impl::DnnlCall(context, status, std::move(description), "input gradient of a convolution");
        backward_data_.add(DNNL_ARG_DIFF_DST, t.target.get(), DNNL_ARG_WEIGHTS,
                           backward_data_.query(dnnl_query_weights_md), DNNL_ARG_DIFF_SRC, t.source.get());
        pack_backward_ = impl::dnnl_reorder(context, t.plain.get(), backward_data_.query(dnnl_query_weights_md));
        packed_backward_bytes_ = aligned(backward_data_.bytes(dnnl_query_weights_md));
    }

    void backward_weights(const BackwardArgs<Host, T>& args) {
        std::byte* const packed_gradient = args.scratch;
        auto* const bias_sum = reinterpret_cast<float*>(packed_gradient + packed_gradient_bytes());
        std::byte* const scratch = packed_gradient + packed_gradient_bytes() + bias_bytes();
        float* const bias_gradient = args.accumulate ? bias_sum : args.parameter_gradients[1];
        backward_weights_.run(scratch, {args.input, args.output_gradient, packed_gradient, bias_gradient});
        if (shape_.bias && args.accumulate) {
            for (std::int64_t o = 0; o < shape_.out_channels; ++o) args.parameter_gradients[1][o] += bias_sum[o];
        }
        (args.accumulate ? unpack_adding_ : unpack_).run(scratch, {packed_gradient, args.parameter_gradients[0]});
    }
    [[nodiscard]] std::size_t packed_gradient_bytes() const {
        if (!backward_weights_) return 0;
        return aligned(backward_weights_.bytes(dnnl_query_diff_weights_md));
    }
    [[nodiscard]] std::size_t bias_bytes() const {
        return aligned(static_cast<std::size_t>(shape_.out_channels) * sizeof(float));
    }

    /// The algorithm used instead of oneDNN, where the device's options request one that supports the shape.
    std::unique_ptr<HostConvolution<T>> other_;
    /// The kernel that computes the gradients of weights and bias instead of oneDNN, where there is one for the shape.
    std::unique_ptr<HostWeightGradient<T>> weight_gradient_;
    ConvolutionShape shape_;
    Activation activation_;
    bool mask_, parameter_gradients_;
    std::int64_t outputs_;
    std::size_t packed_forward_bytes_ = 0, packed_backward_bytes_ = 0;
    impl::DnnlCall forward_, backward_weights_, backward_data_;
    impl::DnnlCall pack_forward_, pack_backward_, unpack_, unpack_adding_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
