// SPDX-License-Identifier: Apache-2.0
//
// Pooling on `Host`: maxima by Cupola's own kernels, which keep the window offset in a byte and never lose a NaN;
// means, and windows with an extent of more than 15, by oneDNN, but for means that divide by a number that oneDNN does
// not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <cupola/device/host.hpp>
#include <cupola/ops/activation.hpp>
#include <cupola/ops/host/elementwise.hpp>
#include <cupola/ops/host/impl/mean_rows.hpp>
#include <cupola/ops/host/impl/pool_rows.hpp>
#include <cupola/ops/host/onednn_primitive.hpp>
#include <cupola/ops/pooling.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

/// A maximum over windows, with one byte saved for the window offset of each. Pooling uses it where such an offset fits
/// a byte.
template <class T>
class HostMaxPooling {
public:
    HostMaxPooling(const BuildContext<Host, T>& build, const PoolingShape& shape)
        : rows_(shape), batch_(build.batch), mask_(build.applies_relu_mask_of_previous), saves_(build.training) {}

    [[nodiscard]] MemoryNeeds needs() const {
        return {.saved = saves_ ? static_cast<std::size_t>(batch_ * rows_.outputs() * rows_.output_row()) : 0};
    }

    void forward(const ForwardArgs<Host, T>& args) const {
        parallel_for(args.context, batch_ * rows_.outputs(), [this, &args](std::int64_t at) {
            const T* const x = args.input + at / rows_.outputs() * rows_.inputs() * rows_.input_row();
            rows_.forward(
                at % rows_.outputs(), [&](std::int64_t a) { return x + a * rows_.input_row(); },
                args.output + at * rows_.output_row(), saves_ ? places(args) + at * rows_.output_row() : nullptr,
                mask_);
        });
    }

    void backward(const BackwardArgs<Host, T>& args) const {
        if (args.input_gradient == nullptr) return;
        parallel_for(args.context, batch_ * rows_.inputs(), [this, &args](std::int64_t at) {
            const std::int64_t first = at / rows_.inputs() * rows_.outputs() * rows_.output_row();
            rows_.backward(at % rows_.inputs(), args.output_gradient + first, places(args) + first,
                           args.input_gradient + at * rows_.input_row());
        });
    }

private:
    [[nodiscard]] std::uint8_t* places(const ForwardArgs<Host, T>& args) const {
        return reinterpret_cast<std::uint8_t*>(args.saved);
    }

    impl::PoolRows rows_;
    std::int64_t batch_;
    bool mask_, saves_;
};

template <impl::HostElement T>
class Pooling<Host, T> {
public:
    [[gnu::cold]] Pooling(const BuildContext<Host, T>& build, const PoolingShape& shape)
        : mask_(build.applies_relu_mask_of_previous), batch_(build.batch), outputs_(build.batch * build.output.size()) {
        if (place_is_a_byte(shape)) {
            maximum_.emplace(build, shape);
            return;
        }
        if (shape.kind == PoolingKind::average && counts_part_of_window(shape)) {
            mean_.emplace(shape);
            return;
        }
        impl::require_instructions<T>("bfloat16 pooling needs");
        const HostContext& context = build.context;
        const auto [h, w] = std::pair(shape.height, shape.width);
        constexpr dnnl_data_type_t type = impl::dnnl_type<T>;
        const auto source = impl::dnnl_tensor({build.batch, shape.channels, h.input, w.input}, dnnl_nhwc, type);
        const auto target = impl::dnnl_tensor({build.batch, shape.channels, h.output, w.output}, dnnl_nhwc, type);
        const dnnl_dims_t strides{h.stride, w.stride}, window{h.window, w.window}, dilation{0, 0},
            begin{h.pad_begin, w.pad_begin}, end{h.pad_end, w.pad_end};
        const auto mean = shape.counts_padding ? dnnl_pooling_avg_include_padding : dnnl_pooling_avg_exclude_padding;
        const auto algorithm = shape.kind == PoolingKind::max ? dnnl_pooling_max : mean;
        const auto kind = build.training ? dnnl_forward_training : dnnl_forward_inference;
        const auto attributes = impl::dnnl_attributes();

        impl::DnnlPrimitiveDesc description;
        auto status = dnnl_pooling_forward_primitive_desc_create(description.out(), context.engine(), kind, algorithm,
                                                                 source.get(), target.get(), strides, window, dilation,
                                                                 begin, end, attributes.get());
        forward_ = impl::DnnlCall(context, status, std::move(description), "pooling");
        forward_.add(DNNL_ARG_SRC, source.get(), DNNL_ARG_DST, target.get());
        saved_bytes_ = forward_.bytes(dnnl_query_workspace_md);
        if (saved_bytes_ != 0) forward_.add(DNNL_ARG_WORKSPACE, forward_.query(dnnl_query_workspace_md));
        if (!build.training || !build.input_gradient) return;
        // oneDNN 3.2 gives another gradient than that of the maxima.
        require(std::is_same_v<T, float> || shape.kind != PoolingKind::max,
                "a maximum in bfloat16 on Host can be trained with windows of at most 15 x 15, not ", h.window, " x ",
                w.window, ": train this network in float");

        impl::DnnlPrimitiveDesc backward_description;
        status = dnnl_pooling_backward_primitive_desc_create(backward_description.out(), context.engine(), algorithm,
                                                             source.get(), target.get(), strides, window, dilation,
                                                             begin, end, forward_.description(), attributes.get());
        backward_ = impl::DnnlCall(context, status, std::move(backward_description), "input gradient of a pooling");
        backward_.add(DNNL_ARG_DIFF_DST, target.get(), DNNL_ARG_DIFF_SRC, source.get());
        if (saved_bytes_ != 0) backward_.add(DNNL_ARG_WORKSPACE, backward_.query(dnnl_query_workspace_md));
    }

    [[nodiscard]] MemoryNeeds needs() const {
        if (maximum_) return maximum_->needs();
        if (mean_) return {};
        return {.saved = saved_bytes_, .scratch = std::max(forward_.scratch_bytes(), backward_.scratch_bytes())};
    }

    void forward(const ForwardArgs<Host, T>& args) {
        if (maximum_) return maximum_->forward(args);
        if (mean_) return means(args);
        run(forward_, args, args.input, args.output);
    }

    void backward(const BackwardArgs<Host, T>& args) {
        if (maximum_) return maximum_->backward(args);
        if (args.input_gradient == nullptr) return;
        if (mask_) {
            impl::activation_backward(args.context, Activation::relu, args.output, args.output_gradient, outputs_);
        }
        if (mean_) return means_backward(args);
        run(backward_, args, args.output_gradient, args.input_gradient);
    }

private:
    void means(const ForwardArgs<Host, T>& args) const {
        parallel_for(args.context, batch_ * mean_->outputs(), [this, &args](std::int64_t at) {
            mean_->forward(at % mean_->outputs(),
                           args.input + at / mean_->outputs() * mean_->inputs() * mean_->input_row(),
                           args.output + at * mean_->output_row());
        });
    }
    void means_backward(const BackwardArgs<Host, T>& args) const {
        parallel_for(args.context, batch_ * mean_->inputs(), [this, &args](std::int64_t at) {
            mean_->backward(at % mean_->inputs(),
                            args.output_gradient + at / mean_->inputs() * mean_->outputs() * mean_->output_row(),
                            args.input_gradient + at * mean_->input_row());
        });
    }
    void run(impl::DnnlCall& call, const ForwardArgs<Host, T>& args, const T* from, T* to) const {
        if (saved_bytes_ != 0) {
            call.run(args.scratch, {from, to, args.saved});
        } else {
            call.run(args.scratch, {from, to});
        }
    }

    std::optional<HostMaxPooling<T>> maximum_;
    std::optional<impl::MeanRows> mean_;
    bool mask_;
    std::int64_t batch_, outputs_;
    std::size_t saved_bytes_ = 0;
    impl::DnnlCall forward_, backward_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
