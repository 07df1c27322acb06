// SPDX-License-Identifier: Apache-2.0
//
// Softmax and cross-entropy in one pass, forward and backward, of rows of `classes` logits: one row per sample, or one
// per position of a sample (height x width x classes). With targets t and p = softmax(z), a row has
//
//   loss = sum over c of -t[c] log p[c],    dz[c] = (p[c] sum of t - t[c]) / rows
//
// and the targets are, with s for the label smoothing and y for the label, as in PyTorch:
//
//   LabelTargets           t[c] = (1 - s) [c is y] + s / classes
//
// Those with weights of the classes, and those that are given, are in ops/weighted_targets.hpp.
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

/// The targets of rows, as a device's loops read them.
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

}}  // namespace cupola::CUPOLA_ABI
