// SPDX-License-Identifier: Apache-2.0
//
// StepReportBuilder: the report of a step while it is summed up, replica by replica.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/fixed_array.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/loss/loss_collection.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A replica's part is written by that replica's thread: begin(), add to of(), complete(). Then one thread calls finish().
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
        return std::span(sums_.data(), sums_.size()).subspan(static_cast<std::size_t>(replica) * parts, parts);
    }

    StepReport report_;
    /// For each replica and part, the sum of its samples' losses; of a regulariser its loss times the replica's weight.
    FixedArray<double> sums_;
    /// The parts of the data.
    std::size_t losses_ = 0;
    /// For each regularised parameter, the part of the loss that it is added to.
    FixedArray<std::size_t> part_of_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
