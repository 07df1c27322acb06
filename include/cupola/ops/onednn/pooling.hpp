// SPDX-License-Identifier: Apache-2.0
//
// Pooling on `Host`: a maximum by kernels of our own, which keep its place in a byte and lose no NaN, means and windows
// of more than 15 by oneDNN.
#pragma once

#include <cstdint>
#include <optional>

#include <cupola/ops/host/max_pooling.hpp>
#include <cupola/ops/onednn/activation.hpp>
#include <cupola/ops/onednn/impl/element.hpp>
#include <cupola/ops/onednn/primitive.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::HostElement T>
class Pooling<Host, T> {
public:
    [[gnu::cold]] Pooling(const Site<Host, T>& site, const PoolingShape& shape)
        : mask_(site.masks_for_previous), outputs_(site.batch * site.output.size()) {
        if (place_is_a_byte(shape)) {
            maximum_.emplace(site, shape);
            return;
        }
        impl::require_instructions<T>("bfloat16 pooling needs");
        const HostContext& context = site.context;
        const auto [h, w] = std::pair(shape.height, shape.width);
        constexpr dnnl_data_type_t type = impl::dnnl_type<T>;
        const auto source = impl::dnnl_tensor({site.batch, shape.channels, h.input, w.input}, dnnl_nhwc, type);
        const auto target = impl::dnnl_tensor({site.batch, shape.channels, h.output, w.output}, dnnl_nhwc, type);
        const dnnl_dims_t strides{h.stride, w.stride}, window{h.window, w.window}, dilation{0, 0},
            begin{h.pad_begin, w.pad_begin}, end{h.pad_end, w.pad_end};
        const auto algorithm = shape.kind == PoolingKind::max ? dnnl_pooling_max : dnnl_pooling_avg_exclude_padding;
        const auto kind = site.training ? dnnl_forward_training : dnnl_forward_inference;
        const auto attributes = impl::dnnl_attributes();

        impl::DnnlPrimitiveDesc description;
        auto status = dnnl_pooling_forward_primitive_desc_create(description.out(), context.engine(), kind, algorithm,
                                                                 source.get(), target.get(), strides, window, dilation,
                                                                 begin, end, attributes.get());
        forward_ = impl::DnnlCall(context, status, std::move(description), "pooling");
        forward_.add(DNNL_ARG_SRC, source.get());
        forward_.add(DNNL_ARG_DST, target.get());
        saved_bytes_ = forward_.bytes(dnnl_query_workspace_md);
        if (saved_bytes_ != 0) forward_.add(DNNL_ARG_WORKSPACE, forward_.query(dnnl_query_workspace_md));
        if (!site.training || !site.input_gradient) return;

        impl::DnnlPrimitiveDesc backward_description;
        status = dnnl_pooling_backward_primitive_desc_create(backward_description.out(), context.engine(), algorithm,
                                                             source.get(), target.get(), strides, window, dilation,
                                                             begin, end, forward_.description(), attributes.get());
        backward_ = impl::DnnlCall(context, status, std::move(backward_description), "input gradient of a pooling");
        backward_.add(DNNL_ARG_DIFF_DST, target.get());
        backward_.add(DNNL_ARG_DIFF_SRC, source.get());
        if (saved_bytes_ != 0) backward_.add(DNNL_ARG_WORKSPACE, backward_.query(dnnl_query_workspace_md));
    }

    [[nodiscard]] MemoryNeeds needs() const {
        if (maximum_) return maximum_->needs();
        return {.saved = saved_bytes_, .scratch = std::max(forward_.scratch_bytes(), backward_.scratch_bytes())};
    }

    void forward(const Pass<Host, T>& pass) {
        if (maximum_) return maximum_->forward(pass);
        run(forward_, pass, pass.input, pass.output);
    }

    void backward(const Pass<Host, T>& pass) {
        if (maximum_) return maximum_->backward(pass);
        if (pass.input_gradient == nullptr) return;
        if (mask_) {
            impl::relu_backward(pass.context, pass.output, pass.output_gradient, pass.output_gradient, outputs_);
        }
        run(backward_, pass, pass.output_gradient, pass.input_gradient);
    }

private:
    void run(impl::DnnlCall& call, const Pass<Host, T>& pass, const T* from, T* to) const {
        if (saved_bytes_ != 0) {
            call.run(pass.scratch, {from, to, pass.saved});
        } else {
            call.run(pass.scratch, {from, to});
        }
    }

    std::optional<HostMaxPooling<T>> maximum_;
    bool mask_;
    std::int64_t outputs_;
    std::size_t saved_bytes_ = 0;
    impl::DnnlCall forward_, backward_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
