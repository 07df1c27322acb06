// SPDX-License-Identifier: Apache-2.0
//
// What can be chosen on the command line of cifar10_train.
#pragma once

#include <cstdint>
#include <string>

struct TrainOptions {
    std::string data_dir;
    std::string train_dir;
    std::int64_t max_steps = 1000;
    std::int64_t batch_size = 128;
    int num_replicas = 1;
    int num_devices = 0;
    int threads_per_device = 0;
    int prefetch_workers = -1;
    std::string averaging = "concat-mean";
    double learning_rate = 0.1;
    std::int64_t log_every = 10;
    std::uint64_t seed = 1;
};

/// Throws cupola::Error with one sentence for whatever is wrong.
void train(const TrainOptions& options);
