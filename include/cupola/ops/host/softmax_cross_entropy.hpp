// SPDX-License-Identifier: Apache-2.0
//
// Softmax cross-entropy on `Host`. Rows are independent; their losses are added in the order of the rows.
#pragma once

#include <cmath>
#include <cstdint>

#include <cupola/core/finite.hpp>
#include <cupola/device/host.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <class Targets>
class SoftmaxCrossEntropy<Host, float, Targets> {
    using Target = typename Targets::Target;

public:
    explicit SoftmaxCrossEntropy(const CrossEntropySettings& settings) : settings_(settings) {}
    SoftmaxCrossEntropy(std::int64_t classes, float label_smoothing)
        : SoftmaxCrossEntropy(CrossEntropySettings{.classes = classes, .label_smoothing = label_smoothing}) {}

    /// The rows of `batch` samples; `gradient` is written if it is not null.
    LossResult forward(HostContext& context, const float* logits, const Target* targets, std::int64_t batch,
                       float* gradient) const {
        LossReport report = impl::no_loss;
        queue(context, logits, targets, batch, gradient, &report);
        return result_of(report);
    }
    /// The same for a step: an invalid target is reported, and the gradient is then not written.
    void queue(HostContext& context, const float* logits, const Target* targets, std::int64_t batch, float* gradient,
               LossReport* report) const;
    [[nodiscard]] LossResult result_of(const LossReport& report) const {
        return impl::result_of<Targets>(report, settings_);
    }

private:
    [[nodiscard]] Targets targets_of(const Target* targets) const {
        if constexpr (requires { Targets(settings_, targets); }) {
            return Targets(settings_, targets);
        } else {
            return Targets(settings_, targets, settings_.class_weights.data());
        }
    }
    /// The loss of a row, and whether the prediction is correct.
    static double row(const Targets& targets, const float* z, std::int64_t n, double fraction, float* gradient,
                      bool& correct);

    CrossEntropySettings settings_;
};

template <class Targets>
void SoftmaxCrossEntropy<Host, float, Targets>::queue(HostContext& context, const float* logits, const Target* targets,
                                                      std::int64_t batch, float* gradient, LossReport* report) const {
    const Targets of_rows = targets_of(targets);
    const std::int64_t rows = batch * settings_.positions;
    LossReport sum = impl::no_loss;
    for (std::int64_t n = 0; n < rows; ++n) {
        if (of_rows.valid(n)) continue;
        sum.sum = impl::not_a_number<double>();
        impl::set_bad_target(sum, of_rows, n);
        *report = sum;
        return;
    }
    constexpr std::int64_t rows_per_round = 512;
    double losses[rows_per_round];
    bool correct[rows_per_round];
    const double fraction = 1.0 / static_cast<double>(rows);
    for (std::int64_t first = 0; first < rows; first += rows_per_round) {
        const std::int64_t here = std::min(rows_per_round, rows - first);
        constexpr std::int64_t rows_per_task = 16;
        parallel_for(context, (here + rows_per_task - 1) / rows_per_task, [&](std::int64_t task) {
            const std::int64_t end = std::min(here, (task + 1) * rows_per_task);
            for (std::int64_t i = task * rows_per_task; i < end; ++i) {
                const std::int64_t n = first + i, at = n * settings_.classes;
                losses[i] =
                    row(of_rows, logits + at, n, fraction, gradient == nullptr ? nullptr : gradient + at, correct[i]);
            }
        });
        for (std::int64_t i = 0; i < here; ++i) {
            sum.sum += losses[i];
            sum.correct += correct[i] ? 1 : 0;
            sum.weight += of_rows.weight(first + i);
            sum.predictions += of_rows.ignored(first + i) ? 0 : 1;
        }
    }
    sum.sum /= static_cast<double>(settings_.positions);
    sum.weight /= static_cast<double>(settings_.positions);
    *report = sum;
}

template <class Targets>
double SoftmaxCrossEntropy<Host, float, Targets>::row(const Targets& targets, const float* z, std::int64_t n,
                                                      double fraction, float* gradient, bool& correct) {
    const std::int64_t classes = targets.classes;
    if (targets.ignored(n)) {
        correct = false;
        if (gradient != nullptr) std::fill(gradient, gradient + classes, 0.0F);
        return 0;
    }
    std::int64_t top = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
        if (z[c] > z[top]) top = c;
    }
    // Uses each logit's difference from the largest: in a sum with logits above 1e15, log(total) would be lost.
    const float largest = z[top];
    const auto below = [&](std::int64_t c) { return static_cast<double>(largest) - static_cast<double>(z[c]); };
    double total = 0, terms = 0, sum_of_targets = targets.total(n);
    for (std::int64_t c = 0; c < classes; ++c) {
        total += std::exp(static_cast<double>(z[c] - largest));
        terms += targets.term(n, c, below(c));
        if constexpr (Targets::sums_targets) sum_of_targets += targets.target(n, c);
    }
    const double log_total = std::log(total);
    const std::int64_t label = targets.label(n);
    correct = top == label && !impl::is_nan(log_total);  // if a logit is NaN, none is the largest
    if (gradient != nullptr) {
        for (std::int64_t c = 0; c < classes; ++c) {
            const double p = std::exp(-below(c) - log_total);
            gradient[c] = static_cast<float>((sum_of_targets * p - targets.target(n, c)) * fraction);
        }
    }
    return targets.loss(n, log_total, terms, sum_of_targets, below(label));
}

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
