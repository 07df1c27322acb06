// SPDX-License-Identifier: Apache-2.0
//
// Evaluates from the command line of cifar10_eval: reads the images, then evaluates the newest checkpoint, once or
// whenever there is a newer one.
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <sys/stat.h>

#include <cupola/data/open.hpp>
#include <cupola/device/processors.hpp>
#include <cupola/io/atomic_file.hpp>
#include <cupola/io/checkpoint_files.hpp>
#include <cupola/io/event_file.hpp>
#include <cupola/io/standard_output.hpp>
#include <cupola/train/progress.hpp>
#include <cupola/train/stop_on_signal.hpp>

#include "../command_line.hpp"
#include "evaluation.hpp"

namespace cifar10 { namespace {

/// Distinguishes two files with the same name: a training that was resumed from a damaged checkpoint writes the same
/// file again.
std::string identity_of(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return path;
    return text(path, ' ', status.st_ino, ' ', status.st_mtim.tv_sec, ' ', status.st_mtim.tv_nsec);
}

/// One path for all names of a folder, whether it exists or not.
std::filesystem::path place_of(const std::string& folder) {
    std::error_code none;
    return weakly_canonical(std::filesystem::absolute(folder, none) / "", none);
}

class Evaluator {
public:
    Evaluator(const EvalOptions& options, const ImageSet& images)
        : options_(options),
          images_(images),
          output_(options.json),
          model_(options.model == "tutorial" ? tutorial_model() : resnet_model()) {
        if (!options.eval_dir.empty()) events_ = std::make_unique<EventFile>(options.eval_dir);
        if (!options.predictions.empty())
            AtomicFile{options.predictions};  // throws first of all if the file cannot be written
    }

    /// Evaluates --checkpoint, or the newest valid checkpoint unless it was evaluated last; returns false if a signal
    /// stopped it.
    bool evaluate_newest() {
        if (!options_.checkpoint.empty()) {
            return evaluate(read_checkpoint(options_.checkpoint, model_.layers), options_.checkpoint);
        }
        // The folder of a training that has not begun does not exist yet.
        struct stat status {};
        const bool there = stat(options_.train_dir.c_str(), &status) == 0 || errno != ENOENT;
        const FoundCheckpoint found =
            there ? newest_valid_checkpoint(options_.train_dir, model_.layers) : FoundCheckpoint{};
        if (found.damaged != warned_) {
            for (const std::string& problem : found.damaged) output_.print_message(text("warning: ", problem));
            warned_ = found.damaged;
        }
        if (!found.checkpoint) {
            const char* const what = !there                  ? " does not exist"
                                     : found.damaged.empty() ? " has no checkpoint"
                                                             : " has no valid checkpoint";
            require<DataError>(!options_.run_once, "the folder ", options_.train_dir, what);
            output_.print_message(text("the folder ", options_.train_dir, what, " yet"));
            return true;
        }
        const std::string identity = identity_of(found.path);
        if (identity == last_) {
            output_.print_message(
                text("no checkpoint newer than step ", found.checkpoint->state.step, " in ", options_.train_dir));
            return true;
        }
        if (!evaluate(*found.checkpoint, found.path)) return false;
        last_ = identity;
        return true;
    }

    /// Returns after a signal.
    void evaluate_for_ever() {
        using clock = std::chrono::steady_clock;
        while (signals.signal() == 0) {
            evaluate_newest();
            const auto next = clock::now() + std::chrono::seconds(options_.interval);
            while (signals.signal() == 0 && clock::now() < next)
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
    }

    StopOnSignal signals;

private:
    bool evaluate(const Checkpoint& checkpoint, const std::string& path) {
        // A file that PyTorch saved has one kind of parameters. For a checkpoint of a training, neither kind silently
        // replaces the other.
        const bool averages = !options_.no_averages && checkpoint.resumable;
        require<DataError>(!averages || !checkpoint.state.averages.empty(), path,
                           " has no moving averages; --no-averages runs the trained parameters");
        const std::string* const classes = checkpoint.info.find(classes_key);
        const std::string own = list_text(images_.classes());
        require<DataError>(classes == nullptr || *classes == own, path,
                           " was trained with other classes than those of ", images_.name(), ": ",
                           classes == nullptr ? "" : to_string({std::string(classes_key), *classes, own}));
        const Weights weights = averages ? Weights::averages : Weights::trained;
        const int threads = options_.threads != 0 ? options_.threads : usable_processors().count();
        ProgressLine line;
        const double begun = monotonic_seconds();
        const auto logits = model_.run({checkpoint, path, weights, threads, [&] { return signals.signal() != 0; },
                                        [&](std::int64_t done) { line.show(done, images_.size(), "images", begun); }},
                                       images_);
        line.clear();
        if (!logits) return false;
        Outcome outcome = count_correct(*logits, images_, options_.tutorial_count);
        outcome.step = checkpoint.state.step;
        outcome.checkpoint = path;
        outcome.weights = weights;
        Confusion confusion;
        if (options_.confusion) confusion = confusion_of(outcome, images_, logits->classes);
        if (!options_.predictions.empty()) write_predictions(options_.predictions, outcome, *logits, images_);
        if (events_ != nullptr) write_event(outcome);
        if (options_.json) {
            output_.print(json_of(outcome, images_, confusion));
        } else {
            output_.print(lines_of(outcome, images_));
            if (options_.confusion) output_.print(confusion_table(confusion, class_names(images_, logits->classes)));
        }
        return true;
    }

    void write_event(const Outcome& outcome) {
        // A training that was resumed from a damaged checkpoint reaches the same steps again: TensorBoard then omits
        // the events of the first time.
        if (outcome.step <= last_step_ || last_step_ < 0) events_->start(outcome.step);
        last_step_ = outcome.step;
        StepSummary summary;
        summary.scalars.push_back({"Precision @ 1", outcome.precision()});
        events_->write(outcome.step, summary);
    }

    const EvalOptions& options_;
    const ImageSet& images_;
    StandardOutput output_;
    Model model_;
    std::unique_ptr<EventFile> events_;
    /// The step of the last event.
    std::int64_t last_step_ = -1;
    std::string last_;
    std::vector<std::string> warned_;
};

/// Returns the process's exit status. Throws cupola::Error for any error.
int evaluate(const EvalOptions& options) {
    require(options.model == "tutorial" || options.model == "resnet", "--model must be tutorial or resnet, not ",
            options.model);
    require(options.eval_data == "test" || options.eval_data == "train", "--eval-data must be test or train, not ",
            options.eval_data);
    require(options.train_dir.empty() != options.checkpoint.empty(),
            options.checkpoint.empty()
                ? "--train-dir, the folder with the training's checkpoints, or --checkpoint, one of them, is required"
                : "--checkpoint replaces --train-dir: only one of them can be given");
    const std::string train_dir = options.train_dir.empty() ? impl::folder_of(options.checkpoint) : options.train_dir;
    require(options.eval_dir.empty() || place_of(options.eval_dir) != place_of(train_dir),
            "--eval-dir is the checkpoint's folder: TensorBoard would omit the training's events from the evaluated "
            "step on; use a folder inside it");
    const ImageData data =
        open_image_data(options.data_dir.empty() ? CUPOLA_SAMPLE_DATA : options.data_dir, usable_processors().count());
    const ImageSet& images = options.eval_data == "test" ? data.test : data.train;
    require<DataError>(images.class_count() == 10, "the data set ", images.name(), " has ", images.class_count(),
                       " classes, but the network distinguishes 10");
    Evaluator evaluator(options, images);
    if (options.run_once || !options.checkpoint.empty()) {
        return evaluator.evaluate_newest() ? 0 : 128 + evaluator.signals.signal();
    }
    evaluator.evaluate_for_ever();
    return 0;
}

}  // namespace

}  // namespace cifar10

int main(int argc, char** argv) {
    using namespace command_line;
    cifar10::EvalOptions options;
    CLI::App app{
        "Prints the precision of a training's newest checkpoint on the test images, with the parameters' moving "
        "averages, each\n"
        "image once: now and whenever there is a newer checkpoint, until Ctrl-C.",
        "cifar10_eval"};
    app.add_option("--train-dir,--checkpoint-dir", options.train_dir, "Folder of the training's checkpoints")
        ->check(not_empty());
    app.add_option("--checkpoint", options.checkpoint,
                   "Evaluate this file instead, once; a file saved by PyTorch is accepted too")
        ->check(not_empty());
    app.add_option("--data-dir", options.data_dir,
                   "Images: a folder of CIFAR-10's .bin files, or the one above it, or a folder or archive with\n"
                   "train/<class>/*.jpg and test/<class>/*.jpg. Default: the sample that comes with the examples")
        ->check(not_empty());
    app.add_option("--eval-data", options.eval_data, "test or train: which of the images")->capture_default_str();
    app.add_option("--model", options.model, "tutorial or resnet: the network that was trained")->capture_default_str();
    app.add_flag("--no-averages", options.no_averages, "Run the trained parameters instead of their moving averages");
    app.add_flag("--run-once", options.run_once, "End after the newest checkpoint");
    app.add_option("--interval", options.interval, "Seconds between two checks for a newer checkpoint")
        ->capture_default_str()
        ->check(whole_number<std::int64_t>(1, 1'000'000));
    app.add_option("--threads", options.threads, "OpenMP threads. Default, or 0: one per processor")
        ->check(whole_number(0, 4096));
    app.add_flag(
        "--tutorial-count", options.tutorial_count,
        "Count as TensorFlow's tutorial did: 79 batches of 128, with the first 112 of 10,000 images counted twice");
    app.add_option("--predictions", options.predictions,
                   "CSV file for index, label, prediction and logits of every image")
        ->check(not_empty());
    app.add_flag("--confusion", options.confusion, "Print the images by label and prediction");
    app.add_option("--eval-dir", options.eval_dir,
                   "Folder for TensorBoard events with the precision at each checkpoint's step")
        ->check(not_empty());
    app.add_flag("--json", options.json, "Print one JSON object per line");
    return run(app, argc, argv, [&] { return cifar10::evaluate(options); });
}
