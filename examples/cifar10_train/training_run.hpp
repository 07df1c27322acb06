// SPDX-License-Identifier: Apache-2.0
//
// One training run of cifar10_train, for any network and device: everything between the images and the test accuracy.
// What differs from device to device is in on_host.hpp and on_cuda.hpp.
#pragma once

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/io/checkpoint_directory.hpp>
#include <cupola/train/checkpoint_every.hpp>
#include <cupola/train/profile.hpp>
#include <cupola/train/summary_writer.hpp>

#include "../standard_output.hpp"
#include "optimizers.hpp"
#include "options.hpp"
#include "run_folder.hpp"

namespace cifar10 {

/// Begins where the newest sound checkpoint of the folder stands, if --resume asks for it. A process that writes none
/// only reads.
template <class Training>
void go_on(const TrainOptions& options, const std::optional<CheckpointDirectory>& folder, Training& training,
           const CheckpointInfo& info, LossAverages& losses) {
    const StandardOutput output(options.json);
    if (folder) {
        for (const std::string& remark : folder->remarks()) output.say(text("warning: ", remark));
    }
    if (!options.resume) {
        if (!folder) return;
        const auto files = folder->list();
        require<DataError>(files.empty(), options.train_dir, " has checkpoints, the newest of step ",
                           files.empty() ? 0 : files.front().step,
                           ": --resume goes on from it, another --train-dir begins anew");
        require_no_best(folder->best_path());
        return;
    }
    FoundCheckpoint found = newest_valid_checkpoint(options.train_dir, Training::NetworkType::layers);
    for (const std::string& problem : found.damaged) output.say(text("warning: ", problem));
    require<DataError>(found.checkpoint.has_value() || found.damaged.empty(), options.train_dir,
                       " has no valid checkpoint to resume from: ", found.damaged.size(),
                       found.damaged.size() == 1 ? " is damaged" : " are damaged");
    require<DataError>(found.checkpoint.has_value(), options.train_dir, " has no checkpoint to resume from");
    require<DataError>(found.checkpoint->resumable, found.path, " has parameters only: it cannot be resumed from");
    require_same_run(options, found.path, found.checkpoint->info, info);
    if (folder && folder->best()) require_best_of_same_run(options, folder->best_path(), folder->best_info(), info);
    try {
        training.restore(found.checkpoint->state);
    } catch (const InvalidArgument& cause) {  // --resume-anyway, with another optimiser or averages begun or given up
        throw InvalidArgument(text(found.path, " cannot be gone on from: ", cause.what()));
    }
    restore_losses(found.checkpoint->info, losses);
    output.say(text("resumed from ", found.path, ": step ", training.step(), " comes next"));
}

/// Trains `Net` on the images that `Distort` makes, evaluates on those of `Centre`, and returns the process's exit
/// status. `side` is an OnHost or an OnCuda.
template <class Net, class Loss, class Augment, class Centre, class Side, class Averaging, class Statistics>
int run(const TrainOptions& options, const ImageData& images, const Schedule& schedule, const std::string& optimizer,
        Side& side, const Averaging& averaging, const Statistics& statistics) {
    using Training = DataParallel<Net, Loss, Clipped<NamedOptimizer>, Averaging, typename Side::Device, Statistics>;
    const int devices = side.devices();
    require(devices <= options.num_replicas, "--num-devices is at most --num-replicas, ", options.num_replicas,
            ", not ", devices);
    // The folder first: a second trainer on it, or one that cannot be written, is refused before anything is computed.
    std::optional<CheckpointDirectory> folder;
    const bool has_folder = !options.train_dir.empty();
    require_folder_to_resume(options);
    if (has_folder && options.writes()) {
        folder.emplace(options.train_dir,
                       CheckpointDirectoryOptions{.keep = options.keep_checkpoints, .keep_best = options.keep_best});
    }

    auto source = side.template source<Augment>(
        images.train, {.batch_size = options.batch_size, .replicas = options.all_replicas(), .seed = options.seed});
    Training training({.replicas = options.num_replicas,
                       .devices = devices,
                       .device = side.device_options(),
                       .batch_size = options.batch_size,
                       .gradient_accumulation_steps = options.gradient_accumulation_steps,
                       .seed = options.seed,
                       .optimizer = {.optimizer = NamedOptimizer(optimizer, schedule),
                                     .max_norm = options.clip_norm,
                                     .max_value = options.clip_value},
                       .averaging = averaging,
                       .statistics = statistics,
                       .moving_average = {.decay = options.ema_decay}});
    auto batches = side.batches(source);

    const std::string network = summary<Net>(options.batch_size);
    const StandardOutput output(options.json);
    output.say(network);
    output.say(to_string(training.memory()));
    const std::string averaging_name(Averaging::name);
    output.say(text("replicas: ", options.num_replicas, " of ", options.batch_size, " images a step, averaged by ",
                    averaging_name, ", on ", side.description()));
    if (options.log_device_placement) {
        constexpr bool by_slices = AveragesRows<Averaging, typename Side::Device>;
        output.say(placement(Net::layers, options.num_replicas, devices, Side::place,
                             text(averaging_name, by_slices ? ", each device its slice of the gradient"
                                                            : ", the whole gradient on each device")));
    }
    output.say(text("optimiser: ", training.options.optimizer.description()));
    output.say(text("learning rate: ", schedule.description()));

    if constexpr (Side::profiles) {
        if (options.profile) {
            output.say(to_string(profile(training, batches)));
            return 0;
        }
    }

    CheckpointInfo info;
    info.set("model", options.model);
    if (has_folder) info.set("data", fingerprint(images.train));  // reads every image: for a run that is kept
    info.set("batch_size", text(options.batch_size));
    info.set("replicas", text(options.all_replicas()));
    info.set("accumulation", text(options.gradient_accumulation_steps));
    info.set("seed", text(options.seed));
    info.set("optimizer", training.options.optimizer.description());
    info.set("learning_rate", schedule.description());
    info.set("averaging", averaging_name);
    info.set("bn_stats", options.bn_stats);
    info.set("moving_average", training.options.moving_average.description());
    info.set("precision", options.precision);
    side.describe(info);

    LossAverages losses;
    if (has_folder) go_on(options, folder, training, info, losses);
    if (training.step() >= options.max_steps) {
        output.say(
            text("nothing to train: ", training.step(), " steps are made, and --max-steps is ", options.max_steps));
    }
    const std::int64_t steps = std::max<std::int64_t>(0, options.max_steps - training.step());

    auto test = side.template test_batches<Centre>(images.test);
    const bool averages = options.ema_decay > 0;
    const auto precision = [&]() -> std::optional<double> {
        if (!options.keep_best) return {};
        return evaluate(training, test, averages ? Weights::averages : Weights::trained).accuracy();
    };

    const LogOptions log{.every = options.log_every,
                         .loss = loss_reduction(options.log_loss),
                         .learning_rate = options.log_learning_rate,
                         .parts = options.log_parts,
                         .json = options.json};
    int signal = 0;
    if (folder) {
        const File log_file = open_log(options.train_dir);
        LogOptions to_file = log;
        to_file.file = log_file.get();
        const auto sink = open_events(options);
        SummaryWriter summaries(
            *sink, Net::layers,
            {.every = options.summary_every, .hyper_parameters = info.entries(), .network = network});
        summaries.losses() = losses;
        CheckpointEvery checkpoints(training, *folder,
                                    {.every = options.checkpoint_every, .info = info, .losses = &summaries.losses()},
                                    precision);
        const double begun = monotonic_seconds();
        LogEvery to_output(log), to_log(to_file);
        to_output.losses() = to_log.losses() = losses;
        StopOnSignal signals;  // while it trains: a Ctrl-C in the evaluation ends the process
        fit(training, batches, {.steps = steps}, to_output, to_log, Progress{}, side.callback(training), summaries,
            checkpoints, signals);
        signal = signals.signal();
        if (options.summary_every > 0 && steps > 0) {
            say_cost_of_summaries(output, summaries.seconds(), monotonic_seconds() - begun);
        }
    } else {
        StopOnSignal signals;
        fit(training, batches, {.steps = steps}, LogEvery{log}, Progress{}, side.callback(training), signals);
        signal = signals.signal();
    }
    if (signal != 0) {
        output.say(text("stopped by signal ", signal, " after step ", training.step() - 1,
                        has_folder ? text("; --resume goes on from ", options.train_dir)
                                   : "; without --train-dir nothing was kept"));
        return 128 + signal;
    }

    say_accuracy(output, training.step(), evaluate(training, test), Weights::trained);
    if (averages) say_accuracy(output, training.step(), evaluate(training, test, Weights::averages), Weights::averages);
    side.finish();
    return 0;
}

}  // namespace cifar10
