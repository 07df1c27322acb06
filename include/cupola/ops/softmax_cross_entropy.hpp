// SPDX-License-Identifier: Apache-2.0
//
// Softmax and cross-entropy in one pass, forward and backward, of rows of `classes` logits: one row per sample, or one
// per position of a sample (height x width x classes). With targets t and p = softmax(z), a row has
//
//   loss = sum over c of -t[c] log p[c],    dz[c] = (p[c] sum of t - t[c]) / rows
//
// and the targets are, with s for the label smoothing, w for the classes' weights and y for the label, as in PyTorch:
//
//   LabelTargets           t[c] = (1 - s) [c is y] + s / classes
//   WeightedLabelTargets   t[c] = (1 - s) [c is y] w[y] + s / classes w[c], and 0 for a label that is ignored;
//                          the weight of the row is w[y], and 0 for a label that is ignored
//   SoftTargets            t[c] = w[c] ((1 - s) q[c] + s / classes), where q is given; the weight of the row is 1
//
// The sum and the weight of a batch are divided by the positions of a sample.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/ops/rows.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace ops {

struct CrossEntropySettings {
    std::int64_t classes = 0;
    float label_smoothing = 0.0F;
    /// The rows per sample.
    std::int64_t positions = 1;
    /// The weights of the classes, in the host's memory, which must exist as long as the operation. LabelTargets do not
    /// read them.
    std::span<const float> class_weights{};
    /// The label of rows that do not count; only WeightedLabelTargets read it.
    std::optional<std::int32_t> ignored_label{};
};

}  // namespace ops

namespace impl {

/// Throws InvalidArgument for weights of classes of which one is negative or not finite, or all are 0.
[[gnu::cold]] void require_class_weights(std::span<const float> weights);

/// The targets of rows, as a device's loops read them. `Weights` is a pointer on the host, and an array inside the
/// arguments of a kernel.
struct LabelTargets {
    using Target = std::int32_t;
    /// Whether rows have weights, and whether all targets of a row are added to get their sum.
    static constexpr bool weighted = false, sums_targets = false;

    const Target* labels;
    std::int64_t classes;
    double smoothing, spread;

    LabelTargets(const ops::CrossEntropySettings& s, const Target* of_rows)
        : labels(of_rows),
          classes(s.classes),
          smoothing(static_cast<double>(s.label_smoothing)),
          spread(smoothing / static_cast<double>(classes)) {}

    [[nodiscard]] CUPOLA_HOST_DEVICE bool ignored(std::int64_t) const { return false; }
    [[nodiscard]] CUPOLA_HOST_DEVICE double weight(std::int64_t) const { return 1.0; }
    /// The class of a row, against which predictions are counted.
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t label(std::int64_t n) const { return labels[n]; }
    [[nodiscard]] CUPOLA_HOST_DEVICE bool valid(std::int64_t n) const { return labels[n] >= 0 && labels[n] < classes; }
    /// The target of a class, and its sum.
    [[nodiscard]] CUPOLA_HOST_DEVICE double target(std::int64_t n, std::int64_t c) const {
        return (c == labels[n] ? 1.0 - smoothing : 0.0) + spread;
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE double total(std::int64_t) const { return 1.0; }
    /// The loss of a row: `below` is the largest logit less that of the class, `terms` the sum of `term`, and
    /// `label_below` the value of `below` of the label.
    [[nodiscard]] CUPOLA_HOST_DEVICE double term(std::int64_t, std::int64_t, double below) const { return below; }
    [[nodiscard]] CUPOLA_HOST_DEVICE double loss(std::int64_t, double log_total, double terms, double,
                                                 double label_below) const {
        return log_total + ((1.0 - smoothing) * label_below + smoothing * (terms / static_cast<double>(classes)));
    }
};

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

/// The index among the batch's targets of the invalid one of row n, and its bits.
template <class Targets>
CUPOLA_HOST_DEVICE void set_bad_target(LossReport& report, const Targets& targets, std::int64_t n) {
    if constexpr (Targets::sums_targets) {
        report.bad_target = n * targets.classes + targets.bad_class(n);
        report.bad_value = __builtin_bit_cast(std::int32_t, targets.targets[report.bad_target]);
    } else {
        report.bad_target = n;
        report.bad_value = targets.labels[n];
    }
}

enum class RowState : std::uint8_t { wrong, right, invalid };
struct RowLoss {
    double loss;
    RowState state;
};

/// The formula of a row (ops/rows.hpp), in double: its loss, whether its prediction is correct, and its gradient if
/// `gradient` is not null.
template <class T, class Targets>
struct CrossEntropyRow {
    using Result = RowLoss;
    static constexpr bool weighted = Targets::weighted;

    const T* logits;
    T* gradient;
    std::int64_t rows;
    Targets targets;
    GradientFactor factor{};

    template <class Lanes>
    CUPOLA_HOST_DEVICE RowLoss operator()(const Lanes& lanes, std::int64_t n) const {
        // A row that is ignored has no classes.
        const bool counts = lanes.exists() && !targets.ignored(n);
        const std::int64_t classes = counts ? targets.classes : 0;
        const T* const z = logits + n * targets.classes;
        const auto logit = [&](std::int64_t c) { return static_cast<float>(z[c]); };
        const RowTop top = lanes.largest(classes, logit);
        // The difference of each logit from the largest: log(total) is lost in a sum with logits above 1e15.
        const auto below = [&](std::int64_t c) {
            return static_cast<double>(top.value) - static_cast<double>(logit(c));
        };
        double total = 0, terms = 0, sum_of_targets = 0;
        for (std::int64_t c = lanes.begin(); c < classes; c += Lanes::step) {
            total += std::exp(static_cast<double>(logit(c) - top.value));
            terms += targets.term(n, c, below(c));
            if constexpr (Targets::sums_targets) sum_of_targets += targets.target(n, c);
        }
        terms = lanes.sum(terms);
        RowTop top_target;
        if constexpr (Targets::sums_targets) {
            sum_of_targets = lanes.sum(sum_of_targets);
            top_target = lanes.largest(classes, [&](std::int64_t c) { return targets.row(n)[c]; });
        }
        const double log_total = std::log(lanes.sum(total));
        if (!lanes.exists()) return {0, RowState::wrong};
        T* const to = gradient == nullptr ? nullptr : gradient + n * targets.classes;
        if (!counts) {
            if (to != nullptr) {
                for (std::int64_t c = lanes.begin(); c < targets.classes; c += Lanes::step) to[c] = T(0.0F);
            }
            return {0, RowState::wrong};
        }
        if constexpr (!Targets::sums_targets) sum_of_targets = targets.total(n);
        if (to != nullptr) {
            const double fraction = 1.0 / static_cast<double>(rows);
            const float scale = factor.value();
            for (std::int64_t c = lanes.begin(); c < classes; c += Lanes::step) {
                const double p = std::exp(-below(c) - log_total);
                const auto derivative = static_cast<float>((sum_of_targets * p - targets.target(n, c)) * fraction);
                to[c] = T(derivative * scale);
            }
        }
        if (!lanes.first()) return {0, RowState::wrong};
        std::int64_t label = top_target.place;
        if constexpr (!Targets::sums_targets) label = targets.label(n);
        // If a logit is NaN, none is the largest.
        RowLoss result{0, top.place == label && !is_nan(log_total) ? RowState::right : RowState::wrong};
        if constexpr (Targets::sums_targets) {
            result.loss = targets.loss(n, log_total, terms, sum_of_targets, 0.0);
            if (is_nan(result.loss) && !targets.valid(n)) result.state = RowState::invalid;
        } else {
            const bool valid = targets.valid(n);
            result.loss =
                targets.loss(n, log_total, terms, sum_of_targets, valid ? below(label) : not_a_number<double>());
            if (!valid) result.state = RowState::invalid;
        }
        return result;
    }

    [[nodiscard]] CUPOLA_HOST_DEVICE LossReport report_of(std::int64_t n, const RowLoss& of_row) const {
        LossReport report = no_loss;
        report.sum = of_row.loss;
        report.correct = of_row.state == RowState::right ? 1 : 0;
        if constexpr (weighted) {
            report.weight = targets.weight(n);
            report.predictions = targets.ignored(n) ? 0 : 1;
        }
        if (of_row.state == RowState::invalid) set_bad_target(report, targets, n);
        return report;
    }
};

/// Converts a report. Throws InvalidArgument for a label that is not a class, or a soft target that is invalid.
template <class Targets>
[[nodiscard]] LossResult result_of(const LossReport& report, const ops::CrossEntropySettings& s) {
    if (report.bad_target < 0) return result_of(report);
    const std::int64_t row = report.bad_target / (Targets::sums_targets ? s.classes : 1);
    const std::string at = s.positions == 1 ? std::string() : text(" at position ", row % s.positions);
    if constexpr (Targets::sums_targets) {
        throw_joined<InvalidArgument>({"sample ", row / s.positions, " of the batch has target ",
                                       __builtin_bit_cast(float, report.bad_value), " for class ",
                                       report.bad_target % s.classes, at, ", but a target must be from 0 to 1"});
    } else {
        throw_joined<InvalidArgument>({"sample ", row / s.positions, " of the batch has label ", report.bad_value, at,
                                       ", but the loss has classes 0 to ", s.classes - 1,
                                       s.ignored_label ? text(" and ignores ", *s.ignored_label) : std::string()});
    }
}

}  // namespace impl

namespace ops {

/// Made from CrossEntropySettings; specialised by each device. `Targets` is one of impl::LabelTargets,
/// impl::WeightedLabelTargets<> and impl::SoftTargets<>; `targets` are labels, or floats as many as logits.
///   LossResult forward(context, logits, targets, batch, gradient)    gradient may be null; throws InvalidArgument for
///                                                                    an invalid target
///   void queue(context, logits, targets, batch, gradient, report)    the same, queued within a step: the report holds
///                                                                    the invalid target
///   LossResult result_of(report)                                     converts the report on the host; throws for an
///                                                                    invalid target
template <class Device, class T, class Targets = impl::LabelTargets>
class SoftmaxCrossEntropy;

}  // namespace ops

namespace impl {

inline void require_class_weights(std::span<const float> weights) {
    double sum = 0;
    for (std::size_t c = 0; c < weights.size(); ++c) {
        require(is_finite(weights[c]) && weights[c] >= 0.0F, "the weight of class ", c,
                " must be finite and at least 0, not ", weights[c]);
        sum += static_cast<double>(weights[c]);
    }
    require(sum > 0, "the weights of all ", weights.size(), " classes are 0");
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
