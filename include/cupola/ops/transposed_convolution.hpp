// SPDX-License-Identifier: Apache-2.0
//
// Transposed two-dimensional convolution (Dumoulin, Visin 2016: a guide to convolution arithmetic, section 4), with
// bias. It is the gradient of a convolution with respect to its input: each element of the input adds its multiple of
// the filter to a window of the output.
//
//   y[n, i*s + a*d - pad, j*s + b*d - pad, o + g*C] = bias[o + g*C] + sum of x[n,i,j,c] * weight[c,a,b,o]
//
// over the i, a, j, b for which the place of y is that one, and over the input channels c of the group g of the output
// channel; C = out / groups. Activations are channels last; weights are [in, height, width, out / groups], which are
// those of the convolution from the output to the input. Parameters: 0 the weight, 1 the bias.
//
// All three directions are those of that convolution, by the device's Convolution: forward is its gradient of the
// input, the gradient of the input is its forward, and the gradient of the weights is its own with input and gradient
// exchanged. The bias and its gradient are a pass each, so in bfloat16 and half the output is rounded twice where there
// is a bias. Its gradient is summed in doubles, over slabs of rows and then over the slabs, in an order that depends
// only on the device's type and the shape.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <cupola/ops/convolution.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/ops/rows.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct TransposedConvolutionShape {
    /// From the output of the transposed convolution to its input, without a bias.
    ConvolutionShape convolution;
    bool bias = true;
};

namespace impl {

struct AddBias {
    CUPOLA_HOST_DEVICE void operator()(float& y, float before, float bias) const { y = before + bias; }
};

/// The division of a gradient's rows for the sum per channel: a few rows, side by side, are one line, so that those of
/// few channels occupy the lanes of a device, and some lines are a slab.
struct BiasSlabs {
    static constexpr std::int64_t least_width = 32, least_lines = 64, most_slabs = 2048;
    /// Of the whole gradient, of a line, and of a slab.
    std::int64_t elements, width, slab;

    constexpr BiasSlabs(std::int64_t rows, std::int64_t channels)
        : elements(rows * channels), width((least_width + channels - 1) / channels * channels), slab(0) {
        const std::int64_t lines = (elements + width - 1) / width, share = (lines + most_slabs - 1) / most_slabs;
        slab = std::max(share, least_lines) * width;
    }
    [[nodiscard]] constexpr std::int64_t slabs() const { return (elements + slab - 1) / slab; }
    /// The sums of a slab are those of a line's columns.
    [[nodiscard]] constexpr std::size_t bytes() const {
        return aligned(static_cast<std::size_t>(slabs() * width) * sizeof(double));
    }
};

/// Writes the sums of a slab. A row of one lane adds up some columns at once.
template <class T>
struct SumBiasSlab {
    const T* dy;
    std::int64_t elements, width, slab;
    double* sums;

    template <class Lanes>
    CUPOLA_HOST_DEVICE void operator()(const Lanes& lanes, std::int64_t n) const {
        const std::int64_t count = lanes.count(width), first = n * slab,
                           end = first + slab < elements ? first + slab : elements;
        if constexpr (Lanes::step == 1) {
            constexpr std::int64_t at_once = 16;
            for (std::int64_t c = 0; c < count; c += at_once) {
                const std::int64_t columns = at_once < count - c ? at_once : count - c;
                double sum[at_once] = {};
                for (std::int64_t i = first + c; i < end; i += width) {
                    const std::int64_t here = columns < end - i ? columns : end - i;
                    for (std::int64_t k = 0; k < here; ++k) sum[k] += value(i + k);
                }
                for (std::int64_t k = 0; k < columns; ++k) sums[n * width + c + k] = sum[k];
            }
        } else {
            for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step) {
                double sum = 0;
                for (std::int64_t i = first + c; i < end; i += width) sum += value(i);
                sums[n * width + c] = sum;
            }
        }
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE double value(std::int64_t i) const {
        return static_cast<double>(static_cast<float>(dy[i]));
    }
};

/// The sums of the slabs per channel, and the gradient before, where it is not null.
struct BiasTerms {
    const double* sums;
    std::int64_t channels;
    const float* before;

    CUPOLA_HOST_DEVICE double operator()(std::int64_t row, std::int64_t c) const {
        const double term = sums[row * channels + c];
        return before != nullptr && row == 0 ? term + static_cast<double>(before[c]) : term;
    }
};

}  // namespace impl

namespace ops {

/// Made as `TransposedConvolution(build, shape)`; defined for every device with a Convolution and rows (ops/rows.hpp).
template <class Device, class T>
class TransposedConvolution;

template <class Device, class T>
    requires(AvailableOperation<Convolution<Device, T>> && ComputesElements<Device, T> && ComputesRows<Device>)
class TransposedConvolution<Device, T> {
public:
    [[gnu::cold]] TransposedConvolution(const BuildContext<Device, T>& build, const TransposedConvolutionShape& shape)
        : channels_(shape.convolution.in_channels),
          rows_(build.batch * shape.convolution.height.input * shape.convolution.width.input),
          bias_(shape.bias),
          data_(from_output(build, true, false), shape.convolution) {
        if (build.training && build.parameter_gradients)
            weights_.emplace(from_output(build, false, true), shape.convolution);
    }

    [[nodiscard]] MemoryNeeds needs() const {
        MemoryNeeds needs = memory_needs(data_);
        if (weights_) {
            // Its weights are not read, so they are not prepared.
            const MemoryNeeds of_weights = memory_needs(*weights_);
            needs.saved = of_weights.saved;
            needs.scratch = std::max(needs.scratch, of_weights.scratch);
            if (bias_) needs.scratch = std::max(needs.scratch, impl::BiasSlabs(rows_, channels_).bytes());
        }
        return needs;
    }

    void prepare(const ForwardArgs<Device, T>& args) { data_.prepare(args); }

    void forward(const ForwardArgs<Device, T>& args) {
        BackwardArgs<Device, T> reversed{args};
        reversed.input = reversed.output = nullptr;
        reversed.output_gradient = only_read(args.input);
        reversed.input_gradient = args.output;
        data_.backward(reversed);
        if (!bias_) return;
        const T* const sums = args.output;
        for_each_in_rows(args.context, rows_, channels_, impl::AddBias{}, Rows<T>{args.output, channels_},
                         Rows<const T>{sums, channels_}, Rows<const float>{args.parameters[1], 0});
    }

    void backward(const BackwardArgs<Device, T>& args) {
        if (weights_) {
            // Sums and gradients of second inputs are those of other tensors.
            BackwardArgs<Device, T> exchanged{static_cast<const ForwardArgs<Device, T>&>(args)};
            exchanged.input = args.output_gradient;
            exchanged.output = nullptr;
            exchanged.output_gradient = only_read(args.input);
            exchanged.parameter_gradients = args.parameter_gradients;
            exchanged.accumulate = args.accumulate;
            weights_->backward(exchanged);
            if (bias_) sum_bias(args);
        }
        if (args.input_gradient == nullptr) return;
        ForwardArgs<Device, T> turned{args};
        turned.input = args.output_gradient;
        turned.output = args.input_gradient;
        data_.forward(turned);
    }

private:
    void sum_bias(const BackwardArgs<Device, T>& args) const {
        const impl::BiasSlabs slabs(rows_, channels_);
        auto* const sums = reinterpret_cast<double*>(args.scratch);
        for_each_row(args.context, slabs.slabs(), slabs.slab,
                     impl::SumBiasSlab<T>{args.output_gradient, slabs.elements, slabs.width, slabs.slab, sums});
        float* const gradient = args.parameter_gradients[1];
        sum_columns(args.context, slabs.slabs() * (slabs.width / channels_), channels_,
                    impl::BiasTerms{sums, channels_, args.accumulate ? gradient : nullptr}, gradient);
    }
    /// For a convolution from the output to the input, with backward for the input's gradient or for the weights'.
    [[nodiscard]] static BuildContext<Device, T> from_output(BuildContext<Device, T> build, bool data, bool weights) {
        std::swap(build.input, build.output);
        build.forward = data && build.training && build.input_gradient;
        build.training = true;
        build.input_gradient = data;
        build.parameter_gradients = weights;
        return build;
    }
    /// An operation may overwrite the gradient of its output; a convolution without an activation does not.
    [[nodiscard]] static T* only_read(const T* input) { return const_cast<T*>(input); }

    std::int64_t channels_, rows_;
    bool bias_;
    Convolution<Device, T> data_;
    std::optional<Convolution<Device, T>> weights_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
