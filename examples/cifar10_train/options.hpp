// SPDX-License-Identifier: Apache-2.0
//
// What can be chosen on the command line of cifar10_train.
#pragma once

#include <cstdint>
#include <string>

struct TrainOptions {
    std::string data_dir;
    bool download = false;
    std::string train_dir;
    bool resume = false;
    bool resume_anyway = false;

    std::string device = "host";
    std::string model = "tutorial";
    std::string precision = "float";
    std::string convolution;  // winograd where empty
    std::string bn_stats = "first";
    std::int64_t max_steps = 1000;
    std::int64_t batch_size = 128;
    int gradient_accumulation_steps = 1;
    std::uint64_t seed = 1;

    int num_replicas = 1;
    int num_devices = 0;
    int threads_per_device = 0;
    int prefetch_workers = -1;
    std::string averaging = "concat-mean";
    int processes = 1;
    int process = -1;
    std::string id_file;
    bool tf32 = false;
    bool deterministic = false;
    std::string plan_choices;
    bool log_device_placement = false;
    bool profile = false;

    std::string optimizer;  // of the model where empty
    double learning_rate = 0.1;
    std::string schedule;  // of the model where empty
    std::string rate_scaling = "none";
    std::int64_t warm_up_steps = 0;
    double clip_norm = 0;
    double clip_value = 0;
    double ema_decay = 0.9999;

    std::int64_t log_every = 10;
    std::string log_loss = "mean";
    bool log_learning_rate = false;
    bool log_parts = false;
    bool json = false;
    std::int64_t checkpoint_every = 1000;
    int keep_checkpoints = 5;
    bool keep_best = false;
    std::int64_t summary_every = 100;

    /// Those of all processes.
    [[nodiscard]] int all_replicas() const { return num_replicas * processes; }
    /// Only the first of several processes writes files.
    [[nodiscard]] bool writes() const { return process <= 0; }
};

/// Returns the process's exit status: 0, or 128 and the signal's number where one ended the run. Throws cupola::Error
/// with one sentence for whatever is wrong.
int train(const TrainOptions& options);
