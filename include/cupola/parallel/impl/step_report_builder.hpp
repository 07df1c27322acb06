// SPDX-License-Identifier: Apache-2.0
//
// StepReportBuilder: the report of a step while it is summed up, replica by replica.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/fixed_array.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/loss/loss_collection.hpp>
#include <cupola/parallel/impl/step_functions.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

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
    }

    [[nodiscard]] const StepReport& report() const { return report_; }
    [[nodiscard]] ReplicaReport& of(int replica) { return report_.replicas[static_cast<std::size_t>(replica)]; }

    void begin(int replica) {
        ReplicaReport& report = of(replica);
        report.samples = report.correct = report.predictions = 0;
        report.total = report.weight = 0;
        for (LossPart& part : report.parts) part.value = 0;
    }

    /// Divides a replica's sums by its weight, and adds the loss of each regularised parameter.
    void complete(int replica, std::int64_t samples, std::span<const double> regularization) {
        ReplicaReport& report = of(replica);
        report.samples = samples;
        for (std::size_t k = 0; k < losses_; ++k) {
            if (report.weight > 0) report.parts[k].value /= report.weight;
            report.total += report.parts[k].value;
        }
        for (std::size_t i = 0; i < part_of_.size(); ++i) {
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
            report_.loss += replica.total * replica.weight;
        }
        // If there are no samples here, all of them may be in another process.
        if (report_.weight > 0) report_.loss /= report_.weight;
    }

private:
    StepReport report_;
    /// The parts of the data.
    std::size_t losses_ = 0;
    /// For each regularised parameter, the part of the loss that it is added to.
    FixedArray<std::size_t> part_of_;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
