// SPDX-License-Identifier: Apache-2.0
//
// Linear maps of images that act on height and width separately, and on each channel alone:
//
//   y[n,i,j,c] = sum over a, b of h[i,a] w[j,b] x[n,a,b,c]
//
// where row i of h, and of w, is not zero on a few neighbouring inputs only. By its kind an axis is
//
//   linear   upsampling by a whole factor with linear interpolation between the centres of the pixels (PyTorch's
//            align_corners=False, ONNX's half_pixel): output i lies at (i + 1/2) / factor - 1/2, but not before input 0
//            or after the last
//   mean     the mean of inputs [floor(i in / out), ceil((i + 1) in / out)), PyTorch's adaptive pooling; neighbouring
//            windows may overlap
//   shift    output i is input i - first, and zero where there is none: padding with zeros, and cropping
//
// Backward is the transposed map; each gradient is added row by row, in float, so it has the same bits for any number
// of threads.
#pragma once

#include <cstdint>

#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/impl/kernel_parts/divisor.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/ops/rows.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

enum class ResamplingKind : std::uint8_t { linear, mean, shift };

/// One axis; extents are below 2^30. For the kind `linear` the output is a multiple of the input.
struct ResampledAxis {
    ResamplingKind kind = ResamplingKind::linear;
    std::int64_t input = 0, output = 0;
    /// For the kind `shift`: the output of input 0, which may be below 0.
    std::int64_t first = 0;

    /// Neighbouring places [begin, end).
    struct Range {
        std::int64_t begin, end;
    };

    /// The inputs that output i reads; of the kind `shift` there may be none.
    [[nodiscard]] CUPOLA_HOST_DEVICE Range inputs(std::int64_t i) const {
        if (kind == ResamplingKind::mean) return {i * input / output, ((i + 1) * input + output - 1) / output};
        if (kind == ResamplingKind::shift) return one_of(i - first, input);
        const std::int64_t low = twice_from_first(i) / (2 * factor());
        return {low, low + 1 < input ? low + 2 : input};
    }
    /// The outputs that read input k, and for the kind `linear` some whose factor is 0.
    [[nodiscard]] CUPOLA_HOST_DEVICE Range outputs(std::int64_t k) const {
        if (kind == ResamplingKind::mean) return {k * output / input, ((k + 1) * output + input - 1) / input};
        if (kind == ResamplingKind::shift) return one_of(k + first, output);
        // Those at a distance of less than 1: 2 factor (k - 1) < 2 i + 1 - factor < 2 factor (k + 1).
        const std::int64_t f = factor(), begin = (2 * f * k - f) / 2, end = f * (k + 1) + (f + 1) / 2;
        return {k == 0 ? 0 : begin, end < output ? end : output};
    }
    /// The factor of input k, one of inputs(i), in output i.
    [[nodiscard]] CUPOLA_HOST_DEVICE float weight(std::int64_t i, std::int64_t k) const {
        const Range range = inputs(i);
        if (k < range.begin || k >= range.end) return 0;
        const auto size = static_cast<float>(range.end - range.begin);
        if (kind == ResamplingKind::mean || range.begin + 1 == range.end) return 1.0F / size;
        const std::int64_t f = factor(), beyond = twice_from_first(i) - 2 * f * range.begin;
        return static_cast<float>(k == range.begin ? 2 * f - beyond : beyond) / static_cast<float>(2 * f);
    }

private:
    /// The place, if it is one of `count`.
    [[nodiscard]] static CUPOLA_HOST_DEVICE Range one_of(std::int64_t place, std::int64_t count) {
        return place >= 0 && place < count ? Range{place, place + 1} : Range{0, 0};
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t factor() const { return output / input; }
    /// Twice the distance of output i from the centre of input 0, in outputs; 0 before it.
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t twice_from_first(std::int64_t i) const {
        const std::int64_t twice = 2 * i + 1 - factor();
        return twice > 0 ? twice : 0;
    }
};

struct ResamplingShape {
    ResampledAxis height, width;
    std::int64_t channels = 0;
};

namespace impl {

/// The formula of a pixel (ops/rows.hpp): of the output, or in backward of the input's gradient. Pixels are numbered
/// through the batch.
template <class T>
struct ResamplePixel {
    ResamplePixel(const ResamplingShape& shape, bool is_backward, const T* read, T* written)
        : s(shape),
          backward(is_backward),
          by_rows(is_backward ? s.height.input : s.height.output),
          by_columns(is_backward ? s.width.input : s.width.output),
          from(read),
          to(written) {}

    ResamplingShape s;
    bool backward;
    Divisor by_rows, by_columns;
    const T* from;
    T* to;

    template <class Lanes>
    CUPOLA_HOST_DEVICE void operator()(const Lanes& lanes, std::int64_t n) const {
        // Where a row has one lane it keeps a vector of sums.
        constexpr std::int64_t at_once = Lanes::step == 1 ? 16 : 1;
        const std::int64_t count = lanes.count(s.channels);
        const Divisor::Parts columns = by_columns.divide(n), rows = by_rows.divide(columns.quotient);
        const std::int64_t row = rows.remainder, column = columns.remainder;
        const ResampledAxis::Range read_rows = backward ? s.height.outputs(row) : s.height.inputs(row),
                                   read_columns = backward ? s.width.outputs(column) : s.width.inputs(column);
        const std::int64_t height = backward ? s.height.output : s.height.input,
                           width = backward ? s.width.output : s.width.input;
        for (std::int64_t c = lanes.begin(); c < count; c += at_once * Lanes::step) {
            const std::int64_t here = at_once < count - c ? at_once : count - c;
            float sums[at_once] = {};
            for (std::int64_t a = read_rows.begin; a < read_rows.end; ++a) {
                const float of_row = backward ? s.height.weight(a, row) : s.height.weight(row, a);
                for (std::int64_t b = read_columns.begin; b < read_columns.end; ++b) {
                    const float weight = of_row * (backward ? s.width.weight(b, column) : s.width.weight(column, b));
                    const T* const pixel = from + ((rows.quotient * height + a) * width + b) * s.channels + c;
                    if (here == at_once) {
                        for (std::int64_t k = 0; k < at_once; ++k) sums[k] += weight * static_cast<float>(pixel[k]);
                    } else {
                        for (std::int64_t k = 0; k < here; ++k) sums[k] += weight * static_cast<float>(pixel[k]);
                    }
                }
            }
            for (std::int64_t k = 0; k < here; ++k) to[n * s.channels + c + k] = T(sums[k]);
        }
    }
};

}  // namespace impl

namespace ops {

/// Made as `Resampling(build, shape)`; defined for every device with rows (ops/rows.hpp).
template <class Device, class T>
class Resampling;

template <class Device, class T>
    requires(ComputesElements<Device, T> && ComputesRows<Device>)
class Resampling<Device, T> {
public:
    Resampling(const BuildContext<Device, T>& build, const ResamplingShape& shape)
        : shape_(shape),
          inputs_(build.batch * shape.height.input * shape.width.input),
          outputs_(build.batch * shape.height.output * shape.width.output) {}

    void forward(const ForwardArgs<Device, T>& args) const {
        for_each_row(args.context, outputs_, shape_.channels,
                     impl::ResamplePixel<T>(shape_, false, args.input, args.output));
    }
    void backward(const BackwardArgs<Device, T>& args) const {
        if (args.input_gradient == nullptr) return;
        for_each_row(args.context, inputs_, shape_.channels,
                     impl::ResamplePixel<T>(shape_, true, args.output_gradient, args.input_gradient));
    }

private:
    ResamplingShape shape_;
    std::int64_t inputs_, outputs_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
