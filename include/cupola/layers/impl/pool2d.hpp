// SPDX-License-Identifier: Apache-2.0
//
// What MaxPool2d and AvgPool2d share: all but the kind.
#pragma once

#include <cstdint>

#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <PoolingKind kind, std::int64_t window, std::int64_t stride, Padding padding>
struct Pool2d {
    static constexpr PoolingShape shape(const Shape& input) {
        return {window_axis(input.height(), window, stride, padding),
                window_axis(input.width(), window, stride, padding), input.channels(), kind};
    }

    static constexpr LayerTraits traits{.backward_reads_input = false,
                                        .backward_reads_output = false,
                                        .masks_for_relu = kind == PoolingKind::max,
                                        .pooling = &shape,
                                        .pools = true};

    static constexpr Inferred output(const Shape& input) {
        if (window < 1 || stride < 1) return Mistake{"has a size of zero"};
        if (input.rank != 3) return Mistake{"takes height x width x channels"};
        if (window > input.height() || window > input.width()) return Mistake{"has a window larger than its input"};
        const PoolingShape s = shape(input);
        return Shape{s.height.output, s.width.output, input.channels()};
    }

    template <class Site>
    static ops::Pooling<typename Site::DeviceType, typename Site::Element> operation(const Site& site) {
        return make_operation<ops::Pooling<typename Site::DeviceType, typename Site::Element>>(site, shape(site.input));
    }
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
