// SPDX-License-Identifier: Apache-2.0
#include "run_folder.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cupola/io/checkpoint_directory.hpp>
#include <cupola/io/crc32c.hpp>
#include <cupola/io/event_file.hpp>
#include <cupola/train/checkpoint_every.hpp>

namespace cifar10 {

void require_folder_to_resume(const TrainOptions& options) {
    struct stat status {};
    require<DataError>(!options.resume || stat(options.train_dir.c_str(), &status) == 0 || errno != ENOENT,
                       "the folder ", options.train_dir, " does not exist: there is nothing to resume from");
}

File open_log(const std::string& train_dir) {
    const std::string path = train_dir + "/train.log";
    // A pipe would let the training wait for someone to read it; without waiting, one that nobody reads is an error.
    const int handle = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    const int error = errno;
    struct stat status {};
    const bool pipe = handle >= 0 ? fstat(handle, &status) == 0 && S_ISFIFO(status.st_mode) : error == ENXIO;
    if (pipe && handle >= 0) close(handle);
    require<DataError>(!pipe, "the log ", path, " cannot be written: it is a pipe, and no file");
    require<DataError>(handle >= 0, "the log ", path, " cannot be written: ", std::strerror(error));
    fcntl(handle, F_SETFL, O_APPEND);  // writes wait again
    File file(fdopen(handle, "a"), &std::fclose);
    require<OutOfMemory>(file != nullptr, "there is no memory for the log ", path);
    return file;
}

std::unique_ptr<SummarySink> open_events(const TrainOptions& options) {
    struct Nothing final : SummarySink {
        void start(std::int64_t) override {}
        void write(std::int64_t, const StepSummary&) override {}
    };
    if (options.summary_every == 0) return std::make_unique<Nothing>();
    return std::make_unique<EventFile>(options.train_dir);
}

LossReduction loss_reduction(const std::string& name) {
    if (name == "mean") return LossReduction::mean;
    if (name == "last") return LossReduction::last_replica;
    require(name == "each", "--log-loss is mean, last or each, not ", name);
    return LossReduction::each_replica;
}

std::string fingerprint(const ImageSet& images) {
    const auto bytes = static_cast<std::size_t>(images.size() * images.sample_shape().size());
    std::uint32_t sum = crc32c(std::as_bytes(std::span(images.sample(0).data(), bytes)));
    for (std::int64_t i = 0; i < images.size(); ++i) {
        const std::int32_t label = images.label(i);
        sum = crc32c(std::as_bytes(std::span(&label, 1)), sum);
    }
    char digits[16];
    std::snprintf(digits, sizeof digits, "%08x", sum);
    return text(images.size(), " images, crc32c ", digits);
}

std::string placement(std::span<const LayerInfo> layers, int replicas, int devices, const char* place,
                      const std::string& averaging) {
    std::string lines;
    for (const LayerInfo& layer : layers) {
        std::string where;
        for (int r = 0; r < replicas; ++r) {
            // The first device gets the first replicas, as DataParallel places them.
            int device = 0;
            while (static_cast<std::int64_t>(replicas) * (device + 1) / devices <= r) ++device;
            where += text(r == 0 ? "" : ", ", "replica ", r, " on ", place, ":", device);
        }
        if (!layer.traits.runs_on.empty()) where = text(layer.traits.runs_on, ", by name");
        lines += text("placement: ", layer.name, layer.name.empty() ? "" : " ", layer.type, ": ", where, '\n');
    }
    return text(lines, "placement: averaging: ", averaging,
                "\nplacement: update: each device its copy of the parameters");
}

void say_cost_of_summaries(const StandardOutput& output, double seconds, double all) {
    char line[96];
    std::snprintf(line, sizeof line, "summaries took %.2f %% of the training's %.1f s", 100 * seconds / all, all);
    output.say(line);
}

void say_accuracy(const StandardOutput& output, std::int64_t step, const Evaluation& result, Weights weights) {
    // What the last update made of the parameters no later step has looked at.
    require<DataError>(std::isfinite(result.loss), "the loss on the test images is ", result.loss, ", with ",
                       to_string(weights), ": the training has diverged");
    char digits[32];
    std::snprintf(digits, sizeof digits, output.json() ? "%.6f" : "%.3f", result.accuracy());
    output.print(output.json() ? text(R"({"precision":)", digits, R"(,"step":)", step, R"(,"correct":)", result.correct,
                                      R"(,"images":)", result.samples, R"(,"weights":")", to_string(weights), "\"}")
                               : text("test accuracy", weights == Weights::averages ? " with moving averages" : "",
                                      " = ", digits, " (", result.samples, " images)"));
}

namespace {

/// What differs between two runs: of the run itself, and of the machine that it runs on.
struct RunDifferences {
    std::string run, bits;
};

RunDifferences differences_of_runs(const CheckpointInfo& before, const CheckpointInfo& now) {
    // The bits of a result depend on these, the run's course does not.
    constexpr std::array<std::string_view, 8> machine{"convolution", "threads_per_device", "onednn", "isa", "gpu",
                                                      "cuda",        "deterministic",      "ranks"};
    RunDifferences result;
    for (const InfoDifference& difference : differences(before, now)) {
        const std::string& key = difference.key;
        if (key == images_seen_key || key == losses_key || key == CheckpointDirectory::metric_key) continue;
        std::string& list = std::ranges::find(machine, key) != machine.end() ? result.bits : result.run;
        list += text(list.empty() ? "" : "; ", to_string(difference));
    }
    return result;
}

}  // namespace

void require_same_run(const TrainOptions& options, const std::string& path, const CheckpointInfo& before,
                      const CheckpointInfo& now) {
    const auto [run, bits] = differences_of_runs(before, now);
    if (run.empty() && bits.empty()) return;
    if (options.resume_anyway) {
        StandardOutput(options.json)
            .say(text("warning: going on from ", path, " with other settings: ", run,
                      run.empty() || bits.empty() ? "" : "; ", bits));
        return;
    }
    if (!run.empty()) {
        throw InvalidArgument(
            text(path, " is of a run with other settings: ", run,
                 "; --max-steps (but for a cosine), --num-devices with the same --threads-per-device, "
                 "--prefetch-workers and the flags of logs, summaries and checkpoints may change, and "
                 "--resume-anyway goes on with what has changed"));
    }
    throw InvalidArgument(text("going on from ", path, " here would not give the same bits: ", bits,
                               "; --resume-anyway goes on without that promise"));
}

void require_no_best(const std::string& path) {
    struct stat status {};
    require<DataError>(lstat(path.c_str(), &status) != 0, path,
                       " is another run's best checkpoint: rename it, or begin in another --train-dir");
}

void require_best_of_same_run(const TrainOptions& options, const std::string& path, const CheckpointInfo& before,
                              const CheckpointInfo& now) {
    const std::string run = differences_of_runs(before, now).run;
    if (run.empty()) return;
    require(options.resume_anyway, path, " is the best checkpoint of a run with other settings: ", run,
            "; rename it, or --resume-anyway compares with it and replaces it by a better one");
    StandardOutput(options.json)
        .say(text("warning: ", path, " is the best checkpoint of a run with other settings: ", run));
}

}  // namespace cifar10
