// SPDX-License-Identifier: Apache-2.0
//
// SummaryWriter: the summaries of TensorFlow's CIFAR-10 tutorial for TensorBoard, with its tags but without the prefix
// of the tower:
//
//   scalars      total_loss, cross_entropy, local3/weight_loss, ...: smoothed, and not smoothed as "total_loss (raw)";
//                with several replicas "total_loss (replica 0)"; learning_rate, examples/sec, Precision @ 1 (training
//                batch); loss_scale and skipped_steps, if the loss is scaled; of an asynchronous training "staleness
//                (replica 0)" and "largest staleness (replica 0)", over the exchanges since the last summary
//   histograms   conv1/weights, conv1/biases, their averaged gradients conv1/weights/gradients, and conv1/activations
//                of each named layer with parameters: after its activation function, for the first replica's batch
//   images       images/image/0, ...: the first samples as the network sees them; conv1/filters
//   text         hyper_parameters and network, once, at the beginning of the run
//
// A validation of fit() is written as validation/loss, validation/accuracy and so on, with the names of the metrics.
// The scalar conv1/sparsity is the fraction of zeros among the activations; conv1/weights/not_finite is written only if
// there are such values. The class is both an inspector and a callback: `inspect` collects values on a device's thread,
// `on_step` adds the scalars and writes all of them as one event. A skipped step is not inspected: it has only scalars.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/io/summary_sink.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/train/history.hpp>
#include <cupola/train/impl/summary_names.hpp>
#include <cupola/train/impl/summary_text.hpp>
#include <cupola/train/impl/summary_values.hpp>
#include <cupola/train/loss_averages.hpp>
#include <cupola/train/run.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct SummaryOptions {
    /// The number of steps between two summaries, the first at step 0; 0 for no summaries.
    std::int64_t every = 100;
    /// The number of samples of a batch that are written as images.
    std::int64_t images = 3;
    /// The names and values of the hyperparameters, written as a table.
    std::vector<std::pair<std::string, std::string>> hyper_parameters{};
    /// A text such as `summary<Net>(batch)`.
    std::string network{};
    LossAveragesOptions averages{};
};

class SummaryWriter {
public:
    /// `layers` are the network's, `Net::layers`. The sink must outlive the writer.
    SummaryWriter(SummarySink& sink, std::span<const LayerInfo> layers, SummaryOptions options = {})
        : sink_(&sink), options_(std::move(options)), losses_(options_.averages), values_(layers) {
        require(options_.every >= 0, "a summary must be written every 0 (never) or more steps, not ", options_.every);
        require(options_.images >= 0, "the number of images of a summary must be 0 or more, not ", options_.images);
    }

    /// Whether `step` is to be inspected.
    [[nodiscard]] bool should_inspect(std::int64_t step) const {
        return options_.every > 0 && step % options_.every == 0;
    }

    /// `inspection` has step(), parameters(), averaged_gradient(), batch() and for_each_activation(visit(layer,
    /// values)).
    template <class Inspection>
    void inspect(const Inspection& inspection) {
        const double begun = monotonic_seconds();
        values_.clear();
        values_.add_parameters(inspection.parameters(), "");
        values_.add_parameters(inspection.averaged_gradient(), "/gradients");
        values_.add_filters(inspection.parameters());
        values_.add_images(inspection.batch(), options_.images);
        inspection.for_each_activation([&](auto layer, std::span<const float> values) {
            values_.add_activation(static_cast<std::size_t>(layer), values);
        });
        seconds_ += monotonic_seconds() - begun;
    }

    void on_begin(Run& run) {
        last_ = run.started;
        values_.clear();
        if (options_.every > 0) begin(run.first_step);
    }

    void on_step(const StepReport& report, Run&) {
        losses_.update(report);
        samples_ += report.samples;
        add_staleness(report);
        if (should_inspect(report.step)) write(report);
    }

    /// Writes the validation of a record: validation/loss, and validation/<name> of each metric, such as
    /// "validation/kind/accuracy", at the number of the record's last step.
    [[gnu::cold]] void on_record(const HistoryRecord& record, Run&) {
        if (options_.every == 0 || !record.validation_loss) return;
        StepSummary summary;
        summary.scalars.push_back({"validation/loss", *record.validation_loss});
        for (const MetricValue& each : record.metrics)
            summary.scalars.push_back({"validation/" + each.name, each.value});
        if (record.epoch) summary.scalars.push_back({"epoch", static_cast<double>(*record.epoch)});
        sink_->write(record.step - 1, summary);
    }

    /// The smoothed losses; checkpoints store them, so that they continue in a resumed run.
    [[nodiscard]] LossAverages& losses() { return losses_; }
    /// The total time of all summaries so far in seconds.
    [[nodiscard]] double seconds() const { return seconds_; }

private:
    /// The staleness of the exchanges of a replica since the last summary.
    struct Staleness {
        std::int64_t exchanges = 0, sum = 0, largest = 0;
    };

    void add_staleness(const StepReport& report) {
        for (const ReplicaReport& each : report.replicas) {
            if (each.staleness < 0) continue;
            staleness_.resize(report.replicas.size());
            Staleness& of = staleness_[static_cast<std::size_t>(each.replica)];
            ++of.exchanges;
            of.sum += each.staleness;
            of.largest = std::max(of.largest, each.staleness);
        }
    }

    [[gnu::cold]] void write_staleness() {
        for (std::size_t r = 0; r < staleness_.size(); ++r) {
            const Staleness of = std::exchange(staleness_[r], {});
            if (of.exchanges == 0) continue;
            values_.add_scalar(text("staleness (replica ", r, ")"),
                               static_cast<double>(of.sum) / static_cast<double>(of.exchanges));
            values_.add_scalar(text("largest staleness (replica ", r, ")"), static_cast<double>(of.largest));
        }
    }

    [[gnu::cold]] void begin(std::int64_t step) {
        StepSummary start;
        if (!options_.hyper_parameters.empty()) {
            start.texts.push_back({"hyper_parameters", impl::markdown_table(options_.hyper_parameters)});
        }
        if (!options_.network.empty()) start.texts.push_back({"network", text("```\n", options_.network, "```\n")});
        sink_->start(step);
        sink_->write(step, start);
    }

    [[gnu::cold]] void write(const StepReport& report) {
        const double begun = monotonic_seconds();
        const auto add_loss = [&](const LossAverages::Entry& loss) {
            const std::string tag = impl::loss_tag(loss.name);
            values_.add_scalar(tag, loss.smoothed);
            values_.add_scalar(text(tag, " (raw)"), loss.raw);
        };
        add_loss(losses_.total());
        for (const LossAverages::Entry& part : losses_.parts()) add_loss(part);
        std::int64_t correct = 0, predictions = 0;
        for (std::size_t r = 0; r < report.replicas.size(); ++r) {
            correct += report.replicas[r].correct;
            predictions += report.replicas[r].predictions;
            if (report.replicas.size() > 1)
                values_.add_scalar(text("total_loss (replica ", r, ")"), report.replicas[r].total);
        }
        values_.add_scalar("learning_rate", report.learning_rate);
        if (report.loss_scale != 1 || report.skipped_steps > 0) {
            values_.add_scalar("loss_scale", report.loss_scale);
            values_.add_scalar("skipped_steps", static_cast<double>(report.skipped_steps));
        }
        write_staleness();
        values_.add_scalar("examples/sec", static_cast<double>(samples_) / (begun - last_));
        if (predictions > 0) {
            values_.add_scalar("Precision @ 1 (training batch)",
                               static_cast<double>(correct) / static_cast<double>(predictions));
        }
        sink_->write(report.step, values_.summary());
        values_.clear();
        last_ = begun;
        samples_ = 0;
        seconds_ += monotonic_seconds() - begun;
    }

    SummarySink* sink_;
    SummaryOptions options_;
    LossAverages losses_;
    impl::SummaryValues values_;
    double last_ = 0, seconds_ = 0;
    std::int64_t samples_ = 0;
    /// By replica; empty unless they train asynchronously.
    std::vector<Staleness> staleness_;
};

}}  // namespace cupola::CUPOLA_ABI
