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
// Backward is the transposed map. A sum is that of the sums of its rows, in float, so it has the same bits for any
// number of threads. Inputs whose factor is zero are not read: an infinity reaches only the outputs that depend on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/impl/kernel_parts/divisor.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/ops/rows.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

enum class ResamplingKind : std::uint8_t { linear, mean, shift };

/// One axis. Extents are at most 2^29; for the kind `linear` the output is a multiple of the input, and for the kind
/// `mean` (input + 1) (output + 1) is at most 2^31. So 32 bits hold all that is computed of them, which takes a GPU a
/// fifth of the instructions of 64 where it divides.
struct ResampledAxis {
    /// `first` is for the kind `shift`: the output of input 0, which may be below 0.
    constexpr ResampledAxis(ResamplingKind of, std::int64_t inputs, std::int64_t outputs, std::int64_t first_output = 0)
        : kind(of),
          input(static_cast<std::int32_t>(inputs)),
          output(static_cast<std::int32_t>(outputs)),
          first(static_cast<std::int32_t>(first_output)),
          factor(of == ResamplingKind::linear && inputs > 0 ? static_cast<std::int32_t>(outputs / inputs) : 1) {}

    ResamplingKind kind;
    std::int32_t input, output, first;
    /// For the kind `linear`: the outputs per input.
    std::int32_t factor;

    /// Neighbouring places [begin, end).
    struct Range {
        std::int32_t begin, end;
    };

    /// The inputs that output i reads; of the kind `shift` there may be none.
    [[nodiscard]] CUPOLA_HOST_DEVICE Range inputs(std::int32_t i) const {
        if (kind == ResamplingKind::mean) return window(i, input, output);
        if (kind == ResamplingKind::shift) return one_of(i - first, input);
        const std::int32_t twice = twice_from_first(i), low = divided(twice, 2 * factor);
        return {low, twice == 2 * factor * low ? low + 1 : low + 2};
    }
    /// The outputs that read input k.
    [[nodiscard]] CUPOLA_HOST_DEVICE Range outputs(std::int32_t k) const {
        if (kind == ResamplingKind::mean) return window(k, output, input);
        if (kind == ResamplingKind::shift) return one_of(k + first, output);
        // Those at a distance of less than 1: 2 factor (k - 1) < 2 i + 1 - factor < 2 factor (k + 1).
        const std::int32_t begin = factor * k - factor / 2, end = factor * (k + 1) + factor / 2;
        return {k == 0 ? 0 : begin, end < output ? end : output};
    }
    /// The factor of input k, one of inputs(i), in output i.
    [[nodiscard]] CUPOLA_HOST_DEVICE float weight(std::int32_t i, std::int32_t k) const {
        if (kind == ResamplingKind::shift) return 1;
        if (kind == ResamplingKind::mean) {
            const Range range = inputs(i);
            return 1.0F / static_cast<float>(range.end - range.begin);
        }
        const std::int32_t from_k = twice_from_first(i) - 2 * factor * k, distance = from_k < 0 ? -from_k : from_k;
        return static_cast<float>(2 * factor - distance) / static_cast<float>(2 * factor);
    }

private:
    /// Of numbers that are not negative.
    [[nodiscard]] static CUPOLA_HOST_DEVICE std::int32_t divided(std::int32_t a, std::int32_t b) {
        return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b));
    }
    /// [floor(i from / to), ceil((i + 1) from / to)).
    [[nodiscard]] static CUPOLA_HOST_DEVICE Range window(std::int32_t i, std::int32_t from, std::int32_t to) {
        return {divided(i * from, to), divided((i + 1) * from - 1, to) + 1};
    }
    /// The place, if it is one of `count`.
    [[nodiscard]] static CUPOLA_HOST_DEVICE Range one_of(std::int32_t place, std::int32_t count) {
        return place >= 0 && place < count ? Range{place, place + 1} : Range{0, 0};
    }
    /// Twice the distance of output i from the centre of input 0, in outputs: at least 0, at most the last input's.
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int32_t twice_from_first(std::int32_t i) const {
        const std::int32_t twice = 2 * i + 1 - factor, last = 2 * factor * (input - 1);
        return twice < 0 ? 0 : twice < last ? twice : last;
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
        const std::int64_t count = lanes.count(s.channels);
        const Divisor::Parts columns = by_columns.divide(n), rows = by_rows.divide(columns.quotient);
        const auto row = static_cast<std::int32_t>(rows.remainder),
                   column = static_cast<std::int32_t>(columns.remainder);
        const ResampledAxis::Range read_rows = backward ? s.height.outputs(row) : s.height.inputs(row),
                                   read_columns = backward ? s.width.outputs(column) : s.width.inputs(column);
        const std::int64_t height = backward ? s.height.output : s.height.input,
                           width = backward ? s.width.output : s.width.input;
        // The factors of a mean are equal, and take divisions.
        const bool equal_rows = !backward && s.height.kind == ResamplingKind::mean,
                   equal_columns = !backward && s.width.kind == ResamplingKind::mean;
        const float first_row = equal_rows ? s.height.weight(row, 0) : 0.0F,
                    first_column = equal_columns ? s.width.weight(column, 0) : 0.0F;
        for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step) {
            float sum = 0;
            for (std::int32_t a = read_rows.begin; a < read_rows.end; ++a) {
                float of_row = 0;
                for (std::int32_t b = read_columns.begin; b < read_columns.end; ++b) {
                    const float weight = equal_columns ? first_column
                                         : backward    ? s.width.weight(b, column)
                                                       : s.width.weight(column, b);
                    of_row +=
                        weight * static_cast<float>(from[((rows.quotient * height + a) * width + b) * s.channels + c]);
                }
                sum += of_row * (equal_rows ? first_row : backward ? s.height.weight(a, row) : s.height.weight(row, a));
            }
            to[n * s.channels + c] = T(sum);
        }
    }
};

/// The inputs of each output of an axis with their factors, or in backward the outputs of each input.
class ResamplingTaps {
public:
    struct Place {
        std::int64_t begin, end;
        std::size_t weights;
    };

    ResamplingTaps() = default;
    [[gnu::cold]] ResamplingTaps(const ResampledAxis& axis, bool backward) {
        const std::int32_t count = backward ? axis.input : axis.output;
        places_.reserve(static_cast<std::size_t>(count));
        for (std::int32_t i = 0; i < count; ++i) {
            const ResampledAxis::Range range = backward ? axis.outputs(i) : axis.inputs(i);
            places_.push_back({range.begin, range.end, weights_.size()});
            for (std::int32_t k = range.begin; k < range.end; ++k)
                weights_.push_back(backward ? axis.weight(k, i) : axis.weight(i, k));
        }
    }
    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(places_.size()); }
    [[nodiscard]] const Place& operator[](std::int64_t i) const { return places_[static_cast<std::size_t>(i)]; }
    [[nodiscard]] const float* weights(const Place& place) const { return weights_.data() + place.weights; }

private:
    std::vector<Place> places_;
    std::vector<float> weights_;
};

/// The formula of a row of pixels on a device whose rows have one lane: of the output, or of the input's gradient. Rows
/// are numbered through the batch.
template <class T>
struct ResampleRow {
    const ResamplingTaps *rows, *columns;
    std::int64_t height, width, channels;  // of what is read
    const T* from;
    T* to;

    template <class Lanes>
    void operator()(const Lanes&, std::int64_t n) const {
        const ResamplingTaps::Place& of_rows = (*rows)[n % rows->size()];
        const T* const image = from + n / rows->size() * height * width * channels;
        T* pixel = to + n * columns->size() * channels;
        for (std::int64_t column = 0; column < columns->size(); ++column, pixel += channels) {
            const ResamplingTaps::Place& of_columns = (*columns)[column];
            std::int64_t c = 0;
            for (; c + 16 <= channels; c += 16) add<16>(image + c, of_rows, of_columns, pixel + c);
            const std::int64_t rest = channels - c;
            if ((rest & 8) != 0) add<8>(image + c, of_rows, of_columns, pixel + c);
            if ((rest & 4) != 0) add<4>(image + c + (rest & 8), of_rows, of_columns, pixel + c + (rest & 8));
            if ((rest & 2) != 0) add<2>(image + c + (rest & 12), of_rows, of_columns, pixel + c + (rest & 12));
            if ((rest & 1) != 0) add<1>(image + c + (rest & 14), of_rows, of_columns, pixel + c + (rest & 14));
        }
    }

private:
    /// `count` channels of a pixel.
    template <std::size_t count>
    [[gnu::always_inline]] void add(const T* image, const ResamplingTaps::Place& of_rows,
                                    const ResamplingTaps::Place& of_columns, T* pixel) const {
        const float *const row_weights = rows->weights(of_rows), *const column_weights = columns->weights(of_columns);
        float sums[count] = {};
        for (std::int64_t a = of_rows.begin; a < of_rows.end; ++a) {
            float of_row[count] = {};
            for (std::int64_t b = of_columns.begin; b < of_columns.end; ++b) {
                const float weight = column_weights[b - of_columns.begin];
                const T* const read = image + (a * width + b) * channels;
                for (std::size_t k = 0; k < count; ++k) of_row[k] += weight * static_cast<float>(read[k]);
            }
            const float weight = row_weights[a - of_rows.begin];
            for (std::size_t k = 0; k < count; ++k) sums[k] += weight * of_row[k];
        }
        for (std::size_t k = 0; k < count; ++k) pixel[k] = T(sums[k]);
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
        : shape_(shape), batch_(build.batch) {
        if constexpr (Device::host_memory) {
            forward_rows_ = {shape.height, false};
            forward_columns_ = {shape.width, false};
            if (!build.training || !build.input_gradient) return;
            backward_rows_ = {shape.height, true};
            backward_columns_ = {shape.width, true};
        }
    }

    void forward(const ForwardArgs<Device, T>& args) const {
        const std::int64_t height = shape_.height.output, width = shape_.width.output;
        if constexpr (Device::host_memory) {
            for_each_row(args.context, batch_ * height, width * shape_.channels,
                         impl::ResampleRow<T>{&forward_rows_, &forward_columns_, shape_.height.input,
                                              shape_.width.input, shape_.channels, args.input, args.output});
        } else {
            for_each_row(args.context, batch_ * height * width, shape_.channels,
                         impl::ResamplePixel<T>(shape_, false, args.input, args.output));
        }
    }
    void backward(const BackwardArgs<Device, T>& args) const {
        if (args.input_gradient == nullptr) return;
        const std::int64_t height = shape_.height.input, width = shape_.width.input;
        if constexpr (Device::host_memory) {
            for_each_row(
                args.context, batch_ * height, width * shape_.channels,
                impl::ResampleRow<T>{&backward_rows_, &backward_columns_, shape_.height.output, shape_.width.output,
                                     shape_.channels, args.output_gradient, args.input_gradient});
        } else {
            for_each_row(args.context, batch_ * height * width, shape_.channels,
                         impl::ResamplePixel<T>(shape_, true, args.output_gradient, args.input_gradient));
        }
    }

private:
    ResamplingShape shape_;
    std::int64_t batch_;
    /// On a device whose rows have one lane.
    impl::ResamplingTaps forward_rows_, forward_columns_, backward_rows_, backward_columns_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
