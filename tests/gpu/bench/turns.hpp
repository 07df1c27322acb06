// SPDX-License-Identifier: Apache-2.0
//
// The turns of a program that is measured: see tests/benchmarks/peers/protocol.py.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace gpu_bench {

/// For each line of the input, a number of steps, prints the seconds per step of run(steps) and the loss that it returns.
template <class Run>
void serve_turns(Run&& run) {
    char line[64];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        const int steps = std::atoi(line);
        const auto start = std::chrono::steady_clock::now();
        const double loss = run(steps);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        std::printf("{\"seconds\": [%.9f], \"loss\": %.6f}\n", seconds / steps, loss);
        std::fflush(stdout);
    }
}

}  // namespace gpu_bench
