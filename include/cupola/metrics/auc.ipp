// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/metrics/auc.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <cupola/metrics/auc.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace metrics {

CUPOLA_DECL void Auc::begin(const MetricTask& task) {
    const bool by_classes = task.target.shape != task.output;
    const std::int64_t classes = task.output[task.output.rank - 1];
    require(!by_classes || (positive >= 0 && positive < classes), "the positive class of metrics::Auc is ", positive,
            ", and the number of classes is ", classes);
    positives.clear();
    negatives.clear();
    has_nan = false;
}

CUPOLA_DECL void Auc::add_score(double score, bool is_positive) {
    has_nan = has_nan || impl::is_nan(score);
    (is_positive ? positives : negatives).push_back(score);
}

CUPOLA_DECL void Auc::add(const MetricBatch& batch) {
    const ColumnSpec* const target = batch.targets.columns().find(target_column);
    if (target != nullptr && target->shape != batch.output_shape) {
        impl::for_each_label(batch, {}, [&](std::span<const float> logits, std::size_t label) {
            const auto own = static_cast<std::size_t>(positive);
            // The logarithm of the sum of exp of the others, from the largest of them.
            double largest = -std::numeric_limits<double>::infinity(), sum = 0;
            for (std::size_t c = 0; c < logits.size(); ++c)
                if (c != own) largest = std::max(largest, static_cast<double>(logits[c]));
            for (std::size_t c = 0; c < logits.size(); ++c)
                if (c != own) sum += std::exp(static_cast<double>(logits[c]) - largest);
            add_score(static_cast<double>(logits[own]) - (largest + std::log(sum)), label == own);
        });
    } else if (target == nullptr || target->type == ElementType::float32) {
        impl::for_each_binary(
            batch, [&](float output, bool is_positive) { add_score(static_cast<double>(output), is_positive); });
    } else {
        const std::span<const std::int32_t> labels = batch.target<std::int32_t>();
        for (std::size_t i = 0; i < labels.size(); ++i)
            add_score(static_cast<double>(batch.outputs[i]), impl::target_is_one(labels[i], i));
    }
}

CUPOLA_DECL double Auc::value() const {
    if (has_nan || positives.empty() || negatives.empty()) return impl::not_a_number<double>();
    std::vector<double> higher = positives, lower = negatives;
    std::sort(higher.begin(), higher.end());
    std::sort(lower.begin(), lower.end());
    // Twice the number of pairs in the right order, plus the number of equal pairs.
    std::uint64_t pairs = 0;
    std::size_t below = 0, not_above = 0;
    for (const double score : higher) {
        while (below < lower.size() && lower[below] < score) ++below;
        while (not_above < lower.size() && lower[not_above] <= score) ++not_above;
        pairs += below + not_above;
    }
    return static_cast<double>(pairs) / (2.0 * static_cast<double>(higher.size()) * static_cast<double>(lower.size()));
}

}}}  // namespace cupola::CUPOLA_ABI::metrics
