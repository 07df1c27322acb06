// SPDX-License-Identifier: Apache-2.0
//
// Linear layers on `Cuda`. Those that are small enough are parts of a chain (impl/linear_chain.cuh), a kernel of
// Cupola. The others are three products by cuBLASLt, with bias and ReLU in the epilogue of the first, and one of
// Cupola's own kernels over the gradient, which applies the mask of a fused ReLU and sums the bias gradient. Backward
// of such a layer with few outputs is one kernel (impl/few_outputs.cuh), which does this for the layer before too.
// Where cuBLASLt has no algorithm for a shape, or operands are not aligned, the product uses Cupola's own kernel too.
//
// cuBLASLt's matrices are column-major, Cupola's row-major: to cuBLASLt, each of Cupola's matrices is its transpose,
// and Y = X W^T + b, with N samples, I inputs and O outputs, becomes
//
//                     product            A, in memory         B, in memory          D
//   forward           Y^T  = W X^T       W: I x O, transposed X: I x N              Y: O x N, one bias per row
//   input gradient    dX^T = W^T dY^T    W: I x O             dY: O x N             dX: I x N
//   weight gradient   dW^T = X^T dY      X: I x N             dY: O x N, transposed dW: I x O
//
// In bfloat16 and in half the products read a rounded copy of the weights, and of the bias, which cuBLASLt requires in
// the output's type; `prepare` makes both. The weights' gradient is written to the arena in float.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/convert.hpp>
#include <cupola/ops/cuda/elementwise.hpp>
#include <cupola/ops/cuda/impl/bias_gradient.cuh>
#include <cupola/ops/cuda/impl/cublas_product.hpp>
#include <cupola/ops/cuda/impl/few_outputs.cuh>
#include <cupola/ops/cuda/impl/joined_gradients.cuh>
#include <cupola/ops/cuda/impl/linear_chain.cuh>
#include <cupola/ops/cuda/impl/tiled_product.cuh>
#include <cupola/ops/linear.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// y = relu(sum + bias). `bias` may be null. A NaN is kept.
template <class T>
struct LinearOutput {
    T* to;
    std::int64_t columns;
    const float* bias;
    bool relu;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t row, std::int64_t column, float sum) const {
        const float value = bias == nullptr ? sum : sum + bias[column];
        to[row * columns + column] = T(relu && value < 0.0F ? 0.0F : value);
    }
};

/// gradient = or += sum
struct LinearWeightGradient {
    float* to;
    std::int64_t columns;
    bool add;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t row, std::int64_t column, float sum) const {
        float& value = to[row * columns + column];
        value = add ? value + sum : sum;
    }
};

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class Linear<Cuda, T> {
    /// Whether the products read rounded copies of the parameters.
    static constexpr bool rounds = !std::same_as<T, float>;
    /// With fewer inputs than this, the rounding of the bias is a significant part of the sum: the product then uses
    /// Cupola's own kernel, which adds the bias in float.
    static constexpr std::int64_t few_terms = 16;
    using Product = impl::CublasProduct;

public:
    [[gnu::cold]] Linear(const BuildContext<Cuda, T>& build, const LinearShape& shape)
        : shape_(shape),
          batch_(build.batch),
          relu_(build.activation == Activation::relu),
          mask_(relu_ && !build.relu_mask_applied_by_next),
          parameter_gradients_(build.parameter_gradients),
          chain_(build.context.options().linear_chains && impl::LinearChainLimits::fits(build.batch, shape)),
          few_outputs_(!chain_ && build.training && impl::FewOutputs::fits(shape.out_features) &&
                       shape.in_features <= std::numeric_limits<int>::max()),
          slabs_(impl::FewOutputs::of(build.batch)) {
        if (chain_) return;
        constexpr cudaDataType_t type = impl::cublas_type<T>;
        const std::int64_t n = build.batch, in = shape.in_features, out = shape.out_features;
        const impl::CublasMatrix weight{type, in, out}, weight_transposed{type, in, out, true},
            weight_gradient{CUDA_R_32F, in, out};
        const impl::CublasMatrix input{type, in, n}, output{type, out, n}, output_transposed{type, out, n, true};
        if (!rounds || !shape.bias || in >= few_terms) {
            const Product::Epilogue epilogue = shape.bias
                                                   ? (relu_ ? Product::Epilogue::bias_relu : Product::Epilogue::bias)
                                                   : (relu_ ? Product::Epilogue::relu : Product::Epilogue::none);
            forward_ = Product(build.context, weight_transposed, input, output, epilogue, true);
        }
        own_forward_ = impl::TiledProduct({.rows = n,
                                           .columns = out,
                                           .depth = in,
                                           .left_row = in,
                                           .left_depth = 1,
                                           .right_depth = 1,
                                           .right_column = in},
                                          !forward_.found());
        if (!build.training || few_outputs_) return;
        if (parameter_gradients_) {
            backward_weights_ =
                Product(build.context, input, output_transposed, weight_gradient, Product::Epilogue::none, false);
            own_backward_weights_ = impl::TiledProduct({.rows = out,
                                                        .columns = in,
                                                        .depth = n,
                                                        .left_row = 1,
                                                        .left_depth = out,
                                                        .right_depth = in,
                                                        .right_column = 1},
                                                       !backward_weights_.found());
        }
        if (!build.input_gradient) return;
        backward_data_ = Product(build.context, weight, output, input, Product::Epilogue::none, false);
        own_backward_data_ = impl::TiledProduct({.rows = n,
                                                 .columns = in,
                                                 .depth = out,
                                                 .left_row = out,
                                                 .left_depth = 1,
                                                 .right_depth = in,
                                                 .right_column = 1},
                                                !backward_data_.found());
        side_by_side_ = build.context.options().side_by_side_gradients && parameter_gradients_ &&
                        side_scratch_offset() + scratch_of_weights() <= build.context.max_workspace();
    }

    [[nodiscard]] MemoryNeeds needs() const {
        const std::size_t scratch =
            std::max({forward_.workspace_bytes(), own_forward_.scratch_bytes(), scratch_of_data(),
                      (side_by_side_ ? side_scratch_offset() : 0) + scratch_of_weights()});
        return {.packed = rounds ? packed_bias_offset() +
                                       static_cast<std::size_t>(shape_.bias ? shape_.out_features : 0) * sizeof(T)
                                 : 0,
                .saved = few_outputs_ && parameter_gradients_
                             ? static_cast<std::size_t>(slabs_.slabs * (weights() + biases())) * sizeof(float)
                             : 0,
                .scratch = scratch};
    }

    /// The number of parts of the sums of the input's gradient.
    [[nodiscard]] std::int64_t gradient_sum_parts() const {
        if (chain_) return (batch_ + impl::tile_side - 1) / impl::tile_side;
        return few_outputs_ ? slabs_.slabs : 0;
    }
    /// A layer of a chain leaves its mask to the next operation in any case.
    [[nodiscard]] bool reads_gradient_sums() const {
        return chain_ || (shape_.bias && parameter_gradients_ && !few_outputs_);
    }

    /// The number of products by cuBLASLt: at most three in training.
    [[nodiscard]] int library_products() const {
        return (forward_.found() ? 1 : 0) + (backward_weights_.found() ? 1 : 0) + (backward_data_.found() ? 1 : 0);
    }

    /// Rounds weights and bias, which a chain reads in float. Called once per change of the parameters.
    void prepare(const ForwardArgs<Cuda, T>& args)
        requires(rounds)
    {
        Convert<Cuda>::run_joined(args.context, args.parameters[0], reinterpret_cast<T*>(args.packed),
                                  shape_.in_features * shape_.out_features);
        if (shape_.bias && !chain_)
            Convert<Cuda>::run_joined(args.context, args.parameters[1], packed_bias(args), shape_.out_features);
    }

    void forward(const ForwardArgs<Cuda, T>& args) {
        if (chain_) return forward_in_chain(args);
        const T* const weight = weights(args);
        const T* const bias = shape_.bias ? biases(args) : nullptr;
        if (forward_.found() && Product::takes(weight, args.input, args.output, bias)) {
            return forward_.run(args.context, weight, args.input, args.output, bias, false, args.scratch);
        }
        own_forward_.run(
            args.context, args.input, weight, args.scratch,
            impl::LinearOutput<T>{args.output, shape_.out_features, shape_.bias ? args.parameters[1] : nullptr, relu_});
    }

    void backward(const BackwardArgs<Cuda, T>& args) {
        if (few_outputs_) return backward_few_outputs(args);
        const bool bias = shape_.bias && parameter_gradients_;
        // With parts, the operation that wrote the gradient has also masked and summed it.
        if (const ChannelSums& given = args.output_gradient_sums; given.parts > 0) {
            if (chain_) {
                backward_in_chain(args, false, nullptr);
            } else {
                multiply(args);
            }
            if (!bias) return;
            return impl::queue_slab_sums(args.context, given.partial, given.parts, shape_.out_features, args.accumulate,
                                         args.parameter_gradients[1], true);
        }
        if (chain_) return backward_in_chain(args, mask_, bias ? args.parameter_gradients[1] : nullptr);
        const auto mask_and_sum = [&] {
            impl::queue_bias_gradient<T>(args.context, mask_ ? args.output : nullptr, args.output_gradient,
                                         bias ? args.parameter_gradients[1] : nullptr, batch_, shape_.out_features,
                                         args.accumulate);
        };
        // The products read the masked gradient; a sum without a mask can wait until after them.
        if (mask_) mask_and_sum();
        multiply(args);
        if (bias && !mask_) mask_and_sum();
    }

private:
    void forward_in_chain(const ForwardArgs<Cuda, T>& args) {
        const T* const weight = weights(args);
        impl::linear_chain<T>(args.context, 1)
            .add({.step = impl::ChainStep::output,
                  .relu = relu_,
                  .left_packs = impl::takes_packs(args.input, shape_.in_features),
                  .right_packs = impl::takes_packs(weight, shape_.in_features),
                  .rows = samples(),
                  .columns = outputs(),
                  .depth = inputs(),
                  .left = args.input,
                  .right = weight,
                  .to = args.output,
                  .bias = shape_.bias ? args.parameters[1] : nullptr});
    }
    /// `bias_gradient`: where the gradient is summed for the bias, or null.
    void backward_in_chain(const BackwardArgs<Cuda, T>& args, bool mask, float* bias_gradient) {
        constexpr int max_parts = 3;
        const impl::ChainPart<T> mask_and_sum{.step = impl::ChainStep::bias_gradient,
                                              .accumulate = args.accumulate,
                                              .rows = samples(),
                                              .columns = outputs(),
                                              .to = args.output_gradient,
                                              .mask = mask ? args.output : nullptr,
                                              .sums = bias_gradient};
        // The products read the masked gradient.
        if (mask) impl::linear_chain<T>(args.context, 1).add(mask_and_sum);
        const T *const gradient = args.output_gradient, *const weight = weights(args);
        const bool gradient_packs = impl::takes_packs(gradient, shape_.out_features);
        auto& chain = impl::linear_chain<T>(args.context, max_parts);
        if (args.input_gradient != nullptr) {
            const ChannelSums& sums = args.input_gradient_sums;
            chain.add({.step = impl::ChainStep::input_gradient,
                       .left_packs = gradient_packs,
                       .right_packs = impl::takes_packs(weight, shape_.in_features),
                       .rows = samples(),
                       .columns = inputs(),
                       .depth = outputs(),
                       .left = gradient,
                       .right = weight,
                       .to = args.input_gradient,
                       .mask = sums.masked ? args.input : nullptr,
                       .sums = sums.parts > 0 ? sums.partial : nullptr});
        }
        if (parameter_gradients_)
            chain.add({.step = impl::ChainStep::weight_gradient,
                       .accumulate = args.accumulate,
                       .left_packs = gradient_packs,
                       .right_packs = impl::takes_packs(args.input, shape_.in_features),
                       .rows = outputs(),
                       .columns = inputs(),
                       .depth = samples(),
                       .left = gradient,
                       .right = args.input,
                       .to = args.parameter_gradients[0]});
        if (!mask && bias_gradient != nullptr) chain.add(mask_and_sum);
    }

    void backward_few_outputs(const BackwardArgs<Cuda, T>& args) {
        auto* const parts = parameter_gradients_ ? reinterpret_cast<float*>(args.saved) : nullptr;
        float* const bias_parts = parts != nullptr && shape_.bias ? parts + slabs_.slabs * weights() : nullptr;
        const ChannelSums& sums = args.input_gradient_sums;
        impl::queue_few_outputs_backward<T>(args.context,
                                            {.slabs = slabs_,
                                             .inputs = static_cast<int>(shape_.in_features),
                                             .outputs = static_cast<int>(shape_.out_features),
                                             .input = args.input,
                                             .output = mask_ ? args.output : nullptr,
                                             .gradient = args.output_gradient,
                                             .weight = args.input_gradient != nullptr ? weights(args) : nullptr,
                                             .input_gradient = args.input_gradient,
                                             .masks_input = sums.masked,
                                             .weight_parts = parts,
                                             .bias_parts = bias_parts,
                                             .input_parts = sums.parts > 0 ? sums.partial : nullptr});
        if (parts == nullptr) return;
        impl::queue_slab_sums(args.context, parts, slabs_.slabs, weights(), args.accumulate,
                              args.parameter_gradients[0], true);
        if (bias_parts != nullptr)
            impl::queue_slab_sums(args.context, bias_parts, slabs_.slabs, biases(), args.accumulate,
                                  args.parameter_gradients[1], true);
    }

    void multiply(const BackwardArgs<Cuda, T>& args) {
        const bool side_by_side = side_by_side_ && args.input_gradient != nullptr;
        args.context.queue_side_by_side(
            side_by_side, [&] { multiply_for_input(args); },
            [&] { multiply_for_weights(args, args.scratch + (side_by_side ? side_scratch_offset() : 0)); });
    }
    void multiply_for_weights(const BackwardArgs<Cuda, T>& args, std::byte* scratch) {
        if (!parameter_gradients_) return;  // the layer is frozen
        float* const weight_gradient = args.parameter_gradients[0];
        if (backward_weights_.found() && Product::takes(args.input, args.output_gradient, weight_gradient)) {
            backward_weights_.run(args.context, args.input, args.output_gradient, weight_gradient, nullptr,
                                  args.accumulate, scratch);
        } else {
            own_backward_weights_.run(args.context, args.output_gradient, args.input, scratch,
                                      impl::LinearWeightGradient{weight_gradient, shape_.in_features, args.accumulate});
        }
    }
    void multiply_for_input(const BackwardArgs<Cuda, T>& args) {
        if (args.input_gradient == nullptr) return;
        const T* const weight = weights(args);
        if (backward_data_.found() && Product::takes(weight, args.output_gradient, args.input_gradient)) {
            backward_data_.run(args.context, weight, args.output_gradient, args.input_gradient, nullptr, false,
                               args.scratch);
        } else {
            own_backward_data_.run(args.context, args.output_gradient, weight, args.scratch,
                                   impl::LinearOutput<T>{args.input_gradient, shape_.in_features, nullptr, false});
        }
    }

    [[nodiscard]] std::size_t scratch_of_data() const {
        return std::max(backward_data_.workspace_bytes(), own_backward_data_.scratch_bytes());
    }
    [[nodiscard]] std::size_t scratch_of_weights() const {
        return std::max(backward_weights_.workspace_bytes(), own_backward_weights_.scratch_bytes());
    }
    /// The offset of the scratch memory of the product for the weights while the one for the input runs: after that
    /// one's.
    [[nodiscard]] std::size_t side_scratch_offset() const {
        return aligned(scratch_of_data(), Cuda::scratch_alignment);
    }

    /// The extents of a layer of a chain.
    [[nodiscard]] int samples() const { return static_cast<int>(batch_); }
    [[nodiscard]] int inputs() const { return static_cast<int>(shape_.in_features); }
    [[nodiscard]] int outputs() const { return static_cast<int>(shape_.out_features); }

    /// The numbers of parameters.
    [[nodiscard]] std::int64_t weights() const { return shape_.in_features * shape_.out_features; }
    [[nodiscard]] std::int64_t biases() const { return shape_.bias ? shape_.out_features : 0; }
    [[nodiscard]] std::size_t packed_bias_offset() const {
        return aligned(static_cast<std::size_t>(weights()) * sizeof(T));
    }
    [[nodiscard]] T* packed_bias(const ForwardArgs<Cuda, T>& args) const {
        return reinterpret_cast<T*>(args.packed + packed_bias_offset());
    }
    [[nodiscard]] static const T* weights(const ForwardArgs<Cuda, T>& args) {
        if constexpr (rounds) {
            return reinterpret_cast<const T*>(args.packed);
        } else {
            return args.parameters[0];
        }
    }
    [[nodiscard]] const T* biases(const ForwardArgs<Cuda, T>& args) const {
        if constexpr (rounds) {
            return packed_bias(args);
        } else {
            return args.parameters[1];
        }
    }

    LinearShape shape_;
    std::int64_t batch_;
    bool relu_, mask_, parameter_gradients_, chain_, few_outputs_, side_by_side_ = false;
    impl::FewOutputs slabs_;
    Product forward_, backward_weights_, backward_data_;
    impl::TiledProduct own_forward_, own_backward_weights_, own_backward_data_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
