// SPDX-License-Identifier: Apache-2.0
//
// TrainingStep on `Host`. Nothing is queued: each function is complete when it returns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/device/host.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <>
struct TrainingStep<Host> {
    static void poison(const HostContext&, const double* loss, float* gradient, const std::int32_t* failed = nullptr) {
        if (!impl::is_finite(*loss) || (failed != nullptr && *failed != 0)) *gradient = impl::not_a_number<float>();
    }
    static void scale(const HostContext& context, std::span<float> values, double factor, const float* by) {
        cupola::scale(context, values, factor * static_cast<double>(*by));
    }
    static void weighted_sum(const HostContext& context, std::span<const float* const> rows,
                             std::span<const float> weights, std::span<float> to);
    static void mean(const HostContext& context, std::span<const float> sums, const float* divisor,
                     std::span<float> mean, std::int32_t* healthy, const RowsOfMean& rows = {},
                     const float* loss_scale = nullptr);
    static void update_loss_scale(const HostContext&, const LossScaleUpdate& update) { update(0); }
    static void weigh(const HostContext&, std::span<const LossReport> reports, double scale, float* divisor) {
        double weight = 0;
        for (const LossReport& each : reports) weight += each.weight;
        *divisor = static_cast<float>(scale * weight);
    }
    static void sum_losses(const HostContext&, std::span<const LossReport> reports, std::span<const double> factors,
                           LossReport* to) {
        *to = impl::no_loss;
        for (std::size_t k = 0; k < reports.size(); ++k) impl::add_loss(*to, reports[k], factors[k], k == 0);
    }
    static void sum_of_squares(const HostContext& context, std::span<const float> values, double* to) {
        *to = cupola::sum_of_squares(context, values);
    }
    static void all_finite(const HostContext& context, std::span<const float> values, std::int32_t* to) {
        *to = cupola::all_finite(context, values) ? 1 : 0;
    }
    static void hash(const HostContext& context, std::span<const float> values, std::uint64_t* to) {
        *to = hash_of(context, values);
    }
};

inline void TrainingStep<Host>::weighted_sum(const HostContext& context, std::span<const float* const> rows,
                                             std::span<const float> weights, std::span<float> to) {
    require(rows.size() == weights.size(), "a sum takes one weight per row, not ", rows.size(), " rows and ",
            weights.size());
    for_each_block(context, static_cast<std::int64_t>(to.size()), [&](std::int64_t begin, std::int64_t end) {
        if (rows.empty()) std::fill(to.data() + begin, to.data() + end, 0.0F);
        sum_weighted_rows(
            rows, [&](std::size_t r) { return weights[r]; }, to.data(), begin, end);
    });
}

inline void TrainingStep<Host>::mean(const HostContext& context, std::span<const float> sums, const float* divisor,
                                     std::span<float> mean, std::int32_t* healthy, const RowsOfMean& rows,
                                     const float* loss_scale) {
    float by = loss_scale == nullptr ? *divisor : *divisor * *loss_scale;
    if (by == 0.0F) {
        *healthy = 0;
        by = 1;
    }
    if (by != 1.0F || mean.data() != sums.data()) {
        for_each_block(context, static_cast<std::int64_t>(mean.size()), [&](std::int64_t begin, std::int64_t end) {
            const float* const from = sums.data();
            float* const to = mean.data();
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) to[i] = from[i] / by;
        });
    }
    if (impl::is_finite(by) && cupola::all_finite(context, mean)) return;
    *healthy = 0;
    for (int r = 0; r < rows.count; ++r) {
        const float* const row = rows.rows + r * rows.stride;
        for (auto i = static_cast<std::int64_t>(mean.size()); i-- > 0;) {
            if (impl::is_finite(mean[static_cast<std::size_t>(i)]) || impl::is_finite(row[i])) continue;
            rows.ends[r] = std::max(rows.ends[r], static_cast<unsigned long long>(rows.first_column + i + 1));
            break;
        }
    }
}

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
