// SPDX-License-Identifier: Apache-2.0
//
// Maxima over windows, one row of an image at a time, for the operations that contain such a pooling. The window offset
// of a maximum (the first of equal values in row order) is kept in a byte and called its place. A NaN is larger than
// everything. A row is computed by nonnegative_maxima.hpp up to the first window with another number, and from there on
// by the kernels here. Backward gathers: each row of the input gradient is written once, with its sums in the order of
// the windows.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/ops/host/impl/element.hpp>
#include <cupola/ops/host/impl/nonnegative_maxima.hpp>
#include <cupola/ops/pooling.hpp>
#if CUPOLA_ISA >= CUPOLA_ISA_AVX512
#include <cupola/ops/host/impl/avx512.hpp>
#endif

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class PoolRows {
public:
    /// Requires a shape for which place_is_a_byte() is true.
    explicit PoolRows(const PoolingShape& shape)
        : height_(shape.height), width_(shape.width), channels_(shape.channels) {
        const std::int64_t last_start = width_.input + width_.pad_begin - width_.window;  // in the padded input
        if (last_start >= 0) whole_ = std::min(width_.output, strides_in(width_, last_start) + 1);
    }

    /// The rows [first, last) of the input that lie in the windows of output row i.
    [[nodiscard]] std::int64_t first_input(std::int64_t i) const { return window_begin(height_, i); }
    [[nodiscard]] std::int64_t last_input(std::int64_t i) const { return window_end(height_, i); }
    /// The last row of the output whose windows contain input row `at`, or one below the first if there is none.
    [[nodiscard]] std::int64_t last_output(std::int64_t at) const { return cupola::last_output(height_, at); }
    [[nodiscard]] std::int64_t channels() const { return channels_; }
    [[nodiscard]] std::int64_t inputs() const { return height_.input; }
    [[nodiscard]] std::int64_t outputs() const { return height_.output; }
    [[nodiscard]] std::int64_t input_row() const { return width_.input * channels_; }
    [[nodiscard]] std::int64_t output_row() const { return width_.output * channels_; }
    [[nodiscard]] std::int64_t input_width() const { return width_.input; }
    [[nodiscard]] std::int64_t output_width() const { return width_.output; }
    [[nodiscard]] std::int64_t window_rows() const { return height_.window; }

    /// Computes output row i and its places, where `row(a)` returns the pointer to input row a. Null `places` are not
    /// written. With `mask`, a maximum that is not positive has the place `nowhere`, so that its gradient reaches no
    /// input: the gradient of a preceding ReLU.
    template <class T, class Row>
    void forward(std::int64_t i, Row row, T* y, std::uint8_t* places, bool mask) const {
        forward(i, row, y, places, mask, width_.output, [](std::int64_t, std::int64_t) {});
    }
    /// The same, and calls then(j, count) when `count` pixels from j are complete, which are at most `together`.
    template <class T, class Row, class Then>
    void forward(std::int64_t i, Row row, T* y, std::uint8_t* places, bool mask, std::int64_t together,
                 Then then) const {
        const std::int64_t top = first_input(i), bottom = last_input(i);
        PoolWindow<T> window{
            .count = static_cast<int>(bottom - top), .across = static_cast<int>(width_.window), .channels = channels_};
        for (std::int64_t a = top; a < bottom; ++a) window.rows[a - top] = row(a);
        const auto above = static_cast<int>((top - window_start(height_, i)) * width_.window);
        bool nonnegative = channels_ >= ElementBits<T>::count;  // no other number so far
        std::int64_t done = 0;
        for (std::int64_t j = 0; j < width_.output; j += done) {
            const std::int64_t begin = window_begin(width_, j);
            window.at = begin * channels_;
            window.columns = static_cast<int>(window_end(width_, j) - begin);
            window.first = above + static_cast<int>(begin - window_start(width_, j));
            done = 1;
            if (nonnegative) {
                const std::int64_t pixels = window.columns == width_.window ? std::min(whole_ - j, together) : 1;
                done = nonnegative_pixels(window, pixels, width_.stride, mask, y, places);
                nonnegative = done == pixels;
            } else {
                pixel(window, y, places, mask);
            }
            if (done > 0) then(j, done);
            y += done * channels_;
            if (places != nullptr) places += done * channels_;
        }
    }

    /// Computes row `at` of the gradient of an image's input, from the gradients and places of its whole output.
    template <class T>
    void backward(std::int64_t at, const T* dy, const std::uint8_t* places, T* dx) const {
        const std::int64_t bottom = last_output(at);
        const std::int64_t top = first_output(height_, at);
        ContributingOutputs<T> outputs{.dy = dy, .places = places};
        outputs.down = output_row();
        outputs.across = channels_;
        outputs.offset_down = static_cast<int>(height_.stride * width_.window);
        outputs.offset_across = static_cast<int>(width_.stride);
        outputs.rows = static_cast<int>(std::max(std::int64_t{0}, bottom - top + 1));
        const std::int64_t offset_row = (at - window_start(height_, top)) * width_.window;
        std::int64_t left = 0, right = -1;  // the columns of the output whose windows contain x
        for (std::int64_t x = 0; x < width_.input; ++x) {
            while (window_start(width_, left) + width_.window <= x) ++left;
            while (right + 1 < width_.output && window_start(width_, right + 1) <= x) ++right;
            outputs.at = (top * width_.output + left) * channels_;
            outputs.columns = static_cast<int>(std::max(std::int64_t{0}, right - left + 1));
            outputs.offset = static_cast<int>(offset_row + x - window_start(width_, left));
            gather(outputs, dx);
            dx += channels_;
        }
    }

private:
    static constexpr int nowhere = 255;
    static constexpr std::int64_t block = 64;

    /// The windows that contain one input: `rows` x `columns` of them from element `at`, and the input's place in the
    /// first.
    template <class T>
    struct ContributingOutputs {
        const T* dy;
        const std::uint8_t* places;
        int rows = 0, columns = 0;
        std::int64_t at = 0, down = 0, across = 0;
        int offset = 0, offset_down = 0, offset_across = 0;
    };

    template <class T>
    void pixel(const PoolWindow<T>& window, T* y, std::uint8_t* places, bool mask) const {
        std::int64_t c = 0;
#if CUPOLA_ISA >= CUPOLA_ISA_AVX512
        for (; c + 4 * vector_lanes <= channels_; c += 4 * vector_lanes) maxima<4>(window, c, 0xFFFF, y, places, mask);
        for (; c < channels_; c += vector_lanes) maxima<1>(window, c, first_lanes(channels_ - c), y, places, mask);
#else
        for (; c < channels_; c += block) plain_maxima(window, c, std::min(block, channels_ - c), y, places, mask);
#endif
    }

    template <class T>
    void gather(const ContributingOutputs<T>& outputs, T* dx) const {
        std::int64_t c = 0;
#if CUPOLA_ISA >= CUPOLA_ISA_AVX512
        for (; c + 4 * vector_lanes <= channels_; c += 4 * vector_lanes) gathered<4>(outputs, c, 0xFFFF, dx);
        for (; c < channels_; c += vector_lanes) gathered<1>(outputs, c, first_lanes(channels_ - c), dx);
#else
        for (; c < channels_; c += block) plain_gathered(outputs, c, std::min(block, channels_ - c), dx);
#endif
    }

    /// Channels [c, c + count) of one window, count <= block.
    template <class T>
    static void plain_maxima(const PoolWindow<T>& window, std::int64_t c, std::int64_t count, T* y,
                             std::uint8_t* places, bool mask) {
        float best[block];
        std::int32_t place[block];
        const T* x = window.rows[0] + window.at + c;
#pragma omp simd
        for (std::int64_t k = 0; k < count; ++k) {
            best[k] = static_cast<float>(x[k]);
            place[k] = window.first;
        }
        for (int a = 0; a < window.count; ++a) {
            for (int b = 0; b < window.columns; ++b) {
                const T* offset = window.rows[a] + window.at + b * window.channels + c;
                const std::int32_t here = window.first + a * window.across + b;
#pragma omp simd
                for (std::int64_t k = 0; k < count; ++k) {
                    const auto value = static_cast<float>(offset[k]);
                    const bool larger = is_larger(value, best[k]);
                    best[k] = larger ? value : best[k];
                    place[k] = larger ? here : place[k];
                }
            }
        }
#pragma omp simd
        for (std::int64_t k = 0; k < count; ++k) put(y[c + k], best[k]);
        if (places == nullptr) return;
#pragma omp simd
        for (std::int64_t k = 0; k < count; ++k) {
            const bool kept = !mask | (best[k] > 0.0F);
            places[c + k] = static_cast<std::uint8_t>(kept ? place[k] : nowhere);
        }
    }

    template <class T>
    static void plain_gathered(const ContributingOutputs<T>& outputs, std::int64_t c, std::int64_t count, T* dx) {
        float sum[block] = {};
        for (int i = 0; i < outputs.rows; ++i) {
            for (int j = 0; j < outputs.columns; ++j) {
                const int offset = outputs.offset - i * outputs.offset_down - j * outputs.offset_across;
                const std::int64_t at = outputs.at + i * outputs.down + j * outputs.across + c;
                const T* dy = outputs.dy + at;
                const std::uint8_t* places = outputs.places + at;
#pragma omp simd
                for (std::int64_t k = 0; k < count; ++k) {
                    const auto value = static_cast<float>(dy[k]);
                    sum[k] += static_cast<int>(places[k]) == offset ? value : 0.0F;
                }
            }
        }
#pragma omp simd
        for (std::int64_t k = 0; k < count; ++k) put(dx[c + k], sum[k]);
    }

#if CUPOLA_ISA >= CUPOLA_ISA_AVX512
    template <class T>
    [[gnu::cold, gnu::noinline]] static void maxima_with_nan(const PoolWindow<T>& window, std::int64_t c,
                                                             std::int64_t count, T* y, std::uint8_t* places,
                                                             bool mask) {
        plain_maxima(window, c, count, y, places, mask);
    }

    /// n vectors of channels from c; the last vector has the lanes of `last`.
    template <int n, class T>
    static void maxima(const PoolWindow<T>& window, std::int64_t c, __mmask16 last, T* y, std::uint8_t* places,
                       bool mask) {
        __m512 best[n];
        __m128i place[n];
        __mmask16 numbers = 0xFFFF;  // no NaN so far; one comparison covers two vectors
        const T* x = window.rows[0] + window.at + c;
        unrolled<n>([&](auto k) {
            best[k] = load<n>(x, k, last);
            place[k] = _mm_set1_epi8(static_cast<char>(window.first));
        });
        for (int a = 0; a < window.count; ++a) {
            const T* offset = window.rows[a] + window.at + c;
            int here = window.first + a * window.across;
            for (int b = 0; b < window.columns; ++b, ++here, offset += window.channels) {
                __m512 value[n];
                unrolled<n>([&](auto k) {
                    value[k] = load<n>(offset, k, last);
                    const __mmask16 larger = _mm512_cmp_ps_mask(value[k], best[k], _CMP_GT_OQ);
                    best[k] = _mm512_maskz_max_ps(0xFFFF, value[k], best[k]);
                    place[k] = _mm_mask_mov_epi8(place[k], larger, _mm_set1_epi8(static_cast<char>(here)));
                });
                for (int k = 0; k < n; k += 2) {
                    numbers = _mm512_mask_cmp_ps_mask(numbers, value[k], value[std::min(k + 1, n - 1)], _CMP_ORD_Q);
                }
            }
        }
        if (numbers != 0xFFFF) [[unlikely]] {
            return maxima_with_nan(window, c, n == 1 ? __builtin_popcount(last) : n * vector_lanes, y, places, mask);
        }
        unrolled<n>([&](auto k) {
            store<n>(y + c, k, last, best[k]);
            if (places == nullptr) return;
            if (mask) {
                const __mmask16 positive = _mm512_cmp_ps_mask(best[k], _mm512_setzero_ps(), _CMP_GT_OQ);
                place[k] = _mm_mask_mov_epi8(_mm_set1_epi8(static_cast<char>(nowhere)), positive, place[k]);
            }
            _mm_mask_storeu_epi8(places + c + k * vector_lanes, n == 1 ? last : 0xFFFF, place[k]);
        });
    }

    template <int n, class T>
    static void gathered(const ContributingOutputs<T>& outputs, std::int64_t c, __mmask16 last, T* dx) {
        __m512 sum[n];
        unrolled<n>([&](auto k) { sum[k] = _mm512_setzero_ps(); });
        for (int i = 0; i < outputs.rows; ++i) {
            int offset = outputs.offset - i * outputs.offset_down;
            std::int64_t at = outputs.at + i * outputs.down + c;
            for (int j = 0; j < outputs.columns; ++j, offset -= outputs.offset_across, at += outputs.across) {
                const __m128i here = _mm_set1_epi8(static_cast<char>(offset));
                unrolled<n>([&](auto k) {
                    const __m128i place =
                        _mm_maskz_loadu_epi8(n == 1 ? last : 0xFFFF, outputs.places + at + k * vector_lanes);
                    const __mmask16 from_here = _mm_cmpeq_epi8_mask(place, here);
                    sum[k] = _mm512_mask_add_ps(sum[k], from_here, sum[k], load<n>(outputs.dy + at, k, last));
                });
            }
        }
        unrolled<n>([&](auto k) { store<n>(dx + c, k, last, sum[k]); });
    }

    template <int n, class T>
    static __m512 load(const T* p, int k, __mmask16 last) {
        return n == 1 ? load16(p, last) : load16(p + k * vector_lanes);
    }
    template <int n, class T>
    static void store(T* p, int k, __mmask16 last, __m512 value) {
        n == 1 ? store16(p, value, last) : store16(p + k * vector_lanes, value);
    }
#endif

    WindowAxis height_, width_;
    std::int64_t channels_;
    std::int64_t whole_ = 0;  // the outputs before the first whose window ends behind the input
};

}}}  // namespace cupola::CUPOLA_ABI::impl
