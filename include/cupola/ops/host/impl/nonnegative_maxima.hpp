// SPDX-License-Identifier: Apache-2.0
//
// Maxima over windows of numbers that are not negative, as after a ReLU: their bits, as unsigned integers, have the
// order of the numbers, so a register is full of elements, without conversion. The bits of a negative number, of -0 and
// of a NaN are larger than those of infinity: a window with one of them is reported, and the caller computes it in
// another way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/ops/host/impl/lanes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The bits of a register full of elements, and what fits a byte of each.
template <class T>
struct ElementBits;
template <>
struct ElementBits<float> {
    using Number = std::uint32_t;
    typedef Number Register __attribute__((vector_size(sizeof(Number) * lane_count)));
    typedef std::uint16_t Words __attribute__((vector_size(sizeof(std::uint16_t) * lane_count)));
    typedef std::uint8_t Bytes __attribute__((vector_size(lane_count)));
    static constexpr std::int64_t count = lane_count;
    static constexpr Number infinity = 0x7F80'0000;

    /// In two steps: g++ converts between types of which one is four times as wide element by element.
    [[gnu::always_inline]] static Bytes bytes(Register value) {
        return __builtin_convertvector(__builtin_convertvector(value, Words), Bytes);
    }
};
template <>
struct ElementBits<BFloat16> {
    using Number = std::uint16_t;
    typedef Number Register __attribute__((vector_size(2 * sizeof(Number) * lane_count)));
    typedef std::uint8_t Bytes __attribute__((vector_size(2 * lane_count)));
    static constexpr std::int64_t count = 2 * lane_count;
    static constexpr Number infinity = 0x7F80;

    [[gnu::always_inline]] static Bytes bytes(Register value) { return __builtin_convertvector(value, Bytes); }
};

template <class T>
[[nodiscard, gnu::always_inline]] inline typename ElementBits<T>::Register load_bits(const T* from) {
    typename ElementBits<T>::Register value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

/// Whether an element is larger than infinity.
template <class T>
[[nodiscard, gnu::always_inline]] inline bool any_beyond_infinity(typename ElementBits<T>::Register value) {
    const auto beyond = value > ElementBits<T>::infinity;
#if CUPOLA_ISA >= CUPOLA_ISA_AVX512
    __m512i bits;
    __builtin_memcpy(&bits, &beyond, sizeof bits);
    return _mm512_test_epi64_mask(bits, bits) != 0;
#else
    std::uint64_t words[sizeof beyond / sizeof(std::uint64_t)], any = 0;
    __builtin_memcpy(words, &beyond, sizeof beyond);
    for (const std::uint64_t word : words) any |= word;
    return any != 0;
#endif
}

/// The inputs of one window: `count` rows of `columns` pixels from element `at` of each row.
template <class T>
struct PoolWindow {
    static constexpr int max_rows = 15;
    const T* rows[max_rows] = {};
    int count, columns = 0;
    int first = 0, across;  // the place of the first pixel, and the increment per row
    std::int64_t at = 0, channels;
};

/// The maxima of n registers of channels from c of a window, which begins at element `at` of each row and is `size` x
/// `size` and inside the image if `size` is not 0; and with `saves` their places, or `nowhere` where a maximum's bits
/// are below `least`. False if one is beyond infinity: what is written is then meaningless.
template <int size, bool saves, std::size_t n, class T>
[[nodiscard, gnu::always_inline]] inline bool nonnegative_maxima(const PoolWindow<T>& window, std::int64_t at,
                                                                 std::int64_t c, typename ElementBits<T>::Number least,
                                                                 T* y, std::uint8_t* places) {
    using Bits = ElementBits<T>;
    using Number = typename Bits::Number;
    using Register = typename Bits::Register;
    constexpr Number one = 1, nowhere = 255;  // as PoolRows has it
    Register best[n], place[n];
    const Register first = Register{} + static_cast<Number>(window.first);
    for_each_index<n>([&](auto k) __attribute__((always_inline)) {
        best[k] = load_bits(window.rows[0] + at + c + static_cast<std::int64_t>(k) * Bits::count);
        place[k] = first;
    });
    const auto add = [&](const T* pixel, Register here) __attribute__((always_inline)) {
        for_each_index<n>([&](auto k) __attribute__((always_inline)) {
            const Register value = load_bits(pixel + static_cast<std::int64_t>(k) * Bits::count), before = best[k];
            best[k] = value > before ? value : before;
            if constexpr (saves) place[k] = best[k] == before ? place[k] : here;
        });
    };
    if constexpr (size > 0) {
        for_each_index<static_cast<std::size_t>(size * size) - 1>([&](auto k) __attribute__((always_inline)) {
            constexpr auto offset = static_cast<Number>(k + 1);
            add(window.rows[offset / size] + at + offset % size * window.channels + c, first + offset);
        });
    } else {
        for (int a = 0; a < window.count; ++a) {
            const T* pixel = window.rows[a] + at + c;
            Register here = Register{} + static_cast<Number>(window.first + a * window.across);
            for (int b = 0; b < window.columns; ++b, pixel += window.channels, here = here + one) add(pixel, here);
        }
    }
    // Everything is written before the only branch, or g++ computes the places behind it from a copy of all elements.
    Register largest = best[0];
    for_each_index<n>([&](auto k) __attribute__((always_inline)) {
        const std::int64_t from = c + static_cast<std::int64_t>(k) * Bits::count;
        largest = best[k] > largest ? best[k] : largest;
        __builtin_memcpy(static_cast<void*>(y + from), &best[k], sizeof best[k]);
        if constexpr (saves) {
            const typename Bits::Bytes bytes = Bits::bytes(best[k] < least ? Register{} + nowhere : place[k]);
            __builtin_memcpy(places + from, &bytes, sizeof bytes);
        }
    });
    return !any_beyond_infinity<T>(largest);
}

template <int size, bool saves, class T>
[[nodiscard, gnu::noinline]] std::int64_t nonnegative_run(const PoolWindow<T>& window, std::int64_t pixels,
                                                          std::int64_t stride, bool mask, T* y, std::uint8_t* places) {
    using Bits = ElementBits<T>;
    constexpr std::int64_t n = std::min<std::int64_t>(4, 64 / Bits::count), lanes = Bits::count;
    const std::int64_t channels = window.channels;
    const typename Bits::Number least = mask ? 1 : 0;
    std::int64_t at = window.at;
    for (std::int64_t j = 0; j < pixels; ++j, at += stride * channels, y += channels, places += saves ? channels : 0) {
        std::int64_t c = 0;
        for (; c + n * lanes <= channels; c += n * lanes) {
            if (!nonnegative_maxima<size, saves, n>(window, at, c, least, y, places)) return j;
        }
        for (; c < channels; c += lanes) {  // the last one may contain channels of the one before it
            const std::int64_t from = std::min(c, channels - lanes);
            if (!nonnegative_maxima<size, saves, 1>(window, at, from, least, y, places)) return j;
        }
    }
    return pixels;
}

/// Computes pixels side by side, from that of `window` on and with windows `stride` pixels apart, up to the first with
/// an element beyond infinity in its window, and returns their number. Null `places` are not written. With `mask`, a
/// maximum of 0 has the place `nowhere`. Requires at least ElementBits<T>::count channels.
template <class T>
[[nodiscard]] std::int64_t nonnegative_pixels(const PoolWindow<T>& window, std::int64_t pixels, std::int64_t stride,
                                              bool mask, T* y, std::uint8_t* places) {
    const auto whole = [&](int size) {
        return window.count == size && window.columns == size && window.across == size;
    };
    if (places == nullptr) return nonnegative_run<0, false>(window, pixels, stride, mask, y, places);
    if (whole(3)) return nonnegative_run<3, true>(window, pixels, stride, mask, y, places);
    if (whole(2)) return nonnegative_run<2, true>(window, pixels, stride, mask, y, places);
    return nonnegative_run<0, true>(window, pixels, stride, mask, y, places);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
