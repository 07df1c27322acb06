// SPDX-License-Identifier: Apache-2.0
//
// The targets of softmax and cross-entropy (ops/softmax_cross_entropy.hpp) with weights of the classes: with s for the
// label smoothing, w for the classes' weights and y for the label, as in PyTorch:
//
//   WeightedLabelTargets   t[c] = (1 - s) [c is y] w[y] + s / classes w[c], and 0 for a label that is ignored;
//                          the weight of the row is w[y], and 0 for a label that is ignored
//   SoftTargets            t[c] = w[c] ((1 - s) q[c] + s / classes), where q is given; the weight of the row is 1
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Throws InvalidArgument for weights of classes of which one is negative or not finite, or all are 0.
[[gnu::cold]] void require_class_weights(std::span<const float> weights);

// `Weights` is a pointer on the host, and an array inside the arguments of a kernel.

template <class Weights = const float*>
struct WeightedLabelTargets {
    using Target = std::int32_t;
    static constexpr bool weighted = true, sums_targets = false;
    template <class Other>
    using With = WeightedLabelTargets<Other>;

    const Target* labels;
    std::int64_t classes;
    double smoothing, spread, mean_weight;
    Target ignored_label;
    bool ignores;
    Weights weights;

    WeightedLabelTargets(const ops::CrossEntropySettings& s, const Target* of_rows, const Weights& of_classes)
        : labels(of_rows),
          classes(s.classes),
          smoothing(static_cast<double>(s.label_smoothing)),
          spread(smoothing / static_cast<double>(classes)),
          mean_weight(0),
          ignored_label(s.ignored_label.value_or(0)),
          ignores(s.ignored_label.has_value()),
          weights(of_classes) {
        for (const float weight : s.class_weights) mean_weight += static_cast<double>(weight);
        mean_weight /= static_cast<double>(classes);
    }

    [[nodiscard]] CUPOLA_HOST_DEVICE bool ignored(std::int64_t n) const {
        return ignores && labels[n] == ignored_label;
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE double weight(std::int64_t n) const {
        return ignored(n) || !valid(n) ? 0.0 : static_cast<double>(weights[labels[n]]);
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t label(std::int64_t n) const { return labels[n]; }
    [[nodiscard]] CUPOLA_HOST_DEVICE bool valid(std::int64_t n) const {
        return ignored(n) || (labels[n] >= 0 && labels[n] < classes);
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE double target(std::int64_t n, std::int64_t c) const {
        const auto w = static_cast<double>(weights[c]);
        return (c == labels[n] ? (1.0 - smoothing) * w : 0.0) + spread * w;
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE double total(std::int64_t n) const {
        return (1.0 - smoothing) * weight(n) + smoothing * mean_weight;
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE double term(std::int64_t, std::int64_t c, double below) const {
        return static_cast<double>(weights[c]) * below;
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE double loss(std::int64_t n, double log_total, double terms, double,
                                                 double label_below) const {
        return total(n) * log_total +
               ((1.0 - smoothing) * weight(n) * label_below + smoothing * (terms / static_cast<double>(classes)));
    }
};

template <class Weights = const float*>
struct SoftTargets {
    using Target = float;
    static constexpr bool weighted = false, sums_targets = true;
    template <class Other>
    using With = SoftTargets<Other>;

    const Target* targets;
    std::int64_t classes;
    double smoothing, spread;
    Weights weights;

    SoftTargets(const ops::CrossEntropySettings& s, const Target* of_rows, const Weights& of_classes)
        : targets(of_rows),
          classes(s.classes),
          smoothing(static_cast<double>(s.label_smoothing)),
          spread(smoothing / static_cast<double>(classes)),
          weights(of_classes) {}

    [[nodiscard]] CUPOLA_HOST_DEVICE bool ignored(std::int64_t) const { return false; }
    [[nodiscard]] CUPOLA_HOST_DEVICE double weight(std::int64_t) const { return 1.0; }
    [[nodiscard]] CUPOLA_HOST_DEVICE const Target* row(std::int64_t n) const { return targets + n * classes; }
    /// The first class with the largest target.
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t label(std::int64_t n) const {
        const Target* const q = row(n);
        std::int64_t top = 0;
        for (std::int64_t c = 1; c < classes; ++c) top = q[c] > q[top] ? c : top;
        return top;
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE bool valid(std::int64_t n) const { return bad_class(n) == classes; }
    /// The first class whose target is not from 0 to 1; `classes` if there is none.
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t bad_class(std::int64_t n) const {
        const Target* const q = row(n);
        std::int64_t c = 0;
        while (c < classes && accepts(q[c])) ++c;
        return c;
    }
    /// The sum of two fractions of a whole may be rounded to more than 1.
    [[nodiscard]] CUPOLA_HOST_DEVICE static bool accepts(const Target& q) {
        return is_finite_in_memory(q) && q >= 0.0F && q <= 1.001F;
    }
    /// The target of a class; NaN if it is invalid.
    [[nodiscard]] CUPOLA_HOST_DEVICE double target(std::int64_t n, std::int64_t c) const {
        const Target& q = row(n)[c];
        const double smoothed = (1.0 - smoothing) * static_cast<double>(q) + spread;
        return accepts(q) ? static_cast<double>(weights[c]) * smoothed : not_a_number<double>();
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE double total(std::int64_t) const { return 0.0; }
    [[nodiscard]] CUPOLA_HOST_DEVICE double term(std::int64_t n, std::int64_t c, double below) const {
        return target(n, c) * below;
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE double loss(std::int64_t, double log_total, double terms, double total,
                                                 double) const {
        return total * log_total + terms;
    }
};

inline void require_class_weights(std::span<const float> weights) {
    double sum = 0;
    for (std::size_t c = 0; c < weights.size(); ++c) {
        require(is_finite(weights[c]) && weights[c] >= 0.0F, "the weight of class ", c,
                " must be finite and at least 0, not ", weights[c]);
        sum += static_cast<double>(weights[c]);
    }
    require(sum > 0, "the weights of all ", weights.size(), " classes are 0");
}

}}}  // namespace cupola::CUPOLA_ABI::impl
