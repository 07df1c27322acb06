// SPDX-License-Identifier: Apache-2.0
//
// What can be chosen on the command line of cifar10_eval.
#pragma once

#include <cstdint>
#include <string>

struct EvalOptions {
    std::string data_dir;
    std::string train_dir;
    std::string checkpoint;
    std::string eval_dir;
    std::string eval_data = "test";
    std::string model = "tutorial";
    bool no_averages = false;
    bool run_once = false;
    std::int64_t interval = 300;
    int threads = 0;

    bool tutorial_count = false;
    std::string predictions;
    bool confusion = false;
    bool json = false;
};

/// Returns the process's exit status. Throws cupola::Error with one sentence for whatever is wrong.
int evaluate(const EvalOptions& options);
