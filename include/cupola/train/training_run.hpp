// SPDX-License-Identifier: Apache-2.0
//
// TrainingRun: the parts of a training run other than its network and its data: the header that it prints, its log, a
// folder with checkpoints, log and TensorBoard's events, the resume of a stopped run, signals, the final result.
//
//   TrainingRun run({.folder = "run1", .resume = Resume::if_there, .max_steps = 10'000});
//   DataParallel<Net, CrossEntropy<10>, Sgd, ConcatMean, Host> training({.batch_size = 128, .seed = 1});
//   run.print_header(training);
//   return run.train(training, batches, test);     0, or 128 and the number of the signal that stopped it
//
// When the run has ended or was stopped, the folder contains:
//
//   model-<step>.safetensors     checkpoints (train/checkpoint_every.hpp); model-best.safetensors with `keep_best`
//   train.log                    the lines of the log, appended to
//   events.out.tfevents...       the summaries for TensorBoard, if `events` is given
//
// A checkpoint contains the description of its run (`info()`). A resumed run is compared with it: a run with other
// settings is rejected, and so is another machine if it would change the bits.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/device/device.hpp>
#include <cupola/io/checkpoint_directory.hpp>
#include <cupola/io/checkpoint_files.hpp>
#include <cupola/io/checkpoint_info.hpp>
#include <cupola/io/standard_output.hpp>
#include <cupola/io/summary_sink.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/data_parallel.hpp>
#include <cupola/train/checkpoint_every.hpp>
#include <cupola/train/evaluate.hpp>
#include <cupola/train/fit.hpp>
#include <cupola/train/impl/checkpoint_to_resume.hpp>
#include <cupola/train/impl/optional_callback.hpp>
#include <cupola/train/impl/run_folder.hpp>
#include <cupola/train/impl/run_lines.hpp>
#include <cupola/train/log_every.hpp>
#include <cupola/train/loss_averages.hpp>
#include <cupola/train/progress.hpp>
#include <cupola/train/stop_on_signal.hpp>
#include <cupola/train/summary_writer.hpp>
#include <cupola/train/training_run_options.hpp>

namespace cupola::inline CUPOLA_ABI {

/// For a run without test data.
struct NoTest {};

class TrainingRun {
public:
    /// Makes the folder and locks it before any computation. Throws DataError for a folder that another training uses, that
    /// cannot be written, or that is to be resumed and does not exist; InvalidArgument for options that need a folder.
    [[gnu::cold]] explicit TrainingRun(TrainingRunOptions options)
        : options_(std::move(options)), output_(options_.log.json, options_.log.file) {
        check_run_options(options_);
        if (!has_folder()) return;
        require<DataError>(!must_resume(options_) || !impl::is_missing(options_.folder), "the folder ", options_.folder,
                           " does not exist: there is nothing to resume from");
        if (options_.writes) {
            folder_.emplace(options_.folder, CheckpointDirectoryOptions{.keep = options_.keep_checkpoints,
                                                                        .keep_best = options_.keep_best});
        }
    }

    [[nodiscard]] const TrainingRunOptions& options() const { return options_; }
    [[nodiscard]] bool has_folder() const { return !options_.folder.empty(); }
    [[nodiscard]] const StandardOutput& output() const { return output_; }

    /// The description of the run in its checkpoints and in TensorBoard: the entries that are set before `train`, and those
    /// that `describe` adds. Runs that differ in the value of an entry are different runs.
    [[nodiscard]] CheckpointInfo& info() { return info_; }

    /// Adds the settings of the training that have no entry yet: batch_size, replicas, accumulation, seed, optimizer,
    /// learning_rate, averaging, bn_stats, moving_average, precision; also the device's properties that the bits depend on,
    /// and the number of `ranks` of a collective. `train` calls it too; a program calls it earlier to add its own entries
    /// after these, or to replace one.
    template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
    void describe(const DataParallel<Net, Loss, Optimizer, Averaging, D, Statistics>& training) {
        const auto& options = training.options;
        add("batch_size", text(options.batch_size));
        add("replicas", text(training.all_replicas()));
        add("accumulation", text(options.gradient_accumulation_steps));
        add("seed", text(options.seed));
        add("optimizer", options.optimizer.description());
        add("learning_rate", learning_rate_description_of(options.optimizer));
        if (!options.groups.empty()) add("parameter_groups", description_of(options.groups));
        add("averaging", std::string(averaging_of(options)));
        if constexpr (requires { options.statistics.description(); }) {
            add("bn_stats", std::string(options.statistics.description()));
        } else {
            add("bn_stats", std::string(Statistics::name));
        }
        add("moving_average", options.moving_average.description());
        add("precision", std::string(Net::Precision::name));
        if constexpr (requires { D::describe(options.device, Ignored{}); }) {
            D::describe(options.device,
                        [this](std::string_view key, std::string value) { add(key, std::move(value)); });
        }
        // A collective adds the ranks in its own order; a function of the rows gives the same sum for any number of devices.
        if constexpr (AveragesBuckets<Averaging, D>) {
            add(machine_property::ranks, text(options.devices * (training.all_replicas() / options.replicas)));
        } else if constexpr (SpansProcesses<Averaging>) {
            if (adds_sums(options.averaging) && training.processes() != nullptr)
                add(machine_property::ranks, text(training.processes()->count()));
        }
    }

    /// Prints a description of the training: the network as a table, the memory, the replicas and their devices, the
    /// optimiser, the schedule. `where` describes the devices, "2 Host devices" if it is empty; `placement` adds a line per
    /// layer with the device of each replica.
    template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
    void print_header(const DataParallel<Net, Loss, Optimizer, Averaging, D, Statistics>& training,
                      const std::string& where = {}, bool placement = false) const {
        const auto& options = training.options;
        output_.print_message(summary<Net>(options.batch_size));
        output_.print_message(to_string(training.memory()));
        output_.print_message(
            text("replicas: ", options.replicas, " of ", options.batch_size, ' ', samples_of<Net>(),
                 " per step, averaged by ", averaging_of(options), ", on ",
                 !where.empty() ? where : text(options.devices, ' ', D::name, " device", plural(options.devices))));
        if (placement) {
            std::string place(D::name);
            std::ranges::transform(place, place.begin(), [](unsigned char c) { return std::tolower(c); });
            constexpr bool by_slices = !AveragesBuckets<Averaging, D>;
            output_.print_message(
                impl::placement_lines(Net::layers, options.replicas, options.devices, place,
                                      text(averaging_of(options), by_slices ? ", each device its slice of the gradient"
                                                                            : ", the whole gradient on each device")));
        }
        output_.print_message(text("optimiser: ", options.optimizer.description()));
        output_.print_message(text("learning rate: ", learning_rate_description_of(options.optimizer)));
        if (!options.groups.empty()) output_.print_message("parameter groups: " + description_of(options.groups));
    }

    /// Resumes from the folder's checkpoint according to `resume`, trains up to `max_steps` steps with the log, the summaries
    /// and the checkpoints, and prints the accuracy, or the loss where it counts no predictions or the network has several outputs, on `test` (batches for `evaluate`, or NoTest{}), of the parameters and of
    /// their moving averages. `callbacks` are called after the log's and before the folder's. SIGINT and SIGTERM end the
    /// training after the step. Returns the exit status of a program: 0, or 128 plus the signal's number.
    template <class Training, class Batches, class Test, class... Callbacks>
    int train(Training& training, Batches&& batches, Test&& test, Callbacks&&... callbacks) {
        using Net = typename Training::NetworkType;
        constexpr bool tests = !std::is_same_v<std::remove_cvref_t<Test>, NoTest>;
        require(tests || !options_.keep_best, options_.names.keep_best,
                " needs test data: the best checkpoint is the one with the best result on them");
        describe(training);
        if constexpr (requires { training.require_same_on_processes(info_.entries()); }) {
            CheckpointInfo compared = info_;
            compared.set(options_.names.max_steps, text(options_.max_steps));
            training.require_same_on_processes(compared.entries());
        }
        if (has_folder()) resume(training);
        if (training.step() >= options_.max_steps) {
            output_.print_message(text("nothing to train: ", training.step(), " steps are made, and ",
                                       options_.names.max_steps, " is ", options_.max_steps));
        }
        const std::int64_t steps = std::max<std::int64_t>(0, options_.max_steps - training.step());
        const bool averages = training.options.moving_average.on();
        const auto metric = [&]() -> std::optional<double> {
            if constexpr (tests) {
                if (options_.keep_best) {
                    const Evaluation result = evaluate(training, test, averages ? Weights::averages : Weights::trained);
                    return result.has_accuracy() ? result.accuracy() : -result.loss;
                }
            }
            return {};
        };

        LogEvery to_output(options_.log);
        to_output.losses() = losses_;
        impl::OptionalCallback<LogEvery> to_log;
        impl::OptionalCallback<SummaryWriter> summaries;
        impl::OptionalCallback<CheckpointEvery<Training, CheckpointDirectory, decltype(metric)>> checkpoints;
        const impl::LogFile log_file = folder_ ? impl::open_log(options_.folder) : impl::LogFile(nullptr, nullptr);
        const std::unique_ptr<SummarySink> sink = folder_ ? opened_events() : nullptr;
        if (folder_) {
            LogOptions to_file = options_.log;
            to_file.file = log_file.get();
            to_log.emplace(to_file).losses() = losses_;
            SummaryWriter& writer =
                summaries.emplace(*sink, Net::layers,
                                  SummaryOptions{.every = summary_every(),
                                                 .hyper_parameters = info_.entries(),
                                                 .network = summary<Net>(training.options.batch_size)});
            writer.losses() = losses_;
            checkpoints.emplace(
                training, *folder_,
                CheckpointOptions{.every = options_.checkpoint_every, .info = info_, .losses = &writer.losses()},
                metric);
        }
        const double begun = monotonic_seconds();
        int signal = 0;
        {
            StopOnSignal signals;  // during training: a Ctrl-C in the evaluation ends the process
            fit(training, batches, {.steps = steps}, to_output, to_log, Progress{}, callbacks..., summaries,
                checkpoints, signals);
            signal = signals.signal();
            if constexpr (requires { training.largest_of_processes(1); })
                signal = training.largest_of_processes(signal);
        }
        if (folder_ && summary_every() > 0 && steps > 0) {
            output_.print_message(impl::cost_of_summaries(summaries.get()->seconds(), monotonic_seconds() - begun));
        }
        if (signal != 0) return stopped_by(signal, training.step());
        if constexpr (tests) {
            print_result<Net>(training.step(), evaluate(training, test), Weights::trained);
            if (averages) {
                print_result<Net>(training.step(), evaluate(training, test, Weights::averages), Weights::averages);
            }
        }
        return 0;
    }

private:
    [[nodiscard]] static const char* plural(int count) { return count == 1 ? "" : "s"; }
    template <class Net>
    [[nodiscard]] static constexpr std::string_view samples_of() {
        return Net::input_shape.rank == 3 ? "images" : "samples";
    }

    /// The name of the averaging, of a policy that is chosen at run time too.
    template <class Options>
    [[nodiscard]] static std::string_view averaging_of(const Options& options) {
        if constexpr (requires { options.averaging.description(); }) {
            return options.averaging.description();
        } else {
            return decltype(options.averaging)::name;
        }
    }

    /// Used instead of a function in a requires-expression, where nvcc accepts no lambda.
    struct Ignored {
        void operator()(std::string_view, const std::string&) const {}
    };

    [[gnu::cold]] void add(std::string_view key, std::string value) {
        if (info_.find(key) == nullptr) info_.set(key, std::move(value));
    }
    [[nodiscard]] std::int64_t summary_every() const { return options_.events == nullptr ? 0 : options_.summary_every; }
    [[nodiscard, gnu::cold]] std::unique_ptr<SummarySink> opened_events() const {
        if (summary_every() == 0) return std::make_unique<impl::NoSummaries>();
        return options_.events(options_.folder);
    }

    template <class Training>
    void resume(Training& training) {
        const FoundCheckpoint found =
            impl::CheckpointToResume(options_, folder_, info_, output_).find(Training::NetworkType::layers);
        if (!found.checkpoint) return;
        try {
            training.restore(found.checkpoint->state);
        } catch (const InvalidArgument& cause) {  // `anyway`, with another optimiser, or with averages added or removed
            throw InvalidArgument(text(found.path, " cannot be resumed from: ", cause.what()));
        }
        restore_losses(found.checkpoint->info, losses_);
        output_.print_message(text("resumed from ", found.path, ": step ", training.step(), " comes next"));
    }

    [[nodiscard, gnu::cold]] int stopped_by(int signal, std::int64_t step) const {
        const RunOptionNames& names = options_.names;
        output_.print_message(text("stopped by signal ", signal,
                                   step > 0 ? text(" after step ", step - 1) : std::string(" before the first step"),
                                   has_folder() ? text("; ", names.resume, " continues from ", options_.folder)
                                                : text("; without ", names.folder, " nothing was kept")));
        return 128 + signal;
    }

    template <class Net>
    void print_result(std::int64_t step, const Evaluation& result, Weights weights) const {
        output_.print(impl::result_line(output_.json(), step, result, weights, samples_of<Net>()));
    }

    TrainingRunOptions options_;
    StandardOutput output_;
    std::optional<CheckpointDirectory> folder_;
    CheckpointInfo info_;
    /// The smoothed losses of the checkpoint that the run is resumed from.
    LossAverages losses_;
};

}  // namespace cupola::inline CUPOLA_ABI
