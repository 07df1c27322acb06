// SPDX-License-Identifier: Apache-2.0
//
// CheckpointEvery{training, directory, {.every = 1000}}: writes a checkpoint after every 1,000th step and one at the
// end of the run, however it ends (a signal, a loss that diverged), if the parameters are those of a complete step.
// Each contains the texts that describe the run (`info`) and its position in the data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <cupola/core/borrowed.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/number_from_chars.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/train/history.hpp>
#include <cupola/train/loss_averages.hpp>
#include <cupola/train/run.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct CheckpointOptions {
    /// The number of steps between two checkpoints; 0 for only the one at the end.
    std::int64_t every = 1000;
    /// The texts that describe the run. The entry `images_seen`, the position in the stream of samples, is added.
    CheckpointInfo info{};
    /// The smoothed losses of the log, which are stored too unless this is null; see `restore_losses`.
    const LossAverages* losses = nullptr;
    /// Adds entries about the progress of the run to each checkpoint. Must outlive the callback.
    Borrowed<FunctionRef<void(CheckpointInfo&)>> progress{};
};

/// The entries of a checkpoint's info that describe the progress of a run rather than its settings.
inline constexpr std::string_view images_seen_key = "images_seen", losses_key = "smoothed_losses";

namespace impl {

/// "cross_entropy=0.75 total_loss=1.5", with all digits of a double. The names of losses do not contain spaces.
[[nodiscard, gnu::cold]] inline std::string losses_text(const LossAverages& losses) {
    std::string result;
    for (const LossPart& part : losses.state()) {
        result += text(result.empty() ? "" : " ", part.name, '=', exact_text(part.value));
    }
    return result;
}

}  // namespace impl

/// Restores the smoothed losses that a checkpoint contains; if it has none, they start anew.
[[gnu::cold]] inline void restore_losses(const CheckpointInfo& info, LossAverages& losses) {
    const std::string* const kept = info.find(losses_key);
    if (kept == nullptr) return;
    std::vector<LossPart> parts;
    for (std::string_view rest = *kept; !rest.empty();) {
        const std::string_view part = rest.substr(0, rest.find(' '));
        rest.remove_prefix(std::min(rest.size(), part.size() + 1));
        const std::size_t sign = part.rfind('=');
        double value = 0;
        const bool number =
            sign != std::string_view::npos &&
            number_from_chars(part.data() + sign + 1, part.data() + part.size(), value).ec == std::errc();
        require<DataError>(number, "the checkpoint's ", losses_key, " '", part.substr(0, 64), "' has no number");
        parts.push_back({std::string(part.substr(0, sign)), value});
    }
    losses.restore(parts);
}

/// No metric: no best checkpoint is chosen.
struct NoMetric {
    std::optional<double> operator()() const { return {}; }
};

/// `Directory` has `save(layers, checkpoint)` and `save_best(layers, checkpoint, metric)`, as CheckpointDirectory does.
/// With several processes it is an AgreedCheckpoints, and the object is a callback on all of them. `metric()` is called
/// after a checkpoint is saved, because it may take long. If the process ends during the call, that checkpoint is not
/// considered as the best.
template <class Training, class Directory, class Metric = NoMetric>
class CheckpointEvery {
public:
    CheckpointEvery(Training& training, Directory& directory, CheckpointOptions options = {}, Metric metric = {})
        : training_(&training), directory_(&directory), options_(std::move(options)), metric_(std::move(metric)) {
        require(options_.every >= 0, "a checkpoint must be written every 0 (at the end only) or more steps, not ",
                options_.every);
    }

    /// Throws before the first step if the directory's best checkpoint is of another network.
    void on_begin(Run& run) {
        saved_ = run.first_step;
        options_.info.require_storable();
        if constexpr (requires { directory_->require_best_of(Training::NetworkType::layers); }) {
            directory_->require_best_of(Training::NetworkType::layers);
        }
    }

    /// The training is saved after these steps, so no later step may be queued ahead.
    [[nodiscard]] bool synchronize_after(std::int64_t step) const {
        return options_.every > 0 && (step + 1) % options_.every == 0;
    }

    /// A checkpoint that is due at the same step as a record of the history is written after it, so that it contains
    /// the record.
    void on_step(const StepReport& report, Run& run) {
        if (synchronize_after(report.step) && run.next_record != report.step + 1) save();
    }
    void on_record(const HistoryRecord& record, Run&) {
        const bool saved = saved_ == record.step, lacks_record = saved && options_.progress;
        if (lacks_record || (!saved && synchronize_after(record.step - 1))) save();
    }

    void on_end(Run&) {
        const bool wants = training_->step() != saved_ && training_->healthy();
        if constexpr (agrees) {
            if (directory_->all_save(wants, training_->step())) save();
        } else {
            if (wants) save();
        }
    }

    /// Saves the training as the best one and replaces the previous best. First saves it as a checkpoint, unless that
    /// of this step is already written, so that a resumed run knows of it.
    [[gnu::cold]] void save_best(double metric) {
        const Checkpoint checkpoint = agreed();
        if (saved_ != checkpoint.state.step) write(checkpoint);
        directory_->replace_best(Training::NetworkType::layers, checkpoint, metric);
    }

private:
    static constexpr bool agrees = requires(Directory& directory) { directory.all_save(true); };

    [[nodiscard, gnu::cold]] Checkpoint agreed() const {
        if constexpr (agrees) {
            return directory_->same_on_all([this] { return made(); }, training_->step());
        } else {
            return made();
        }
    }
    [[nodiscard, gnu::cold]] Checkpoint made() const {
        Checkpoint checkpoint{.state = training_->state(), .info = options_.info};
        const auto& options = training_->options;
        const std::int64_t images_per_step =
            options.batch_size * options.replicas * options.gradient_accumulation_steps;
        checkpoint.info.set(images_seen_key, text(checkpoint.state.step * images_per_step));
        if (options_.losses != nullptr) checkpoint.info.set(losses_key, impl::losses_text(*options_.losses));
        if (options_.progress) options_.progress(checkpoint.info);
        return checkpoint;
    }

    void write(const Checkpoint& checkpoint) {
        directory_->save(Training::NetworkType::layers, checkpoint);
        saved_ = checkpoint.state.step;
    }

    [[gnu::cold]] void save() {
        const Checkpoint checkpoint = agreed();
        write(checkpoint);
        if (const std::optional<double> metric = metric_()) {
            directory_->save_best(Training::NetworkType::layers, checkpoint, *metric);
        }
    }

    Training* training_;
    Directory* directory_;
    CheckpointOptions options_;
    Metric metric_;
    std::int64_t saved_ = -1;
};

}}  // namespace cupola::CUPOLA_ABI
