// SPDX-License-Identifier: Apache-2.0
//
// TrainingRun: the parts of a training run other than its network and its data: the header that it prints, its log, a
// folder with checkpoints, log and TensorBoard events, resuming a stopped run, signals, the final result.
//
//   TrainingRun run({.folder = "run1", .resume = Resume::if_there});
//   DataParallel<Net, CrossEntropy<10>, Sgd, ConcatMean, Host> training({.batch_size = 128, .seed = 1});
//   run.print_header(training);
//   return run.train(training, batches, test,      0, or 128 and the number of the signal that stopped it
//                    {.epochs = 20, .validation = validation, .metrics = {metrics::Accuracy{}}, .patience = 3});
//
// When the run has ended or was stopped, the folder contains:
//
//   model-<step>.safetensors     checkpoints (train/checkpoint_every.hpp); model-best.safetensors with `keep_best`
//   train.log                    all lines that the run prints, appended
//   history.csv                  a line per record of train/history.hpp, if `train` is given options with records
//   events.out.tfevents...       the summaries for TensorBoard, if `events` is given
//
// A checkpoint contains the description of its run (`info()`), with which a resumed run is compared: a run with
// different settings is rejected, and so is a different machine if it would change the bits.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/io/checkpoint_directory.hpp>
#include <cupola/io/checkpoint_files.hpp>
#include <cupola/io/checkpoint_info.hpp>
#include <cupola/io/standard_output.hpp>
#include <cupola/io/summary_sink.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/parallel/data_parallel.hpp>
#include <cupola/parallel/run_policy.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/train/agreed_checkpoints.hpp>
#include <cupola/train/checkpoint_every.hpp>
#include <cupola/train/evaluate.hpp>
#include <cupola/train/fit.hpp>
#include <cupola/train/fit_options.hpp>
#include <cupola/train/history.hpp>
#include <cupola/train/impl/batches_description.hpp>
#include <cupola/train/impl/checkpoint_digest.hpp>
#include <cupola/train/impl/checkpoint_to_resume.hpp>
#include <cupola/train/impl/fit_recorder.hpp>
#include <cupola/train/impl/optional_callback.hpp>
#include <cupola/train/impl/run_description.hpp>
#include <cupola/train/impl/run_folder.hpp>
#include <cupola/train/impl/run_lines.hpp>
#include <cupola/train/impl/run_records.hpp>
#include <cupola/train/log_every.hpp>
#include <cupola/train/loss_averages.hpp>
#include <cupola/train/progress.hpp>
#include <cupola/train/stop_on_signal.hpp>
#include <cupola/train/summary_writer.hpp>
#include <cupola/train/training_run_options.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Passed to train() if there are no test data.
struct NoTest {};

class TrainingRun {
public:
    /// Creates the folder and locks it before any computation. Throws DataError for a folder that another training
    /// uses, that cannot be written, or that is to be resumed and does not exist; InvalidArgument for options that need
    /// a folder.
    [[gnu::cold]] explicit TrainingRun(TrainingRunOptions options)  // misspelt? TrainingRunOptions{...} names it
        : options_(without_second_log(std::move(options))), losses_(options_.log.averages) {
        check_run_options(options_);
        if (has_folder() && options_.writes) copy_ = std::make_unique<OutputCopy>();
        output_ = StandardOutput(options_.log.json, options_.log.file, copy_.get());
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

    /// The description of the run in its checkpoints and in TensorBoard: the entries that are set before `train`, and
    /// those that `describe` adds. Runs that differ in the value of an entry are different runs.
    [[nodiscard]] CheckpointInfo& info() { return info_; }

    /// Adds the settings of the training that have no entry yet: batch_size, replicas, accumulation, seed, loss,
    /// optimizer, learning_rate, averaging, bn_stats, moving_average, precision; the device's properties on which the
    /// bits depend; and the number of `ranks` of a collective. `train` calls it too; a program calls it earlier to add
    /// its own entries after these, or to replace one. In a run with a folder `train` also adds the known properties of
    /// the batches that have no entry yet: data (a checksum), order, transform, and classes, the names of the classes
    /// (`classes_key`). The network is stored in each checkpoint independently.
    template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
    void describe(const DataParallel<Net, Loss, Optimizer, Averaging, D, Statistics>& training) {
        impl::describe_training(training,
                                [this](std::string_view key, std::string value) { add(key, std::move(value)); });
    }

    /// Prints a description of the training: the network as a table, the memory, the replicas and their devices, the
    /// optimiser, the schedule. `where` describes the devices, "2 Host devices" if it is empty; `placement` adds a line
    /// per layer with the device of each replica.
    template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
    [[gnu::cold]] void print_header(const DataParallel<Net, Loss, Optimizer, Averaging, D, Statistics>& training,
                                    const std::string& where = {}, bool placement = false) const {
        impl::print_header(output_, training, where, placement);
    }

    /// Trains with the options of fit(), which apply to the whole run: `.steps` and `.epochs` are counted from step 0
    /// and include those before a resume; if neither is given, `max_steps` is the number of steps. The records, the
    /// patience and the best record continue in a resumed run, since checkpoints contain them. With `.validation` and
    /// `keep_best`, the folder contains the state of the best record; with `.restore_best` too, and the training is
    /// restored to it at the end.
    template <class Training, class Batches, class Test, class... Callbacks>
    int train(Training& training, Batches&& batches, Test&& test, const FitOptions<Training>& options,
              Callbacks&&... callbacks) {
        return train_by(with_end(options), training, batches, test, callbacks...);
    }

    /// Resumes from the folder's checkpoint according to `resume`, trains up to `max_steps` steps with the log, the
    /// summaries and the checkpoints, and prints the accuracy on `test` (batches for `evaluate`, or NoTest{}) of the
    /// parameters and of their moving averages; or the loss, if it counts no predictions or the network has several
    /// outputs. `callbacks` are called after the log's and before the folder's. SIGINT, SIGTERM and SIGHUP end the
    /// training after the step. Returns the exit status for the program: 0, or 128 plus the signal's number.
    template <class Training, class Batches, class Test, class... Callbacks>
        requires(!(std::same_as<std::remove_cvref_t<Callbacks>, FitOptions<Training>> || ...))
    int train(Training& training, Batches&& batches, Test&& test, Callbacks&&... callbacks) {
        return train_by(with_end(FitOptions<Training>{}), training, batches, test, callbacks...);
    }

    /// The records of the whole run, and the results of the last call of train().
    [[nodiscard]] const History& history() const { return history_; }

private:
    template <class Training, class Batches, class Test, class... Callbacks>
    [[gnu::cold]] int train_by(const FitOptions<Training>& options, Training& training, Batches& batches, Test& test,
                               Callbacks&... callbacks) {
        using Net = typename Training::NetworkType;
        constexpr bool tests = !std::is_same_v<std::remove_cvref_t<Test>, NoTest>;
        const bool restores = static_cast<bool>(options.restore_best.calls());
        const bool validates = static_cast<bool>(options.validation.calls());
        const bool keeps_best_record = restores || (options_.keep_best && validates);
        const bool keeps_best_tested = options_.keep_best && !keeps_best_record;
        require(tests || !keeps_best_tested, options_.names.keep_best,
                " needs test data or a validation: the best checkpoint is the one with the best result on them");
        describe(training);
        if (has_folder()) impl::describe_batches(batches, info_);
        RunPolicy& policy = policy_of(training);
        policy.restart();
        policy.require_same(-1, [&] { return settings_of_run(options.epochs, options.steps, tests); });
        if constexpr (tests) {
            policy.in_all({"the beginning of the run", training.step()}, [&] {
                impl::require_same_classes(batches, test);
                static_cast<void>(impl::check_classes(training, test));
                require<DataError>(test.count() > 0, "the test data have no batches");
                if constexpr (requires { training.require_evaluable(test, test.count(), Weights::trained); })
                    training.require_evaluable(test, test.count(), Weights::trained);
            });
        }
        const bool averages = training.options.moving_average.on();
        const auto metric = [&]() -> std::optional<double> {
            if constexpr (tests) {
                if (keeps_best_tested) {
                    const Evaluation result = evaluate(training, test, averages ? Weights::averages : Weights::trained);
                    return result.has_accuracy() ? result.accuracy() : -result.loss;
                }
            }
            return {};
        };

        // Without such options there is one record at the end, which is kept only if a resumed run has other records.
        const bool has_records = options.epochs || options.every > 0 || validates;
        const double begun = monotonic_seconds();
        LogEvery to_output(options_.log);
        impl::OptionalCallback<LogEvery> to_log;
        impl::OptionalCallback<SummaryWriter> summaries;
        std::optional<AgreedCheckpoints> directory;
        impl::OptionalCallback<CheckpointEvery<Training, AgreedCheckpoints, decltype(metric)>> checkpoints;
        impl::OptionalCallback<impl::RunRecords> records;
        impl::OptionalCallback<StopOnSignal> stop_on_signal;
        std::unique_ptr<SummarySink> sink;
        impl::FitRecorder* recorder = nullptr;
        const auto add_progress = [&](CheckpointInfo& info) { impl::write_progress(*recorder, info); };
        const auto save_best = [&] { checkpoints.get()->save_best(recorder->best_value()); };
        const auto begin = [&](impl::FitRecorder& planned) -> std::shared_ptr<const void> {
            recorder = &planned;
            const std::int64_t last = planned.run().last_step;
            if (has_folder()) resume(training, policy);
            if (const std::string notice = policy.notice(training.step()); !notice.empty())
                output_.print_message(notice);
            planned.resume(training.step(), progress_ ? &*progress_ : nullptr);
            if (const std::string over = nothing_to_train(planned, last, options.epochs, training.step());
                !over.empty())
                output_.print_message(over);
            const bool is_best = planned.best() != nullptr && planned.best()->step == training.step();
            std::shared_ptr<const void> best;
            if (restores && planned.best() != nullptr)
                best = is_best ? options.restore_best.calls().copy(&training)
                               : impl::state_of_best<decltype(training.state())>(options_.folder, Net::layers, planned);
            to_output.losses() = losses_;
            const LossAverages* smoothed = nullptr;
            if (folder_) {
                log_file_ = impl::open_log(options_.folder);
                copy_->open(log_file_.get(), options_.folder + "/train.log");
                sink = opened_events();
                LogOptions to_file = options_.log;
                to_file.file = log_file_.get();
                to_log.emplace(to_file).losses() = losses_;
                SummaryWriter& writer =
                    summaries.emplace(*sink, Net::layers,
                                      SummaryOptions{.every = summary_every(),
                                                     .hyper_parameters = info_.entries(),
                                                     .network = summary<Net>(training.options.batch_size)});
                writer.losses() = losses_;
                smoothed = &writer.losses();
            }
            // The other processes take part in each checkpoint, but do not write.
            if (folder_ || (policy.process().count > 1 && has_folder())) {
                CheckpointOptions to_keep{.every = options_.checkpoint_every, .info = info_, .losses = smoothed};
                if (has_records || progress_) {
                    to_keep.progress = add_progress;
                    records.emplace(planned, folder_ ? options_.folder : std::string(),
                                    keeps_best_record ? FunctionRef<void()>(save_best) : FunctionRef<void()>(),
                                    is_best);
                }
                directory.emplace(training, folder_ ? &*folder_ : nullptr);
                checkpoints.emplace(training, *directory, std::move(to_keep), metric);
            }
            // Only during training: a Ctrl-C during the evaluation ends the process.
            stop_on_signal.emplace(policy.process().count > 1);
            return best;
        };
        history_ = impl::fit_from(begin, training, batches, options, to_output, to_log, Progress{}, callbacks...,
                                  summaries, checkpoints, records, stop_on_signal);
        const int signal = policy.largest({"the end of the run", training.step()}, stop_on_signal.get()->signal());
        stop_on_signal.reset();
        if (folder_ && summary_every() > 0 && history_.steps > 0) {
            output_.print_message(impl::cost_of_summaries(summaries.get()->seconds(), monotonic_seconds() - begun));
        }
        if (signal != 0) return stopped_by(signal, training.step());
        if (history_.stopped_early && history_.steps > 0)
            output_.print_message(text("ended early: ", history_.quantity, " was not better in ", options.patience,
                                       options.patience == 1 ? " record" : " records"));
        if (history_.best && (validates || restores))
            output_.print_message(text(restores ? "the state of the best record is restored: " : "best record: ",
                                       impl::best_text(history_)));
        if constexpr (tests) {
            print_result<Net>(training.step(), evaluate(training, test), Weights::trained);
            if (averages) {
                print_result<Net>(training.step(), evaluate(training, test, Weights::averages), Weights::averages);
            }
        }
        return 0;
    }

    [[gnu::cold]] void add(std::string_view key, std::string value) {
        if (info_.find(key) == nullptr) info_.set(key, std::move(value));
    }
    [[nodiscard]] std::int64_t summary_every() const { return options_.events == nullptr ? 0 : options_.summary_every; }
    [[nodiscard, gnu::cold]] std::unique_ptr<SummarySink> opened_events() const {
        if (summary_every() == 0) return std::make_unique<impl::NoSummaries>();
        return options_.events(options_.folder);
    }

    template <class Training>
    [[nodiscard]] static RunPolicy& policy_of([[maybe_unused]] Training& training) {
        if constexpr (requires { training.run_policy(); }) {
            return training.run_policy();
        } else {
            return impl::run_policy_of_one_process();
        }
    }
    /// The settings on which the course of the run depends.
    [[nodiscard, gnu::cold]] RunSettings settings_of_run(const std::optional<std::int64_t>& epochs,
                                                         const std::optional<std::int64_t>& steps, bool tests) const {
        CheckpointInfo compared = info_;
        compared.set(epochs ? ".epochs" : options_.names.max_steps, text(epochs ? *epochs : *steps));
        compared.set(options_.names.folder, has_folder() ? "given" : "none");
        compared.set("Resume", text(static_cast<int>(options_.resume)));
        compared.set(".checkpoint_every", text(options_.checkpoint_every));
        compared.set(options_.names.keep_best, options_.keep_best ? "given" : "none");
        compared.set("test data", tests ? "given" : "none");
        return {compared.entries().begin(), compared.entries().end()};
    }

    template <class Training>
    void resume(Training& training, RunPolicy& policy) {
        progress_.reset();
        const FoundCheckpoint found =
            impl::CheckpointToResume(options_, folder_, info_, output_).find(Training::NetworkType::layers);
        policy.require_same(-1, [&] {
            return RunSettings{
                {"checkpoint to resume from", found.checkpoint ? impl::digest_text(*found.checkpoint) : "none"}};
        });
        if (!found.checkpoint) return;
        training.restore(found.checkpoint->state);
        restore_losses(found.checkpoint->info, losses_);
        progress_ = impl::read_progress(found.checkpoint->info);
        output_.print_message(text("resumed from ", found.path, ": step ", training.step(), " comes next"));
    }

    /// The same options; the number of steps is set if they have neither steps nor epochs.
    template <class Training>
    [[nodiscard]] FitOptions<Training> with_end(FitOptions<Training> options) const {
        if (!options.steps && !options.epochs) {
            options.steps = options_.max_steps.value_or(1000);
        } else {
            require(!options_.max_steps, options_.names.max_steps, " and ", options.epochs ? ".epochs" : ".steps",
                    " are both given, and each says when the run ends");
        }
        return options;
    }

    /// The reason why there are no steps to make after `step`; empty if there are.
    [[nodiscard, gnu::cold]] std::string nothing_to_train(const impl::FitRecorder& recorder, std::int64_t last,
                                                          const std::optional<std::int64_t>& epochs,
                                                          std::int64_t step) const {
        if (recorder.history().stopped_early)
            return text("nothing to train: .patience was over ", impl::after_steps(step));
        if (step < last) return {};
        return text("nothing to train: ", step, step == 1 ? " step is made, and " : " steps are made, and ",
                    epochs ? text(".epochs is ", *epochs, ", ") : options_.names.max_steps + " is ", last,
                    !epochs     ? ""
                    : last == 1 ? " step"
                                : " steps");
    }

    [[nodiscard, gnu::cold]] int stopped_by(int signal, std::int64_t step) const {
        const RunOptionNames& names = options_.names;
        output_.print_message(text("stopped by signal ", signal,
                                   step > 0 ? " " + impl::after_steps(step) : " before the first step",
                                   has_folder() ? text("; ", names.resume, " continues from ", options_.folder)
                                                : text("; without ", names.folder, " nothing was kept")));
        return 128 + signal;
    }

    template <class Net>
    void print_result(std::int64_t step, const Evaluation& result, Weights weights) const {
        output_.print(impl::result_line(output_.json(), step, result, weights, impl::samples_of<Net>()));
    }

    TrainingRunOptions options_;
    /// train.log, and the lines for it that are printed before the run begins. Stored behind a pointer, which `output_`
    /// holds too.
    impl::LogFile log_file_{nullptr, nullptr};
    std::unique_ptr<OutputCopy> copy_;
    StandardOutput output_;
    std::optional<CheckpointDirectory> folder_;
    CheckpointInfo info_;
    /// The smoothed losses and the records of the checkpoint from which the run is resumed.
    LossAverages losses_;
    std::optional<impl::RecordProgress> progress_;
    History history_;
};

}}  // namespace cupola::CUPOLA_ABI
