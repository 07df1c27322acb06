// SPDX-License-Identifier: Apache-2.0
//
// for_each_row, sum_columns and report_rows on `Host`: a row has one lane. Rows, or columns, are distributed to the
// device's threads; sums are in the order of the rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/ops/rows.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The only lane of a row that exists.
struct OneLane {
    [[nodiscard]] static constexpr bool exists() { return true; }
    [[nodiscard]] static constexpr bool first() { return true; }
    [[nodiscard]] static constexpr std::int64_t count(std::int64_t width) { return width; }
    [[nodiscard]] static constexpr std::int64_t begin() { return 0; }
    static constexpr std::int64_t step = 1;
    [[nodiscard]] static constexpr double sum(double value) { return value; }
    template <class Value>
    [[nodiscard]] RowTop largest(std::int64_t count, const Value& value) const {
        return largest_of_lane(count, 0, 1, value);
    }
};

}  // namespace impl

/// See ops/rows.hpp.
template <class Formula>
void for_each_row(const HostContext& context, std::int64_t rows, std::int64_t width, const Formula& formula) {
    const std::int64_t at_once = std::max<std::int64_t>(1, block_size / std::max<std::int64_t>(1, width));
    parallel_for(context, (rows + at_once - 1) / at_once, [=](std::int64_t block) {
        const std::int64_t end = std::min(rows, (block + 1) * at_once);
        for (std::int64_t n = block * at_once; n < end; ++n) formula(impl::OneLane{}, n);
    });
}

/// See ops/rows.hpp. A thread adds whole columns.
template <class Formula>
void sum_columns(const HostContext& context, std::int64_t rows, std::int64_t width, const Formula& formula, float* to) {
    constexpr std::int64_t at_once = 16;
    parallel_for(context, (width + at_once - 1) / at_once, [=](std::int64_t block) {
        const std::int64_t first = block * at_once, here = std::min(at_once, width - first);
        double sums[at_once] = {};
        for (std::int64_t n = 0; n < rows; ++n) {
            for (std::int64_t c = 0; c < here; ++c) sums[c] += formula(n, first + c);
        }
        for (std::int64_t c = 0; c < here; ++c) to[first + c] = static_cast<float>(sums[c]);
    });
}

/// See ops/rows.hpp.
template <class Formula>
void report_rows(const HostContext& context, std::int64_t rows, std::int64_t, std::int64_t positions,
                 const Formula& formula, LossReport* report) {
    constexpr std::int64_t rows_per_round = 512, rows_per_task = 16;
    typename Formula::Result results[rows_per_round];
    LossReport sum = impl::no_loss;
    for (std::int64_t first = 0; first < rows; first += rows_per_round) {
        const std::int64_t here = std::min(rows_per_round, rows - first);
        parallel_for(context, (here + rows_per_task - 1) / rows_per_task, [&](std::int64_t task) {
            const std::int64_t end = std::min(here, (task + 1) * rows_per_task);
            for (std::int64_t i = task * rows_per_task; i < end; ++i) results[i] = formula(impl::OneLane{}, first + i);
        });
        for (std::int64_t i = 0; i < here; ++i) impl::add_report(sum, formula.report_of(first + i, results[i]));
    }
    if (!Formula::weighted) {
        sum.weight = static_cast<double>(rows);
        sum.predictions = rows;
    }
    sum.sum /= static_cast<double>(positions);
    sum.weight /= static_cast<double>(positions);
    *report = sum;
}

}}  // namespace cupola::CUPOLA_ABI
