// SPDX-License-Identifier: Apache-2.0
//
// The report of a step: every part of the loss by name, for each replica.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/abi.hpp>
#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// One part of a replica's loss.
struct LossPart {
    std::string name;
    double value = 0;
};

/// One replica's part of the report.
struct ReplicaReport {
    std::int64_t samples = 0;
    /// The sum of the samples' weights; the number of samples if the loss has no weights.
    double weight = 0;
    /// The loss of the data, which is the mean over the replica's samples by their weights (unweighted if all weights
    /// are 0), then the regularisers' losses; `total` is their sum.
    std::vector<LossPart> parts;
    double total = 0;
    /// The number of predictions whose largest logit is that of the label's class, and the number of all predictions;
    /// both are 0 for a loss whose targets are not classes.
    std::int64_t correct = 0, predictions = 0;
    /// In an asynchronous training: the replica that has computed this batch, and the exchanges of other replicas with
    /// the centre between that replica's last exchange and its one with this batch; -1 if it had none.
    int replica = -1;
    std::int64_t staleness = -1;
};

struct StepReport {
    /// The number of the step, from 0.
    std::int64_t step = 0;
    std::int64_t samples = 0;
    /// The sum of the replicas' weights.
    double weight = 0;
    double learning_rate = 0;
    /// The loss scale of this step; 1 if the precision needs none.
    double loss_scale = 1;
    /// Whether the step was skipped. Either its gradient was not finite, and it changed only a dynamic loss scale; its
    /// loss may not be finite either. Or no sample counted (TrainingOptions::skip_steps_without_labels), and it changed
    /// nothing; `weight` and `loss` are 0 then.
    bool skipped = false;
    /// The number of skipped steps up to this one.
    std::int64_t skipped_steps = 0;
    /// The sum of the losses of all samples divided by the sum of their weights, plus the regularisers' losses,
    /// averaged over the replicas by their weights. The averaged gradient is its gradient.
    double loss = 0;
    std::vector<ReplicaReport> replicas;
    /// The parts of `loss`, in the order of a replica's.
    std::vector<LossPart> parts{};
};

/// The parameters with which a network is run: the trained ones or their moving averages.
enum class Weights : std::uint8_t { trained, averages };

[[nodiscard]] constexpr const char* to_string(Weights weights) {
    return weights == Weights::averages ? "moving averages" : "trained parameters";
}

/// The loss of one output in an evaluation: the mean over the samples, without its factor.
struct OutputEvaluation {
    std::string name{};
    double loss = 0;
    std::int64_t correct = 0, predictions = 0;

    /// The fraction of the predictions that are correct; 0 without predictions.
    [[nodiscard]] double accuracy() const {
        return predictions == 0 ? 0.0 : static_cast<double>(correct) / static_cast<double>(predictions);
    }
};

/// One result of a metric.
struct MetricValue {
    std::string name;
    double value = 0;
    bool larger_is_better = true;
};

/// The result of an evaluation; `loss` is the mean over the samples by their weights.
struct Evaluation {
    std::int64_t samples = 0, correct = 0;
    double loss = 0;
    /// As in ReplicaReport.
    std::int64_t predictions = 0;
    double weight = 0;
    /// The losses of the data by name, whose weighted sum is `loss`. If there are several, `correct` and `predictions`
    /// are those of the first that counts predictions.
    std::vector<OutputEvaluation> losses{};
    /// The results of the metrics, in the order of the metrics.
    std::vector<MetricValue> metrics{};
    /// Whether the accuracy is that of the whole network: a single loss, which counts predictions.
    [[nodiscard]] bool has_accuracy() const { return predictions > 0 && losses.size() <= 1; }
    /// The value with that name. Throws InvalidArgument if there is none.
    [[nodiscard]] double metric(std::string_view name) const;
    /// The fraction of the predictions that are correct; 0 without predictions.
    [[nodiscard]] double accuracy() const {
        return predictions == 0 ? 0.0 : static_cast<double>(correct) / static_cast<double>(predictions);
    }
};

namespace impl {

/// The value with that name, or null.
[[nodiscard]] inline const MetricValue* find_metric(const std::vector<MetricValue>& values, std::string_view name) {
    for (const MetricValue& each : values) {
        if (each.name == name) return &each;
    }
    return nullptr;
}

/// The value with that name. Throws InvalidArgument otherwise; the message names `whole` and lists the available names.
[[nodiscard, gnu::cold]] inline double require_metric(const std::vector<MetricValue>& values, std::string_view name,
                                                      std::string_view whole) {
    const MetricValue* const found = find_metric(values, name);
    if (found != nullptr) return found->value;
    std::string names;
    for (const MetricValue& each : values) names += text(names.empty() ? ", but: " : ", ", each.name);
    throw InvalidArgument(text(whole, " has no metric ", name, names.empty() ? ", and no others" : names));
}

}  // namespace impl

inline double Evaluation::metric(std::string_view name) const {
    return impl::require_metric(metrics, name, "this evaluation");
}

}}  // namespace cupola::CUPOLA_ABI
