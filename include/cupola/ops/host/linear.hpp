// SPDX-License-Identifier: Apache-2.0
//
// Linear layers on `Host`: three oneDNN matrix products in place on the arena (outside training, small batches use one
// of Cupola's own kernels in forward), and one pass over the gradient that applies the mask of a fused ReLU and sums
// the bias gradient. In bfloat16 the products read a copy of the weights that `prepare` rounds, and write the weights'
// gradient to the arena in float.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>

#include <cupola/ops/convert.hpp>
#include <cupola/ops/host/elementwise.hpp>
#include <cupola/ops/host/linear_by_rows.hpp>
#include <cupola/ops/host/onednn_primitive.hpp>
#include <cupola/ops/linear.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// bias_gradient[c] = (or +=) the sum of gradient over the rows, in row order for any number of threads; where `output`
/// is given, gradient is first set to zero where output is not positive.
template <HostElement T>
void bias_backward(const HostContext& context, const T* output, T* gradient, float* bias_gradient, std::int64_t rows,
                   std::int64_t columns, bool accumulate) {
    constexpr std::int64_t width = 64;
    parallel_for(context, (columns + width - 1) / width, [=](std::int64_t block) {
        const std::int64_t begin = block * width, count = std::min(columns - begin, width);
        float sum[width] = {};
        for (std::int64_t r = 0; r < rows; ++r) {
            T* const g = gradient + r * columns + begin;
            if (output != nullptr) {
                const T* const y = output + r * columns + begin;
#pragma omp simd
                for (std::int64_t c = 0; c < count; ++c) put(g[c], value_if(is_positive(y[c]), get<T>(g[c])));
            }
#pragma omp simd
            for (std::int64_t c = 0; c < count; ++c) sum[c] += static_cast<float>(g[c]);
        }
        if (bias_gradient == nullptr) return;
        for (std::int64_t c = 0; c < count; ++c) {
            bias_gradient[begin + c] = accumulate ? bias_gradient[begin + c] + sum[c] : sum[c];
        }
    });
}

}  // namespace impl

namespace ops {

template <impl::HostElement T>
class Linear<Host, T> {
    /// Whether the products read a rounded copy of the weights.
    static constexpr bool rounds = !std::same_as<T, float>;
    /// The largest batch whose forward is computed by rows, outside training only: in training a sample's outputs must
    /// not depend on the batch size, because otherwise replicas with small and large batches would diverge. Measured
    /// with sixteen lanes: 2.4 times as fast as oneDNN's product for 1 sample, 1.7 for 8, 1.1 to 1.2 for 16. oneDNN's
    /// code is for the processor, this code for the instruction set for which the file is compiled.
    static constexpr std::int64_t few_samples = impl::lane_count * impl::lane_count / 16;
    /// The multiply-adds up to which one thread computes a product faster than a team that has to synchronise. A step
    /// of 32 samples of 784-128-10 takes 0.90 of the time this way, with two threads.
    static constexpr std::int64_t small_product = 1 << 18;

public:
    [[gnu::cold]] Linear(const BuildContext<Host, T>& build, const LinearShape& shape)
        : shape_(shape),
          batch_(build.batch),
          after_{build.activation == Activation::relu, build.adds_to_output, build.formula},
          by_rows_(!rounds && build.inference && build.batch <= few_samples),
          mask_(after_.relu && !build.relu_mask_applied_by_next),
          parameter_gradients_(build.parameter_gradients) {
        impl::require_instructions<T>("bfloat16 linear layers need");
        constexpr dnnl_data_type_t type = impl::dnnl_type<T>;
        const std::int64_t n = build.batch, in = shape.in_features, out = shape.out_features;
        const auto input = impl::dnnl_tensor({n, in}, dnnl_ab, type);
        const auto output = impl::dnnl_tensor({n, out}, dnnl_ab, type);
        const auto weight = impl::dnnl_tensor({out, in}, dnnl_ab, type);
        const auto weight_transposed = impl::dnnl_tensor({in, out}, dnnl_ba, type);
        const auto output_transposed = impl::dnnl_tensor({out, n}, dnnl_ba, type);
        const auto weight_gradient = impl::dnnl_tensor({out, in}, dnnl_ab);
        const auto bias = impl::dnnl_tensor({1, out}, dnnl_ab);
        // A primitive keeps the number of threads with which it was made.
        const HostContext::Team team(n * in * out <= small_product ? 1 : build.context.threads());
        const auto product = [&](const auto& left, const auto& right, const auto& result, const auto& attributes,
                                 const_dnnl_memory_desc_t added = nullptr) {
            impl::DnnlPrimitiveDesc description;
            const dnnl_status_t status =
                dnnl_matmul_primitive_desc_create(description.out(), build.context.engine(), left.get(), right.get(),
                                                  added, result.get(), attributes.get());
            impl::DnnlCall call(build.context, status, std::move(description), "matrix product");
            call.add(DNNL_ARG_SRC, left.get(), DNNL_ARG_WEIGHTS, right.get(), DNNL_ARG_DST, result.get(), DNNL_ARG_BIAS,
                     added);
            return call;
        };
        const auto joined = impl::dnnl_attributes(build.activation, build.adds_to_output, build.formula);
        if (!by_rows_) forward_ = product(input, weight_transposed, output, joined, shape.bias ? bias.get() : nullptr);
        if (!build.training) return;
        const auto plain = impl::dnnl_attributes(), adding = impl::dnnl_attributes(Activation::none, true);
        if (parameter_gradients_) {
            backward_weights_ = product(output_transposed, input, weight_gradient, plain);
            backward_weights_adding_ = product(output_transposed, input, weight_gradient, adding);
        }
        if (build.input_gradient) backward_data_ = product(output, weight, input, plain);
    }

    [[nodiscard]] MemoryNeeds needs() const {
        std::size_t scratch = 0;
        for (const impl::DnnlCall* call : {&forward_, &backward_weights_, &backward_weights_adding_, &backward_data_})
            scratch = std::max(scratch, call->scratch_bytes());
        return {.packed = rounds ? aligned(static_cast<std::size_t>(weight_count()) * sizeof(T)) : 0,
                .scratch = scratch};
    }

    /// Rounds the weights. Called once per change of the parameters.
    void prepare(const ForwardArgs<Host, T>& args)
        requires(rounds)
    {
        Convert<Host>::run(args.context, args.parameters[0], reinterpret_cast<T*>(args.packed), weight_count());
    }

    void forward(const ForwardArgs<Host, T>& args) {
        if constexpr (!rounds) {
            if (by_rows_) {
                return impl::linear_by_rows(args.context, args.input, args.parameters[0],
                                            shape_.bias ? args.parameters[1] : nullptr, after_, batch_,
                                            shape_.in_features, shape_.out_features, args.output);
            }
        }
        forward_.run(args.scratch, {args.input, weights(args), args.output, args.parameters[1]});
    }

    void backward(const BackwardArgs<Host, T>& args) {
        const bool bias = shape_.bias && parameter_gradients_;
        if (mask_ || bias) {
            impl::bias_backward<T>(args.context, mask_ ? args.output : nullptr, args.output_gradient,
                                   bias ? args.parameter_gradients[1] : nullptr, batch_, shape_.out_features,
                                   args.accumulate);
        }
        if (parameter_gradients_) {
            (args.accumulate ? backward_weights_adding_ : backward_weights_)
                .run(args.scratch, {args.output_gradient, args.input, args.parameter_gradients[0]});
        }
        if (args.input_gradient != nullptr) {
            backward_data_.run(args.scratch, {args.output_gradient, weights(args), args.input_gradient});
        }
    }

private:
    [[nodiscard]] std::int64_t weight_count() const { return shape_.in_features * shape_.out_features; }
    [[nodiscard]] static const void* weights(const ForwardArgs<Host, T>& args) {
        return rounds ? static_cast<const void*>(args.packed) : args.parameters[0];
    }

    LinearShape shape_;
    std::int64_t batch_;
    impl::AfterRows after_;
    bool by_rows_, mask_, parameter_gradients_;
    impl::DnnlCall forward_, backward_weights_, backward_weights_adding_, backward_data_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
