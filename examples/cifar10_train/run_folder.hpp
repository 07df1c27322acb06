// SPDX-License-Identifier: Apache-2.0
//
// What a run keeps in --train-dir beside its checkpoints, and what it says: the log, TensorBoard's events, the
// placement of operations, and whether a checkpoint is of the same run.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include <cupola/cupola.hpp>
#include <cupola/io/checkpoint_info.hpp>
#include <cupola/io/summary_sink.hpp>

#include "../standard_output.hpp"
#include "options.hpp"

namespace cifar10 {

using namespace cupola;

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// Throws DataError where --resume is given and --train-dir does not exist.
void require_folder_to_resume(const TrainOptions& options);

/// <train_dir>/train.log, appended to.
File open_log(const std::string& train_dir);

/// TensorBoard's event file in <train_dir>.
std::unique_ptr<SummarySink> open_events(const TrainOptions& options);

/// mean, last or each; throws InvalidArgument for another.
LossReduction loss_reduction(const std::string& name);

/// What the images are, whatever they are called and wherever they lie: "50000 images, crc32c 1a2b3c4d".
std::string fingerprint(const ImageSet& images);

/// A line for each operation, with the device of each replica that runs it: "host:0".
std::string placement(std::span<const LayerInfo> layers, int replicas, int devices, const char* place,
                      const std::string& averaging);

/// "summaries took 0.43 % of the training's 75.2 s".
void say_cost_of_summaries(const StandardOutput& output, double seconds, double all);

/// "test accuracy = 0.539 (1000 images)", or an object with keys of cifar10_eval --json.
void say_accuracy(const StandardOutput& output, std::int64_t step, const Evaluation& result, Weights weights);

/// Throws InvalidArgument where the checkpoint at `path` is of a run with other settings, and says which; with
/// --resume-anyway it prints them and goes on.
void require_same_run(const TrainOptions& options, const std::string& path, const CheckpointInfo& before,
                      const CheckpointInfo& now);

/// Throws DataError where there is a file at `path`, a best checkpoint's: a new run would adopt it.
void require_no_best(const std::string& path);

/// The same as `require_same_run` for the best checkpoint, whose metric is to be compared with: on what machine it was
/// computed makes no difference.
void require_best_of_same_run(const TrainOptions& options, const std::string& path, const CheckpointInfo& before,
                              const CheckpointInfo& now);

}  // namespace cifar10
