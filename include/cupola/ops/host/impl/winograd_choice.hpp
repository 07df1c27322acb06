// SPDX-License-Identifier: Apache-2.0
//
// Whether Winograd's algorithm is faster than a direct convolution in one forward pass whose filters are transformed
// before, as in a prediction. Both times are estimated in multiply-adds of the direct one, per input channel and output
// channel, for P outputs of a channel in T tiles:
//
//   direct     taps P + read taps                            the products, and the filters from memory
//   Winograd   1.4 points T + 10 points T (1 / in + 1 / out) + read points
//
// A batch divides the filters among many tiles. For few, as in the last stage of a network for one image, the filters
// are the larger part, of which Winograd's algorithm has 4 times as many (3 x 3 taps, 36 points). `read` is the
// multiply-adds that a thread makes while it reads one float of the filters: one vector; half a vector for filters
// that take at most an eighth of a second-level cache of 2 MiB, which find a place there from one prediction to the
// next. The factors were measured on a Sapphire Rapids for 16 to 512 channels, with one thread and two: products of
// small matrices run at 0.7 of the direct convolution's rate, and the transforms of a tile take the time of 10
// multiply-adds per point and channel. The number of threads is not among the quantities: a prediction has the same
// bits for any.
#pragma once

#include <cstdint>

#include <cupola/ops/convolution.hpp>
#include <cupola/ops/host/impl/lanes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct ForwardEstimates {
    double direct = 0, winograd = 0;
};

/// Of tiles of `tile` x `tile` outputs, for vectors of `lanes` floats.
[[nodiscard]] constexpr ForwardEstimates forward_estimates(const ConvolutionShape& shape, std::int64_t batch,
                                                           std::int64_t tile, std::int64_t lanes = lane_count) {
    constexpr double product = 1.4, transform = 10;
    constexpr std::int64_t cached_floats = 65536;
    const auto tiles_of = [tile](const WindowAxis& axis) { return (axis.output + tile - 1) / tile; };
    const std::int64_t taps = shape.height.window * shape.width.window;
    const std::int64_t side = tile + shape.height.window - 1, points = side * side;
    const auto outputs = static_cast<double>(batch * shape.height.output * shape.width.output),
               tiles = static_cast<double>(batch * tiles_of(shape.height) * tiles_of(shape.width));
    const auto read = [&](std::int64_t floats) {
        const bool cached = floats * shape.in_channels * shape.out_channels <= cached_floats;
        return static_cast<double>(floats * lanes) * (cached ? 0.5 : 1.0);
    };
    const double channels = 1 / static_cast<double>(shape.in_channels) + 1 / static_cast<double>(shape.out_channels);
    return {.direct = static_cast<double>(taps) * outputs + read(taps),
            .winograd = static_cast<double>(points) * tiles * (product + transform * channels) + read(points)};
}

/// Whether the estimate is at most 0.9 of the direct convolution's, whose errors are smaller.
[[nodiscard]] constexpr bool winograd_saves_time(const ConvolutionShape& shape, std::int64_t batch, std::int64_t tile,
                                                 std::int64_t lanes = lane_count) {
    const ForwardEstimates estimates = forward_estimates(shape, batch, tile, lanes);
    return 10 * estimates.winograd <= 9 * estimates.direct;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
