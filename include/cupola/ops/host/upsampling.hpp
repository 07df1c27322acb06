// SPDX-License-Identifier: Apache-2.0
//
// Upsampling by repetition on `Host`, one row of the input at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/host/impl/element.hpp>
#include <cupola/ops/upsampling.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <impl::HostElement T>
class Upsampling<Host, T> {
public:
    Upsampling(const BuildContext<Host, T>& build, const UpsamplingShape& shape) : shape_(shape), batch_(build.batch) {}

    void forward(const ForwardArgs<Host, T>& args) const {
        const UpsamplingShape& s = shape_;
        const std::int64_t row_size = s.width * s.factor * s.channels;
        parallel_for(args.context, batch_ * s.height, [&](std::int64_t row) {
            const T* const from = args.input + row * s.width * s.channels;
            T* const first = args.output + row * s.factor * row_size;
            T* to = first;
            for (std::int64_t x = 0; x < s.width; ++x) {
                for (std::int64_t k = 0; k < s.factor; ++k) to = std::copy_n(from + x * s.channels, s.channels, to);
            }
            for (std::int64_t k = 1; k < s.factor; ++k) to = std::copy_n(first, row_size, to);
        });
    }

    void backward(const BackwardArgs<Host, T>& args) const {
        if (args.input_gradient == nullptr) return;
        const UpsamplingShape& s = shape_;
        const std::int64_t row_size = s.width * s.factor * s.channels;
        parallel_for(args.context, batch_ * s.height, [&](std::int64_t row) {
            const T* const rows = args.output_gradient + row * s.factor * row_size;
            T* const to = args.input_gradient + row * s.width * s.channels;
            constexpr std::int64_t width = 64;
            for (std::int64_t x = 0; x < s.width; ++x) {
                for (std::int64_t begin = 0; begin < s.channels; begin += width) {
                    const std::int64_t count = std::min(s.channels - begin, width);
                    alignas(64) float sum[width] = {};
                    for (std::int64_t k = 0; k < s.factor * s.factor; ++k) {
                        const T* const from =
                            rows + k / s.factor * row_size + (x * s.factor + k % s.factor) * s.channels + begin;
                        add_row(from, count, sum);
                    }
                    T* const sums = to + x * s.channels + begin;
#pragma omp simd
                    for (std::int64_t c = 0; c < count; ++c) impl::put(sums[c], sum[c]);
                }
            }
        });
    }

private:
    /// Not inlined: g++ -O3 keeps a scalar copy of an inlined loop.
    [[gnu::noinline]] static void add_row(const T* from, std::int64_t count, float* sum) {
#pragma omp simd
        for (std::int64_t c = 0; c < count; ++c) sum[c] += static_cast<float>(from[c]);
    }

    UpsamplingShape shape_;
    std::int64_t batch_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
