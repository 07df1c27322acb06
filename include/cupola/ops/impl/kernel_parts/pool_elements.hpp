// SPDX-License-Identifier: Apache-2.0
//
// The computations of pooling for n channels of one pixel. The window offset of a maximum (the first of equal values in
// row order) is kept for backward, which gathers: each input's gradient is written once, with its sum in the order of
// the windows. A NaN is larger than everything.
#pragma once

#include <cstdint>

#include <cupola/ops/impl/kernel_parts/divisor.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The extents of a pooling in the form for kernels, for threads of `n` channels each.
struct PoolExtents {
    PoolExtents() = default;
    PoolExtents(const PoolingShape& shape, int channels_per_thread)
        : channels(shape.channels),
          groups(shape.channels / channels_per_thread),
          n(channels_per_thread),
          height(shape.height),
          width(shape.width) {}

    struct Axis {
        Axis() = default;
        explicit Axis(const WindowAxis& axis)
            : input(static_cast<int>(axis.input)),
              output(static_cast<int>(axis.output)),
              window(static_cast<int>(axis.window)),
              stride(static_cast<int>(axis.stride)),
              pad_begin(static_cast<int>(axis.pad_begin)),
              by_input(axis.input),
              by_output(axis.output),
              by_stride(axis.stride) {}

        [[nodiscard]] CUPOLA_HOST_DEVICE friend int strides_in(const Axis& axis, int distance) {
            return axis.by_stride.quotient(distance);
        }

        int input = 0, output = 0, window = 0, stride = 1, pad_begin = 0;
        Divisor by_input, by_output, by_stride;
    };

    /// The position of a thread.
    struct Place {
        std::int64_t image, channel;
        int row, column;
    };

    [[nodiscard]] CUPOLA_HOST_DEVICE Place output(std::int64_t i) const {
        return place(i, height.by_output, width.by_output);
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE Place input(std::int64_t i) const {
        return place(i, height.by_input, width.by_input);
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t output_pixel(std::int64_t image, int row, int column) const {
        return (image * height.output + row) * width.output + column;
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t input_pixel(std::int64_t image, int row, int column) const {
        return (image * height.input + row) * width.input + column;
    }
    /// The number of threads.
    [[nodiscard]] std::int64_t outputs(std::int64_t batch) const {
        return batch * height.output * width.output * (channels / n);
    }
    [[nodiscard]] std::int64_t inputs(std::int64_t batch) const {
        return batch * height.input * width.input * (channels / n);
    }

    std::int64_t channels = 0;
    Divisor groups;
    int n = 1;
    Axis height, width;

private:
    [[nodiscard]] CUPOLA_HOST_DEVICE Place place(std::int64_t i, const Divisor& rows, const Divisor& columns) const {
        const Divisor::Parts pixel = groups.divide(i), row = columns.divide(pixel.quotient),
                             image = rows.divide(row.quotient);
        return {image.quotient, pixel.remainder * n, static_cast<int>(image.remainder),
                static_cast<int>(row.remainder)};
    }
};

/// The offset stored for a maximum that is not positive where the gradient then ends at a preceding ReLU.
template <class Offset>
inline constexpr Offset no_offset = static_cast<Offset>(255);
template <>
inline constexpr std::int32_t no_offset<std::int32_t> = -1;

/// The maxima of n channels over the window of `at`, and their offsets. source(pixel, values) returns the channels of a
/// pixel of the input. `window` is the window's extent in both directions if known at compile time, else 0.
template <int n, int window, class Source>
CUPOLA_HOST_DEVICE inline void window_maxima(const PoolExtents& e, const PoolExtents::Place& at, const Source& source,
                                             float (&best)[n], int (&offset)[n]) {
    const int top = window_start(e.height, at.row), left = window_start(e.width, at.column);
    const int rows = window > 0 ? window : e.height.window, columns = window > 0 ? window : e.width.window;
    const int first = (top < 0 ? -top : 0) * columns + (left < 0 ? -left : 0);
    CUPOLA_UNROLL
    for (int k = 0; k < n; ++k) {
        best[k] = -__builtin_huge_valf();
        offset[k] = first;
    }
    const auto row_of_offsets = [&](int a) {
        if (top + a < 0 || top + a >= e.height.input) return;
        const auto one = [&](int b) {
            if (left + b < 0 || left + b >= e.width.input) return;
            float value[n];
            source(e.input_pixel(at.image, top + a, left + b), value);
            CUPOLA_UNROLL
            for (int k = 0; k < n; ++k) {
                // is_larger() of ops/pooling.hpp
                const bool larger = value[k] > best[k] || (value[k] != value[k] && best[k] == best[k]);
                best[k] = larger ? value[k] : best[k];
                offset[k] = larger ? a * columns + b : offset[k];
            }
        };
        if constexpr (window > 0) {
            CUPOLA_UNROLL
            for (int b = 0; b < window; ++b) one(b);
        } else {
            for (int b = 0; b < columns; ++b) one(b);
        }
    };
    if constexpr (window > 0) {
        CUPOLA_UNROLL
        for (int a = 0; a < window; ++a) row_of_offsets(a);
    } else {
        for (int a = 0; a < rows; ++a) row_of_offsets(a);
    }
}

/// n channels from `channel` on of an input, as window_maxima reads them.
template <int n, class T>
struct ChannelsOf {
    const T* x;
    std::int64_t channels, channel;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t pixel, float (&value)[n]) const {
        load_floats<n>(x + pixel * channels + channel, value);
    }
};

/// Writes the offsets of n maxima.
template <int n, class Offset>
CUPOLA_HOST_DEVICE inline void store_offsets(Offset* to, const float (&best)[n], const int (&offset)[n], bool mask) {
    Pack<Offset, n> pack;
    CUPOLA_UNROLL
    for (int k = 0; k < n; ++k)
        pack.element[k] = mask && !(best[k] > 0.0F) ? no_offset<Offset> : static_cast<Offset>(offset[k]);
    pack_at<n>(to) = pack;
}

/// The gradients of n channels of input `at` from the gradients and offsets of the maxima whose windows contain it.
template <int n, class Offset, class T>
CUPOLA_HOST_DEVICE inline void gather_maxima(const PoolExtents& e, const PoolExtents::Place& at, std::int64_t channel,
                                             const T* dy, const Offset* offsets, float* sum) {
    CUPOLA_UNROLL
    for (int k = 0; k < n; ++k) sum[k] = 0.0F;
    const int last_row = last_output(e.height, at.row), last_column = last_output(e.width, at.column),
              first_column = first_output(e.width, at.column);
    for (int i = first_output(e.height, at.row); i <= last_row; ++i) {
        for (int j = first_column; j <= last_column; ++j) {
            const int here =
                (at.row - window_start(e.height, i)) * e.width.window + at.column - window_start(e.width, j);
            const std::int64_t from = e.output_pixel(at.image, i, j) * e.channels + channel;
            const Pack<Offset, n> offset = pack_at<n>(offsets + from);
            float value[n];
            load_floats<n>(dy + from, value);
            CUPOLA_UNROLL
            for (int k = 0; k < n; ++k) sum[k] += static_cast<int>(offset.element[k]) == here ? value[k] : 0.0F;
        }
    }
}

/// A thread's part of the forward pass of a maximum: null `offsets` are not written.
template <class T, int n, int window, class Offset>
struct MaxPoolForward {
    PoolExtents extents;
    const T* x;
    T* y;
    Offset* offsets;
    bool mask;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const PoolExtents::Place at = extents.output(i);
        float best[n];
        int offset[n];
        window_maxima<n, window>(extents, at, ChannelsOf<n, T>{x, extents.channels, at.channel}, best, offset);
        store_floats<n>(y + i * n, best);
        if (offsets != nullptr) store_offsets<n>(offsets + i * n, best, offset, mask);
    }
};

template <class T, int n, class Offset>
struct MaxPoolBackward {
    PoolExtents extents;
    const T* dy;
    const Offset* offsets;
    T* dx;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        float sum[n];
        values(i, sum);
        store(i, sum);
    }
    CUPOLA_HOST_DEVICE void values(std::int64_t i, float* sum) const {
        const PoolExtents::Place at = extents.input(i);
        gather_maxima<n>(extents, at, at.channel, dy, offsets, sum);
    }
    CUPOLA_HOST_DEVICE void store(std::int64_t i, const float* sum) const { store_floats<n>(dx + i * n, sum); }
    [[nodiscard]] CUPOLA_HOST_DEVICE static float stored(float value) { return as_stored<T>(value); }
};

/// The number by which a mean divides the sum of the elements inside the image.
struct MeanDivisor {
    explicit MeanDivisor(const PoolingShape& shape) : counts_padding(shape.counts_padding) {}

    [[nodiscard]] CUPOLA_HOST_DEVICE float operator()(const PoolExtents& e, int row, int column) const {
        if (counts_padding) return counted_window(e.height, row) * counted_window(e.width, column);
        return static_cast<float>(window_inside(e.height, row) * window_inside(e.width, column));
    }

    bool counts_padding;
};

/// The mean over a window.
template <class T, int n>
struct MeanPoolForward {
    PoolExtents extents;
    MeanDivisor divisor;
    const T* x;
    T* y;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const PoolExtents& e = extents;
        const PoolExtents::Place at = e.output(i);
        float sum[n] = {};
        const int top = window_start(e.height, at.row), left = window_start(e.width, at.column);
        const int bottom = top + e.height.window < e.height.input ? top + e.height.window : e.height.input;
        const int right = left + e.width.window < e.width.input ? left + e.width.window : e.width.input;
        for (int row = top < 0 ? 0 : top; row < bottom; ++row) {
            for (int column = left < 0 ? 0 : left; column < right; ++column) {
                float value[n];
                load_floats<n>(x + e.input_pixel(at.image, row, column) * e.channels + at.channel, value);
                CUPOLA_UNROLL
                for (int k = 0; k < n; ++k) sum[k] += value[k];
            }
        }
        const float elements = divisor(e, at.row, at.column);
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) sum[k] /= elements;
        store_floats<n>(y + i * n, sum);
    }
};

/// With a `y`, only gradients where y is positive count.
template <class T, int n>
struct MeanPoolBackward {
    PoolExtents extents;
    MeanDivisor divisor;
    const T* y;
    const T* dy;
    T* dx;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const PoolExtents& e = extents;
        const PoolExtents::Place at = e.input(i);
        float sum[n] = {};
        const int last_row = last_output(e.height, at.row), last_column = last_output(e.width, at.column),
                  first_column = first_output(e.width, at.column);
        for (int row = first_output(e.height, at.row); row <= last_row; ++row) {
            for (int column = first_column; column <= last_column; ++column) {
                const std::int64_t from = e.output_pixel(at.image, row, column) * e.channels + at.channel;
                const float elements = divisor(e, row, column);
                float value[n], output[n] = {};
                load_floats<n>(dy + from, value);
                if (y != nullptr) load_floats<n>(y + from, output);
                CUPOLA_UNROLL
                for (int k = 0; k < n; ++k) sum[k] += y == nullptr || output[k] > 0.0F ? value[k] / elements : 0.0F;
            }
        }
        store_floats<n>(dx + i * n, sum);
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
