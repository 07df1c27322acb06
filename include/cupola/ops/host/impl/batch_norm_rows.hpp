// SPDX-License-Identifier: Apache-2.0
//
// The loops of batch normalisation over the rows of a block. A row is the channels of one pixel, or of several, which
// lie one behind the other; the last may be shorter. A function processes one lane of some rows: a register or a float.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/ops/host/impl/element.hpp>
#include <cupola/ops/host/impl/lanes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

[[nodiscard, gnu::always_inline]] inline float norm_load(float, const auto* from) { return static_cast<float>(*from); }
[[nodiscard, gnu::always_inline]] inline Lanes norm_load(Lanes, const auto* from) { return load_lanes(from); }
[[gnu::always_inline]] inline void norm_store(auto* to, float value) { put(*to, value); }
[[gnu::always_inline]] inline void norm_store(auto* to, Lanes value) { store_lanes(to, value); }

/// The elements of a block, and of a row of it, and three rows, one behind the other: two of sums, and one of numbers
/// about which moments are computed.
struct NormBlock {
    std::int64_t size, width;
    float* sums;

    template <class V>
    [[gnu::always_inline]] void add(std::int64_t lane, V sum, V other) const {
        norm_store(sums + lane, norm_load(V{}, sums + lane) + sum);
        norm_store(sums + width + lane, norm_load(V{}, sums + width + lane) + other);
    }
};

template <class V, std::size_t rows, class Function, class... T>
[[gnu::always_inline]] inline void norm_lane(const NormBlock& block, std::int64_t lane, Function f, T*... at) {
    f(
        V{}, lane, block, [=](auto g) __attribute__((always_inline)) {
            for_each_index<rows>([&](auto row) __attribute__((always_inline)) {
                constexpr std::int64_t ahead = 4096;  // the processor's own prefetching ends with a page
                const std::int64_t i = static_cast<std::int64_t>(row) * block.width + lane;
                (__builtin_prefetch(reinterpret_cast<const char*>(at + i) + ahead), ...);
                g((at + i)...);
            });
        });
}

template <std::size_t rows, class Function, class... T>
void norm_rows(NormBlock block, std::int64_t lanes, Function f, T*... at) {
    std::int64_t k = 0;
    for (; k + lane_count <= lanes; k += lane_count) norm_lane<Lanes, rows>(block, k, f, at...);
    for (; k < lanes; ++k) norm_lane<float, rows>(block, k, f, at...);
}

/// Calls f(V{}, lane, block, for_rows) for the lanes of some rows and then of the next ones, in the order of memory, so
/// that what a lane needs is loaded once for them. for_rows(g) calls g(element...) for each of them. V: Lanes or float.
template <std::size_t rows, class Function, class... T>
void for_norm_rows(NormBlock block, Function f, T*... at) {
    const std::int64_t step = static_cast<std::int64_t>(rows) * block.width;
    std::int64_t i = 0;
    for (; i + step <= block.size; i += step) norm_rows<rows>(block, block.width, f, (at + i)...);
    for (; i < block.size; i += block.width) norm_rows<1>(block, std::min(block.width, block.size - i), f, (at + i)...);
}

/// The sums of the deviations from the block's number per lane, and of their squares.
inline auto norm_moments() {
    return [](auto zero, std::int64_t k, const NormBlock& block, auto for_rows) __attribute__((always_inline)) {
        const auto near = norm_load(zero, block.sums + 2 * block.width + k);
        auto sum = zero, square = zero;
        for_rows([&](const auto* x) __attribute__((always_inline)) {
            const auto deviation = norm_load(zero, x) - near;
            sum += deviation;
            square += deviation * deviation;
        });
        block.add(k, sum, square);
    };
}

/// One value per lane of a row each: those that forward saves for backward, where `scale` is weight / sqrt(variance +
/// epsilon), and two factors of backward. An activation has its bounds, without one infinite.
struct NormState {
    const float *mean, *scale, *bias, *offset, *slope;
    float least, most;
};
template <class V>
struct NormLane {
    const NormState& state;
    std::int64_t k;
    V mean = norm_load(V{}, state.mean + k), scale = norm_load(V{}, state.scale + k);
    V bias = norm_load(V{}, state.bias + k), least = V{} + state.least, most = V{} + state.most;

    /// Forward and backward must agree on whether a normalised value is within the bounds, so both compute it here.
    [[nodiscard, gnu::always_inline]] V normalized(V x) const { return (x - mean) * scale + bias; }
    /// The gradient of the normalised value, given that of the output.
    template <bool activated>
    [[nodiscard, gnu::always_inline]] V gradient(V x, const auto* dy) const {
        const V of_output = norm_load(V{}, dy);
        if constexpr (!activated) return of_output;
        const V output = normalized(x);
        return ((output > least) & (output <= most)) ? of_output : V{};
    }
};

inline auto norm_apply(const NormState& state) {
    return [=](auto zero, std::int64_t k, const NormBlock&, auto for_rows) __attribute__((always_inline)) {
        const NormLane<decltype(zero)> lane{state, k};
        for_rows([&](const auto* x, auto* y) __attribute__((always_inline)) {
            auto value = lane.normalized(norm_load(zero, x));
            value = value < lane.least ? lane.least : value;
            norm_store(y, value > lane.most ? lane.most : value);
        });
    };
}

/// The sums of dy and of dy (x - mean), with dy masked if the normalised value is activated.
template <bool activated>
auto norm_gradient_sums(const NormState& state) {
    return [=](auto zero, std::int64_t k, const NormBlock& block, auto for_rows) __attribute__((always_inline)) {
        const NormLane<decltype(zero)> lane{state, k};
        auto sum = zero, product = zero;
        for_rows([&](const auto* x, const auto* dy) __attribute__((always_inline)) {
            const auto value = norm_load(zero, x), gradient = lane.template gradient<activated>(value, dy);
            sum += gradient;
            product += gradient * (value - lane.mean);
        });
        block.add(k, sum, product);
    };
}

/// dx = scale dy - offset - (x - mean) slope, with dy as there; `dx` may be `dy`.
template <bool activated>
auto norm_backward(const NormState& state) {
    return [=](auto zero, std::int64_t k, const NormBlock&, auto for_rows) __attribute__((always_inline)) {
        const NormLane<decltype(zero)> lane{state, k};
        const auto offset = norm_load(zero, state.offset + k), slope = norm_load(zero, state.slope + k);
        for_rows([&](const auto* x, const auto* dy, auto* dx) __attribute__((always_inline)) {
            const auto value = norm_load(zero, x), gradient = lane.template gradient<activated>(value, dy);
            norm_store(dx, lane.scale * gradient - offset - (value - lane.mean) * slope);
        });
    };
}

}}}  // namespace cupola::CUPOLA_ABI::impl
