// SPDX-License-Identifier: Apache-2.0
//
// The common base of MaxPool2d and AvgPool2d, which differ in the kind of pooling only.
#pragma once

#include <cstdint>
#include <limits>

#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <PoolingKind pooling, std::int64_t window, std::int64_t stride, Padding padding>
struct Pool2d {
    static constexpr LayerKind kind = LayerKind::pooling;
    static constexpr LayerTraits traits{.backward_reads_input = false,
                                        .backward_reads_output = false,
                                        .can_apply_relu_mask = pooling == PoolingKind::max};
    static constexpr LayerDescription description =
        LayerDescription(pooling == PoolingKind::max ? "MaxPool2d " : "AvgPool2d ", window, " x ", window)
            .add_if(stride != window, ", stride ", stride)
            .add_if(padding == Padding::valid, ", valid");

    static constexpr PoolingShape shape(const Shape& input) {
        return {window_axis(input.height(), window, stride, padding),
                window_axis(input.width(), window, stride, padding), input.channels(), pooling};
    }

    static constexpr ShapeResult output(const Shape& input) {
        if (window < 1 || stride < 1) return ShapeError{"has a size of zero"};
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        if (window > input.height() || window > input.width()) return ShapeError{"has a window larger than its input"};
        if (!are_window_extents({input.height(), input.width(), stride}))
            return ShapeError{"has an input or a stride of more than 2^29 rows or columns"};
        if (pooling == PoolingKind::max && window * window > std::numeric_limits<std::int32_t>::max())
            return ShapeError{"has a window of more elements than int32 has numbers"};
        const PoolingShape s = shape(input);
        return Shape{s.height.output, s.width.output, input.channels()};
    }

    template <class BuildContext>
    static FactoryOf<ops::Pooling, BuildContext, PoolingShape> operation(const BuildContext& build) {
        return {shape(build.input)};
    }
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
