// SPDX-License-Identifier: Apache-2.0
//
// StepReports: the reports of the steps in flight, made from the copies of the devices' status.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <cupola/core/finite.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/core/span_of.hpp>
#include <cupola/loss/loss_collection.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A replica's part is written by that replica's thread: begin(), add to of(), complete(). Then one thread calls
/// finish().
class StepReportBuilder {
public:
    StepReportBuilder() = default;
    /// Parameters that are regularised under one name are one part of the loss.
    [[gnu::cold]] StepReportBuilder(int replicas, std::span<const LossOfOutput> losses,
                                    std::span<const RegularizedParameter> regularized)
        : losses_(losses.size()), part_of_(regularized.size()) {
        std::size_t parts = losses_;
        std::string_view last = losses[losses.size() - 1].entry.name;
        for (std::size_t i = 0; i < regularized.size(); ++i) {
            if (last != regularized[i].name) ++parts;
            last = regularized[i].name;
            part_of_[i] = parts - 1;
        }
        report_.replicas = std::vector<ReplicaReport>(static_cast<std::size_t>(replicas));
        for (ReplicaReport& replica : report_.replicas) {
            replica.parts = std::vector<LossPart>(parts);
            for (std::size_t i = 0; i < part_of_.size(); ++i) replica.parts[part_of_[i]].name = regularized[i].name;
            for (std::size_t k = 0; k < losses_; ++k) replica.parts[k].name = losses[k].entry.name;
        }
        report_.parts = report_.replicas[0].parts;
        sums_ = FixedArray<double>(report_.replicas.size() * parts);
    }

    [[nodiscard]] const StepReport& report() const { return report_; }
    [[nodiscard]] ReplicaReport& of(int replica) { return report_.replicas[static_cast<std::size_t>(replica)]; }

    void begin(int replica) {
        ReplicaReport& report = of(replica);
        report.samples = report.correct = report.predictions = 0;
        report.total = report.weight = 0;
        for (LossPart& part : report.parts) part.value = 0;
        std::ranges::fill(sums_of(replica), 0.0);
    }

    /// Divides a replica's sums by its weight, and adds the loss of each regularised parameter. The sums are kept for
    /// the step's loss: the samples of a replica may have a loss although their labels have no weight, as label
    /// smoothing gives them one.
    void complete(int replica, std::int64_t samples, std::span<const double> regularization) {
        ReplicaReport& report = of(replica);
        report.samples = samples;
        const std::span<double> sums = sums_of(replica);
        for (std::size_t k = 0; k < losses_; ++k) {
            sums[k] = report.parts[k].value;
            report.parts[k].value /= report.weight > 0 ? report.weight : static_cast<double>(samples);
            report.total += report.parts[k].value;
        }
        for (std::size_t i = 0; i < part_of_.size(); ++i) {
            sums[part_of_[i]] += report.weight * regularization[i];
            report.parts[part_of_[i]].value += regularization[i];
            report.total += regularization[i];
        }
    }

    /// `before` and `after` are the loss scale's states.
    void finish(std::int64_t step, double learning_rate, const LossScaleState& before, const LossScaleState& after) {
        report_.step = step;
        report_.learning_rate = learning_rate;
        report_.loss_scale = static_cast<double>(before.scale);
        report_.skipped = after.skipped_steps != before.skipped_steps;
        report_.skipped_steps = after.skipped_steps;
        report_.samples = 0;
        report_.loss = report_.weight = 0;
        for (const ReplicaReport& replica : report_.replicas) {
            report_.samples += replica.samples;
            report_.weight += replica.weight;
        }
        for (std::size_t p = 0; p < report_.parts.size(); ++p) {
            double sum = 0;
            for (std::size_t r = 0; r < report_.replicas.size(); ++r) sum += sums_[r * report_.parts.size() + p];
            // If there are no samples here, all of them may be in another process.
            report_.parts[p].value = report_.weight > 0 ? sum / report_.weight : 0;
            report_.loss += report_.parts[p].value;
        }
    }

private:
    [[nodiscard]] std::span<double> sums_of(int replica) {
        const std::size_t parts = report_.parts.size();
        return span_of(sums_.data() + static_cast<std::size_t>(replica) * parts, parts);
    }

    StepReport report_;
    /// For each replica and part, the sum of its samples' losses; of a regulariser its loss times the replica's weight.
    FixedArray<double> sums_;
    /// The parts of the data.
    std::size_t losses_ = 0;
    /// For each regularised parameter, the part of the loss that it is added to.
    FixedArray<std::size_t> part_of_;
};

template <class D, class T>
class StepReports {
public:
    [[gnu::cold]] StepReports(Replicas<D, T>& replicas, Peers& peers, const SampleCounts& counts,
                              const StepFunctions<D>& functions, std::span<const RegularizedParameter> regularized);
    StepReports(const StepReports&) = delete;
    StepReports& operator=(const StepReports&) = delete;
    ~StepReports();

    [[nodiscard]] const StepReport& of(std::int64_t step) { return builder(step).report(); }
    [[nodiscard]] const ReplicaReport& of(std::int64_t step, int replica) { return builder(step).of(replica); }
    [[nodiscard]] ReplicaReport& replica_of(std::int64_t step, int replica) { return builder(step).of(replica); }
    void finish(std::int64_t step, double learning_rate, const LossScaleState& before, const LossScaleState& after) {
        builder(step).finish(step, learning_rate, before, after);
    }

    /// Makes the replicas' reports of a step that is complete on every device. Returns false if a loss is not finite,
    /// or if a device has found that its step is not healthy.
    bool read(std::int64_t step);
    /// Whether every device is healthy after a step that is complete.
    [[nodiscard]] bool healthy(std::int64_t step);

    /// The first of a replica's batches whose loss is not finite; -1 if there is none. Throws InvalidArgument for a
    /// label that is not a class, and for an id that is out of range. Defined in step/failure.hpp.
    [[nodiscard, gnu::cold]] int part_not_finite(std::int64_t step, int replica);

private:
    [[nodiscard]] StepReportBuilder& builder(std::int64_t step) {
        return builders_[static_cast<std::size_t>(step) % builders_.size()];
    }
    /// The report of loss `k` of a batch.
    [[nodiscard]] const LossReport& landed(std::int64_t step, int part, int replica, std::size_t k);
    /// Throws InvalidArgument if the batch has an id that is out of range.
    [[gnu::cold]] void require_ids(std::int64_t step, int part, int replica);

    bool read_replica(std::int64_t step, int replica);

    Replicas<D, T>& replicas_;
    BatchResults<D, T> results_;
    const SampleCounts& counts_;
    const StepFunctions<D>& functions_;
    std::span<const RegularizedParameter> regularized_;
    FixedArray<double> regularization_;
    FixedArray<StepReportBuilder> builders_;
};

template <class D, class T>
StepReports<D, T>::StepReports(Replicas<D, T>& replicas, Peers& peers, const SampleCounts& counts,
                               const StepFunctions<D>& functions, std::span<const RegularizedParameter> regularized)
    : replicas_(replicas),
      results_(replicas, peers),
      counts_(counts),
      functions_(functions),
      regularized_(regularized),
      regularization_(regularized.size()),
      builders_(static_cast<std::size_t>(replicas.settings().steps_in_flight)) {
    for (StepReportBuilder& each : builders_)
        each = StepReportBuilder(replicas.placement().replicas(), functions.losses.span(), regularized);
}

template <class D, class T>
StepReports<D, T>::~StepReports() = default;

template <class D, class T>
bool StepReports<D, T>::read(std::int64_t step) {
    bool finite = true;
    for (int r = 0; r < replicas_.placement().replicas(); ++r) finite = read_replica(step, r) && finite;
    return finite && healthy(step);
}

template <class D, class T>
bool StepReports<D, T>::healthy(std::int64_t step) {
    bool all = true;
    for (auto& state : replicas_.devices()) all = all && state.landed(step).healthy != 0;
    return all;
}

template <class D, class T>
const LossReport& StepReports<D, T>::landed(std::int64_t step, int part, int replica, std::size_t k) {
    const BatchResult result = results_.of(step, replica, part);
    return functions_.sums_losses ? result.of_losses[k] : *result.report;
}

template <class D, class T>
bool StepReports<D, T>::read_replica(std::int64_t step, int replica) {
    builder(step).begin(replica);
    ReplicaReport& report = builder(step).of(replica);
    bool finite = true;
    for (int part = 0; part < replicas_.settings().gradient_accumulation_steps; ++part) {
        if (counts_.of(step, part, replica) == 0) continue;
        const LossReport& of_batch = *results_.of(step, replica, part).report;
        report.correct += of_batch.correct;
        report.predictions += of_batch.predictions;
        report.weight +=
            replicas_.settings().weighted ? of_batch.weight : static_cast<double>(counts_.of(step, part, replica));
        for (std::size_t k = 0; k < functions_.losses.size(); ++k)
            report.parts[k].value += functions_.losses[k].entry.factor * landed(step, part, replica, k).sum;
        finite = finite && is_finite(of_batch.sum);
    }
    // Every process has the same parameters, or the same centre.
    std::byte* const block =
        replicas_.at(replicas_.placement().is_here(replica) ? replicas_.placement().device_of(replica) : 0)
            .queue->landed(step);
    for (std::size_t i = 0; i < regularized_.size(); ++i)
        regularization_[i] = 0.5 * regularized_[i].coefficient * StatusLayout::regularization(block)[i];
    const std::int64_t samples = counts_.of_replica(step, replica);
    if (samples > 0) builder(step).complete(replica, samples, regularization_.span());
    return finite && is_finite(report.total) && !is_nan(report.weight) && report.weight >= 0;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
