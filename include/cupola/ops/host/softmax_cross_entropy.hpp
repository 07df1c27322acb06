// SPDX-License-Identifier: Apache-2.0
//
// Softmax cross-entropy on `Host`. Samples are independent; their losses are added in sample order.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <cupola/device/host.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
class SoftmaxCrossEntropy<Host, float> {
public:
    SoftmaxCrossEntropy(std::int64_t classes, float smoothing) : classes_(classes), smoothing_(smoothing) {}

    /// `batch` rows of logits; `gradient` is written if it is not null.
    LossResult forward(HostContext& context, const float* logits, const std::int32_t* labels, std::int64_t batch,
                       float* gradient) const;
    /// The same for a step: an invalid label is reported, and the gradient is then not written.
    void queue(HostContext& context, const float* logits, const std::int32_t* labels, std::int64_t batch,
               float* gradient, LossReport* report) const;
    [[nodiscard]] LossResult result_of(const LossReport& report) const { return impl::result_of(report, classes_); }

private:
    /// The first sample whose label is not a valid class; -1 if there is none.
    [[nodiscard]] std::int64_t bad_sample(const std::int32_t* labels, std::int64_t batch) const;
    double sample(const float* z, std::int32_t label, std::int64_t batch, float* gradient, bool& correct) const;

    std::int64_t classes_;
    float smoothing_;
};

#ifndef CUPOLA_OPS

CUPOLA_INLINE LossResult SoftmaxCrossEntropy<Host, float>::forward(HostContext& context, const float* logits,
                                                                   const std::int32_t* labels, std::int64_t batch,
                                                                   float* gradient) const {
    if (const std::int64_t bad = bad_sample(labels, batch); bad >= 0) {
        LossReport report = impl::no_loss;
        report.bad_target = bad;
        report.bad_value = labels[bad];
        return result_of(report);  // throws
    }
    constexpr std::int64_t samples_per_round = 512;
    double losses[samples_per_round];
    bool correct[samples_per_round];
    LossResult result{.sum = 0, .correct = 0, .weight = static_cast<double>(batch), .predictions = batch};
    for (std::int64_t first = 0; first < batch; first += samples_per_round) {
        const std::int64_t here = std::min(samples_per_round, batch - first);
        constexpr std::int64_t samples_per_task = 16;
        parallel_for(context, (here + samples_per_task - 1) / samples_per_task, [&](std::int64_t task) {
            const std::int64_t end = std::min(here, (task + 1) * samples_per_task);
            for (std::int64_t i = task * samples_per_task; i < end; ++i) {
                const std::int64_t n = first + i;
                losses[i] = sample(logits + n * classes_, labels[n], batch,
                                   gradient == nullptr ? nullptr : gradient + n * classes_, correct[i]);
            }
        });
        for (std::int64_t i = 0; i < here; ++i) {
            result.sum += losses[i];
            result.correct += correct[i] ? 1 : 0;
        }
    }
    return result;
}

CUPOLA_INLINE void SoftmaxCrossEntropy<Host, float>::queue(HostContext& context, const float* logits,
                                                           const std::int32_t* labels, std::int64_t batch,
                                                           float* gradient, LossReport* report) const {
    if (const std::int64_t bad = bad_sample(labels, batch); bad >= 0) {
        *report = impl::no_loss;
        report->sum = std::numeric_limits<double>::quiet_NaN();
        report->bad_target = bad;
        report->bad_value = labels[bad];
        return;
    }
    const LossResult result = forward(context, logits, labels, batch, gradient);
    *report = impl::no_loss;
    report->sum = result.sum;
    report->correct = result.correct;
    report->weight = result.weight;
    report->predictions = result.predictions;
}

CUPOLA_INLINE std::int64_t SoftmaxCrossEntropy<Host, float>::bad_sample(const std::int32_t* labels,
                                                                        std::int64_t batch) const {
    for (std::int64_t n = 0; n < batch; ++n) {
        if (labels[n] < 0 || labels[n] >= classes_) return n;
    }
    return -1;
}

CUPOLA_INLINE double SoftmaxCrossEntropy<Host, float>::sample(const float* z, std::int32_t label, std::int64_t batch,
                                                              float* gradient, bool& correct) const {
    std::int64_t top = 0;
    for (std::int64_t c = 0; c < classes_; ++c) {
        if (z[c] > z[top]) top = c;
    }
    // The difference of each logit from the largest: log(total) is lost in a sum with logits above 1e15.
    const float largest = z[top];
    const auto below = [&](std::int64_t c) { return static_cast<double>(largest) - static_cast<double>(z[c]); };
    double total = 0, mean_below = 0;
    for (std::int64_t c = 0; c < classes_; ++c) {
        total += std::exp(static_cast<double>(z[c] - largest));
        mean_below += below(c);
    }
    mean_below /= static_cast<double>(classes_);
    const double log_total = std::log(total);
    correct = top == label && !std::isnan(log_total);  // if a logit is NaN, none is the largest
    if (gradient != nullptr) {
        const double fraction = 1.0 / static_cast<double>(batch);
        const double spread = static_cast<double>(smoothing_) / static_cast<double>(classes_);
        for (std::int64_t c = 0; c < classes_; ++c) {
            const double p = std::exp(-below(c) - log_total);
            const double q = (c == label ? 1.0 - static_cast<double>(smoothing_) : 0.0) + spread;
            gradient[c] = static_cast<float>((p - q) * fraction);
        }
    }
    const double smoothing = static_cast<double>(smoothing_);
    return log_total + ((1.0 - smoothing) * below(label) + smoothing * mean_below);
}

#endif

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
