// SPDX-License-Identifier: Apache-2.0
//
// A linear layer's outputs for a small batch: the product of every row of the samples with every row of the weights.
//
//   y[n, o] = relu(sum over k of x[n, k] w[o, k] + b[o])
//
// Both are read along their rows, as stored; a matrix product has to transpose one of them first, which for few samples
// takes as long as the products. A sum has the same order for any number of threads: each lane adds every lane_count-th
// product, then the lanes are added by a binary tree.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <cupola/ops/host/impl/lanes.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// [u's groups, v's groups], each of half the size: the sum of its lower and upper halves.
template <std::size_t groups>
[[gnu::always_inline]] inline Lanes add_halves(Lanes u, Lanes v) {
    constexpr std::size_t lanes = lane_count, size = lanes / groups, half = size / 2;
    return [&]<std::size_t... i>(std::index_sequence<i...>) __attribute__((always_inline)) {
        // Lane i of the result belongs to group i / half; the first `groups` of them belong to u, whose lanes count
        // from 0.
        return __builtin_shufflevector(u, v, static_cast<int>(i / half * size + i % half)...) +
               __builtin_shufflevector(u, v, static_cast<int>(i / half * size + i % half + half)...);
    }
    (std::make_index_sequence<lanes>{});
}

/// The sums over the lanes of `count` vectors, one per lane; count is a power of two and at most lane_count.
template <std::size_t count = std::size_t{lane_count}>
[[gnu::always_inline]] inline Lanes lane_sums(const Lanes* vectors) {
    if constexpr (count == 1) {
        return vectors[0];
    } else {
        return add_halves<count / 2>(lane_sums<count / 2>(vectors), lane_sums<count / 2>(vectors + count / 2));
    }
}

/// 4 x 4 products of rows of `length`; missing rows repeat the last one.
struct RowProducts {
    static constexpr std::size_t side = 4, lanes = lane_count;

    const float* x[side];
    const float* w[side];

    /// sums[i * side + j] = x[i] w[j]
    void run(std::int64_t length, float* sums) const {
        Lanes partial[side * side] = {};
        std::int64_t k = 0;
        for (; k + lane_count <= length; k += lane_count)
            add(
                partial, [&](const float* row) __attribute__((always_inline)) { return load_lanes(row + k); });
        if (k < length) {
            const std::size_t rest = static_cast<std::size_t>(length - k) * sizeof(float);
            add(partial, [&](const float* row) {
                Lanes value = {};
                std::memcpy(&value, row + k, rest);
                return value;
            });
        }
        for (std::size_t i = 0; i < side * side; i += lanes) store_lanes(sums + i, lane_sums(partial + i));
    }

private:
    template <class Load>
    [[gnu::always_inline]] void add(Lanes* partial, Load load) const {
        Lanes of_x[side], of_w[side];
        for_each_index<side>([&](auto i) __attribute__((always_inline)) { of_x[i] = load(x[i]); });
        for_each_index<side>([&](auto j) __attribute__((always_inline)) { of_w[j] = load(w[j]); });
        for_each_index<side * side>([&](auto i) __attribute__((always_inline)) {
            partial[i] += of_x[i / side] * of_w[i % side];
        });
    }
};

/// What follows a product: a ReLU or, outside training, a sum with what is in the output, and a formula.
struct AfterRows {
    bool relu, adds;
    const OutputFormula* formula;
};

/// Samples x [batch, in], weights w [out, in], bias [out] or null; outputs y [batch, out].
inline void linear_by_rows(const HostContext& context, const float* x, const float* w, const float* bias,
                           const AfterRows& after, std::int64_t batch, std::int64_t in, std::int64_t out, float* y) {
    constexpr auto side = static_cast<std::int64_t>(RowProducts::side);
    parallel_for(context, (out + side - 1) / side, [=](std::int64_t block) {
        const std::int64_t o = block * side;
        RowProducts rows{};
        for (std::int64_t j = 0; j < side; ++j) rows.w[j] = w + std::min(o + j, out - 1) * in;
        for (std::int64_t n = 0; n < batch; n += side) {
            for (std::int64_t i = 0; i < side; ++i) rows.x[i] = x + std::min(n + i, batch - 1) * in;
            float sums[RowProducts::side * RowProducts::side];
            rows.run(in, sums);
            for (std::int64_t i = 0; i < std::min(side, batch - n); ++i) {
                float* const to = y + (n + i) * out + o;
                for (std::int64_t j = 0; j < std::min(side, out - o); ++j) {
                    float value = sums[i * side + j] + (bias != nullptr ? bias[o + j] : 0.0F);
                    if (after.adds) value += to[j];
                    // Not std::max, which would convert a NaN to 0.
                    to[j] = after.relu && value <= 0.0F ? 0.0F : value;
                }
                if (after.formula != nullptr) after.formula->apply(to, std::min(side, out - o));
            }
        }
    });
}

}}}  // namespace cupola::CUPOLA_ABI::impl
