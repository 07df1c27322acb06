// SPDX-License-Identifier: Apache-2.0
//
// The option A shortcut on `Host`, one row of outputs at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/host/impl/element.hpp>
#include <cupola/ops/option_a_shortcut.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <impl::HostElement T>
class OptionAShortcut<Host, T> {
public:
    OptionAShortcut(const BuildContext<Host, T>& build, const OptionAShortcutShape& shape)
        : shape_(shape), batch_(build.batch) {}

    void forward(const ForwardArgs<Host, T>& args) const {
        const OptionAShortcutShape& s = shape_;
        for_each_window(args.context, [&](std::int64_t output, const Window& window) {
            T* const to = args.output + output * s.out_channels;
            std::fill(to, to + s.out_channels, T{});
            constexpr std::int64_t width = 64;
            for (std::int64_t begin = 0; begin < s.in_channels; begin += width) {
                const std::int64_t count = std::min(s.in_channels - begin, width);
                float sum[width] = {};
                window.for_each(s, [&](std::int64_t input) {
                    const T* const from = args.input + input * s.in_channels + begin;
#pragma omp simd
                    for (std::int64_t c = 0; c < count; ++c) sum[c] += static_cast<float>(from[c]);
                });
#pragma omp simd
                for (std::int64_t c = 0; c < count; ++c) impl::put(to[s.before + begin + c], sum[c] * window.fraction);
            }
        });
    }

    /// Windows do not overlap, so each input has only one gradient.
    void backward(const BackwardArgs<Host, T>& args) const {
        if (args.input_gradient == nullptr) return;
        const OptionAShortcutShape& s = shape_;
        for_each_window(args.context, [&](std::int64_t output, const Window& window) {
            const T* const from = args.output_gradient + output * s.out_channels + s.before;
            window.for_each(s, [&](std::int64_t input) {
                T* const to = args.input_gradient + input * s.in_channels;
#pragma omp simd
                for (std::int64_t c = 0; c < s.in_channels; ++c)
                    impl::put(to[c], static_cast<float>(from[c]) * window.fraction);
            });
        });
    }

private:
    /// The part of a window that is inside the image.
    struct Window {
        std::int64_t sample, top, bottom, left, right;
        float fraction;

        template <class Function>
        void for_each(const OptionAShortcutShape& s, Function&& f) const {
            for (std::int64_t y = top; y < bottom; ++y) {
                for (std::int64_t x = left; x < right; ++x) f((sample * s.height.input + y) * s.width.input + x);
            }
        }
    };

    template <class Function>
    void for_each_window(const HostContext& context, Function&& f) const {
        const WindowAxis &h = shape_.height, &w = shape_.width;
        parallel_for(context, batch_ * h.output, [&](std::int64_t row) {
            Window window{};
            window.sample = row / h.output;
            window.top = window_begin(h, row % h.output);
            window.bottom = window_end(h, row % h.output);
            for (std::int64_t x = 0; x < w.output; ++x) {
                window.left = window_begin(w, x);
                window.right = window_end(w, x);
                window.fraction = impl::window_fraction(h, w, row % h.output, x);
                f(row * w.output + x, window);
            }
        });
    }

    OptionAShortcutShape shape_;
    std::int64_t batch_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
