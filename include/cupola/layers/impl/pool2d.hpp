// SPDX-License-Identifier: Apache-2.0
//
// The common base of MaxPool2d and AvgPool2d, which differ in the kind of pooling only. `padding` is same, valid or
// pad(n).
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <PoolingKind pooling, std::int64_t window, std::int64_t stride, auto padding>
struct Pool2d {
    using PaddingType = std::remove_cvref_t<decltype(padding)>;
    static constexpr bool has_pad = one_of<PaddingType, PadOption>;
    static constexpr bool padding_known = has_pad || one_of<PaddingType, Padding>;
    static constexpr std::int64_t pad_each = option_or(PadOption{}, padding).value;
    static constexpr Padding named_padding = option_or(Padding::same, padding);

    static constexpr LayerKind kind = LayerKind::pooling;
    static constexpr LayerTraits traits{.backward_reads_input = false,
                                        .backward_reads_output = false,
                                        .can_apply_relu_mask = pooling == PoolingKind::max};
    static constexpr LayerDescription description =
        LayerDescription(pooling == PoolingKind::max ? "MaxPool2d " : "AvgPool2d ", window, " x ", window)
            .add_if(stride != window, ", stride ", stride)
            .add_if(!has_pad && named_padding == Padding::valid, ", valid")
            .add_if(has_pad, ", pad ", pad_each);

    static constexpr PoolingShape shape(const Shape& input) {
        const auto axis = [](std::int64_t size) {
            return has_pad ? window_axis(size, window, stride, pad_each)
                           : window_axis(size, window, stride, named_padding);
        };
        return {axis(input.height()), axis(input.width()), input.channels(), pooling,
                has_pad && pooling == PoolingKind::average};
    }

    static constexpr ShapeResult output(const Shape& input) {
        if (!padding_known) return ShapeError{"accepts only one of same, valid and pad(n) after its stride"};
        if (window < 1 || stride < 1) return ShapeError{"has a size of zero"};
        if (has_pad && pad_each < 0) return ShapeError{"has a negative padding"};
        if (pad_each > window / 2) return ShapeError{"has a padding of more than half of its window"};
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        const auto holds_window = [](std::int64_t size, std::int64_t pads) { return size >= window - 2 * pads; };
        const std::int64_t pads = has_pad ? pad_each : 0;
        if (!holds_window(input.height(), pads) || !holds_window(input.width(), pads))
            return ShapeError{"has a window larger than its input"};
        if (!are_window_extents({input.height(), input.width(), window, stride}))
            return ShapeError{"has an input, a window or a stride of more than 2^29 rows or columns"};
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

}}}  // namespace cupola::CUPOLA_ABI::impl
