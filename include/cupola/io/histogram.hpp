// SPDX-License-Identifier: Apache-2.0
//
// Counts of values: eight buckets per doubling (TensorFlow's are as fine, each a tenth wider), found by one shift of a
// float's bits instead of a search. Values below a 1024th of the largest magnitude share two buckets, one on each side
// of zero. One pass over the values.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include <cupola/core/abi.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/io/impl/histogram_moments.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// All but `not_finite` are of the finite values.
struct Histogram {
    std::int64_t count = 0, zeros = 0, not_finite = 0;
    double minimum = 0, maximum = 0, sum = 0, sum_of_squares = 0;
    /// counts[i] values lie between limits[i - 1] and limits[i]; one on a limit is in the bucket that is farther from
    /// zero. Runs of empty buckets are one. The first and the last bucket are not empty: they begin at the minimum and
    /// end at the maximum, and TensorBoard draws a bucket that ends before it begins if the first is empty.
    std::vector<double> limits, counts;
};

/// Computes histograms, one after another, in its own counters: 64 KiB, which are not on the stack of a thread.
class HistogramMaker {
public:
    [[nodiscard]] Histogram operator()(std::span<const float> values) {
        for (Cells& cells : cells_) cells.fill(0);
        impl::HistogramMoments moments;
        for (std::size_t i = 0; i < values.size(); i += block) {
            const auto part = values.subspan(i, std::min(block, values.size() - i));  // small enough to be read twice
            moments.add(part);
            count(part);
        }
        Histogram result;
        for (std::size_t c = first_not_finite; c < half; ++c) result.not_finite += cell(c) + cell(half + c);
        result.count = static_cast<std::int64_t>(values.size()) - result.not_finite;
        if (result.not_finite > 0) {
            std::vector<float> finite;
            std::copy_if(values.begin(), values.end(), std::back_inserter(finite),
                         [](float v) { return impl::is_finite(v); });
            moments = {};
            moments.add(finite);
        }
        if (result.count == 0) return result;
        result.zeros = moments.zeros;
        result.minimum = static_cast<double>(moments.minimum);
        result.maximum = static_cast<double>(moments.maximum);
        result.sum = moments.sum;
        result.sum_of_squares = moments.sum_of_squares;
        write_buckets(result);
        return result;
    }

private:
    // A cell is a float's sign, its exponent and three bits of its mantissa: the upper twelve bits.
    static constexpr int shift = 20;
    static constexpr std::size_t half = 2048, first_not_finite = 255 * 8, block = 2048;
    /// Eight cells per doubling, ten doublings for a factor of 1024.
    static constexpr std::size_t resolved = 8 * 10;

    /// Four sets of counters, because neighbouring values are often in the same cell, where each increment waits for
    /// the one before.
    void count(std::span<const float> values) {
        const auto add = [](auto& cells, float value) { ++cells[std::bit_cast<std::uint32_t>(value) >> shift]; };
        std::size_t i = 0;
        for (; i + 4 <= values.size(); i += 4) {
            add(cells_[0], values[i]);
            add(cells_[1], values[i + 1]);
            add(cells_[2], values[i + 2]);
            add(cells_[3], values[i + 3]);
        }
        for (; i < values.size(); ++i) add(cells_[0], values[i]);
    }

    [[nodiscard]] std::int64_t cell(std::size_t c) const {
        return std::int64_t{cells_[0][c]} + cells_[1][c] + cells_[2][c] + cells_[3][c];
    }

    /// The lower edge of a cell of positive values.
    static double edge(std::size_t c) {
        if (c >= first_not_finite) return static_cast<double>(std::numeric_limits<float>::max());
        return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(c) << shift));
    }

    [[gnu::cold]] void write_buckets(Histogram& result) const {
        const float largest =
            std::max(std::abs(static_cast<float>(result.minimum)), std::abs(static_cast<float>(result.maximum)));
        const std::size_t top = std::bit_cast<std::uint32_t>(largest) >> shift;
        const std::size_t small = std::max(top, resolved) - resolved + 1;  // cells below this one share a bucket
        const auto sum_below = [&](std::size_t first) {
            std::int64_t sum = 0;
            for (std::size_t c = 0; c < small; ++c) sum += cell(first + c);
            return sum;
        };
        for (std::size_t c = top + 1; c-- > small;) add_bucket(result, -edge(c), cell(half + c));
        add_bucket(result, 0, sum_below(half));
        add_bucket(result, edge(small), sum_below(0));
        for (std::size_t c = small; c <= top; ++c) add_bucket(result, edge(c + 1), cell(c));
        if (result.counts.back() == 0.0) {
            result.counts.pop_back();
            result.limits.pop_back();
        }
    }

    static void add_bucket(Histogram& result, double limit, std::int64_t count) {
        if (count == 0 && result.counts.empty()) return;  // the first bucket begins at the minimum
        if (count == 0 && result.counts.back() == 0.0) {
            result.limits.back() = limit;
        } else {
            result.limits.push_back(limit);
            result.counts.push_back(static_cast<double>(count));
        }
    }

    using Cells = std::array<std::uint32_t, 2 * half>;
    std::vector<Cells> cells_ = std::vector<Cells>(4);
};

}}  // namespace cupola::CUPOLA_ABI
