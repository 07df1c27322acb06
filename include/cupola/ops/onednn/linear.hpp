// SPDX-License-Identifier: Apache-2.0
//
// Linear layers on `Host`: three oneDNN matrix products on the arena in place, and one pass over the gradient that
// applies the mask of a fused ReLU and sums the bias gradient.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/ops/linear.hpp>
#include <cupola/ops/onednn/primitive.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// bias_gradient[c] = (or +=) the sum of gradient over the rows, in row order whatever the threads; where `output` is
/// given, gradient is first set to zero where output is not positive.
inline void bias_backward(const HostContext& context, const float* output, float* gradient, float* bias_gradient,
                          std::int64_t rows, std::int64_t columns, bool accumulate) {
    constexpr std::int64_t width = 64;
    parallel_for(context, (columns + width - 1) / width, [=](std::int64_t block) {
        const std::int64_t begin = block * width, count = std::min(columns - begin, width);
        float sum[width] = {};
        for (std::int64_t r = 0; r < rows; ++r) {
            float* const g = gradient + r * columns + begin;
            if (output != nullptr) {
                const float* const y = output + r * columns + begin;
#pragma omp simd
                for (std::int64_t c = 0; c < count; ++c) {
                    const float value = g[c];
                    g[c] = y[c] > 0.0F ? value : 0.0F;
                }
            }
#pragma omp simd
            for (std::int64_t c = 0; c < count; ++c) sum[c] += g[c];
        }
        if (bias_gradient == nullptr) return;
        for (std::int64_t c = 0; c < count; ++c) {
            bias_gradient[begin + c] = accumulate ? bias_gradient[begin + c] + sum[c] : sum[c];
        }
    });
}

}  // namespace impl

namespace ops {

template <>
class Linear<Host, float> {
public:
    [[gnu::cold]] Linear(const Site<Host>& site, const LinearShape& shape)
        : shape_(shape), batch_(site.batch), relu_(site.activation == Activation::relu), mask_(relu_ && !site.masked_by_next) {
        const std::int64_t n = site.batch, in = shape.in_features, out = shape.out_features;
        const auto input = impl::dnnl_tensor({n, in}, dnnl_ab);
        const auto output = impl::dnnl_tensor({n, out}, dnnl_ab);
        const auto weight = impl::dnnl_tensor({out, in}, dnnl_ab);
        const auto weight_transposed = impl::dnnl_tensor({in, out}, dnnl_ba);
        const auto output_transposed = impl::dnnl_tensor({out, n}, dnnl_ba);
        const auto bias = impl::dnnl_tensor({1, out}, dnnl_ab);
        forward_ = product(site.context, input.get(), weight_transposed.get(), shape.bias ? bias.get() : nullptr,
                           output.get(), relu_, false);
        if (!site.training) return;
        backward_weights_ = product(site.context, output_transposed.get(), input.get(), nullptr, weight.get(), false, false);
        backward_weights_adding_ =
            product(site.context, output_transposed.get(), input.get(), nullptr, weight.get(), false, true);
        if (site.input_gradient) {
            backward_data_ = product(site.context, output.get(), weight.get(), nullptr, input.get(), false, false);
        }
    }

    [[nodiscard]] MemoryNeeds needs() const {
        std::size_t scratch = 0;
        for (const impl::DnnlCall* call : {&forward_, &backward_weights_, &backward_weights_adding_, &backward_data_}) {
            scratch = std::max(scratch, call->scratch_bytes());
        }
        return {.scratch = scratch};
    }

    void forward(const Pass<Host>& pass) {
        if (shape_.bias) {
            forward_.run(pass.scratch, {pass.input, pass.parameters[0], pass.output, pass.parameters[1]});
        } else {
            forward_.run(pass.scratch, {pass.input, pass.parameters[0], pass.output});
        }
    }

    void backward(const Pass<Host>& pass) {
        if (mask_ || shape_.bias) {
            impl::bias_backward(pass.context, mask_ ? pass.output : nullptr, pass.output_gradient,
                                shape_.bias ? pass.parameter_gradients[1] : nullptr, batch_, shape_.out_features,
                                pass.accumulate);
        }
        (pass.accumulate ? backward_weights_adding_ : backward_weights_)
            .run(pass.scratch, {pass.output_gradient, pass.input, pass.parameter_gradients[0]});
        if (pass.input_gradient != nullptr) {
            backward_data_.run(pass.scratch, {pass.output_gradient, pass.parameters[0], pass.input_gradient});
        }
    }

private:
    [[gnu::cold]] static impl::DnnlCall product(const HostContext& context, const_dnnl_memory_desc_t left, const_dnnl_memory_desc_t right,
                                  const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t result, bool relu, bool sum) {
        const auto attributes = impl::dnnl_attributes(relu, sum);
        impl::DnnlPrimitiveDesc description;
        const dnnl_status_t status = dnnl_matmul_primitive_desc_create(description.out(), context.engine(), left, right, bias,
                                                                       result, attributes.get());
        impl::DnnlCall call(context, status, std::move(description), "matrix product");
        call.add(DNNL_ARG_SRC, left);
        call.add(DNNL_ARG_WEIGHTS, right);
        call.add(DNNL_ARG_DST, result);
        if (bias != nullptr) call.add(DNNL_ARG_BIAS, bias);
        return call;
    }

    LinearShape shape_;
    std::int64_t batch_;
    bool relu_, mask_;
    impl::DnnlCall forward_, backward_weights_, backward_weights_adding_, backward_data_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
