// SPDX-License-Identifier: Apache-2.0
//
// Filters transformed to the points of Winograd's algorithm, G g G', as the right operand of the products. A weight is
// first rounded to the element type of the activations, T, as a product of two such elements has it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cupola/ops/host/impl/winograd_map.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Transforms the filter in `taps` and writes vector `to[point]`, with a stride of `stride` floats between points.
template <class W>
[[gnu::always_inline]] inline void transform_filter(const Lanes (&taps)[W::kernel][W::kernel], float* to,
                                                    std::int64_t stride) {
    Lanes half[W::kernel][W::points];  // [column][point]
    for (std::size_t b = 0; b < W::kernel; ++b) {
        Lanes line[W::kernel];
        for_each_index<W::kernel>([&](auto a) __attribute__((always_inline)) { line[a] = taps[a][b]; });
        to_points<typename W::Filter>(line, half[b]);
    }
    for (std::size_t i = 0; i < W::points; ++i) {
        Lanes line[W::kernel], values[W::points];
        for_each_index<W::kernel>([&](auto b) __attribute__((always_inline)) { line[b] = half[b][i]; });
        to_points<typename W::Filter>(line, values);
        for_each_index<W::points>([&](auto j) __attribute__((always_inline)) {
            store_lanes(to, values[j]);
            to += stride;
        });
    }
}

/// packed[block of product_columns output channels][point][input channel][output channel of the block], for forward.
/// `weight` is [out, kernel, kernel, in].
template <class W, class T = float>
void pack_winograd_filters(const HostContext& context, const float* weight, std::int64_t in, std::int64_t out,
                           float* packed) {
    constexpr auto taps_of = static_cast<std::int64_t>(W::kernel * W::kernel);
    parallel_for(context, out / lane_count, [=](std::int64_t vector) {
        const std::int64_t o = vector * lane_count;
        const std::int64_t block = o / product_columns * product_columns,
                           width = std::min(product_columns, out - block);
        constexpr auto points = static_cast<std::int64_t>(W::points * W::points);
        float* const to = packed + filters_place(points, in, block) + (o - block);
        constexpr std::int64_t run = 16;  // input channels at a time: the cache lines of their weights are read once
        for (std::int64_t c = 0; c < in; c += run) {
            alignas(64) float turned[run][W::kernel][W::kernel][lane_count];
            for (std::int64_t lane = 0; lane < lane_count; ++lane) {
                const float* from = weight + (o + lane) * taps_of * in + c;
                for (std::size_t a = 0; a < W::kernel; ++a) {
                    for (std::size_t b = 0; b < W::kernel; ++b, from += in) {
                        for (std::int64_t i = 0; i < run; ++i) turned[i][a][b][lane] = from[i];
                    }
                }
            }
            for (std::int64_t i = 0; i < run; ++i) {
                Lanes taps[W::kernel][W::kernel];
                for (std::size_t a = 0; a < W::kernel; ++a) {
                    for (std::size_t b = 0; b < W::kernel; ++b)
                        taps[a][b] = rounded_lanes<T>(load_lanes(turned[i][a][b]));
                }
                transform_filter<W>(taps, to + (c + i) * width, point_stride(in, width));
            }
        }
    });
}

/// packed[block of product_columns input channels][point][output channel][input channel of the block], each filter
/// rotated by 180 degrees: for the gradient of the input.
template <class W, class T = float>
void pack_winograd_turned_filters(const HostContext& context, const float* weight, std::int64_t in, std::int64_t out,
                                  float* packed) {
    constexpr auto taps_of = static_cast<std::int64_t>(W::kernel * W::kernel);
    constexpr auto points = static_cast<std::int64_t>(W::points * W::points);
    parallel_for(context, out, [=](std::int64_t o) {
        for (std::int64_t c = 0; c < in; c += lane_count) {
            const std::int64_t block = c / product_columns * product_columns,
                               width = std::min(product_columns, in - block);
            Lanes taps[W::kernel][W::kernel];
            const float* from = weight + (o + 1) * taps_of * in + c;
            for (std::size_t a = 0; a < W::kernel; ++a) {
                for (std::size_t b = 0; b < W::kernel; ++b) taps[a][b] = rounded_lanes<T>(load_lanes(from -= in));
            }
            transform_filter<W>(taps, packed + filters_place(points, out, block) + o * width + (c - block),
                                point_stride(out, width));
        }
    });
}

}}}  // namespace cupola::CUPOLA_ABI::impl
