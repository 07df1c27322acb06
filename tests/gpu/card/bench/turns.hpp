// SPDX-License-Identifier: Apache-2.0
//
// The turns of a program that is measured: see tests/benchmarks/peers/protocol.py.
#pragma once

#include "../../../standard.hpp"

namespace gpu_bench {

#ifdef CUPOLA_BENCH_EMULATED
/// The clock of the emulated GPU, by which each step takes the same: the host's says nothing of a GPU.
inline double seconds() { return cupola::emulator::device_seconds(0); }
constexpr int max_steps = 3;
/// The samples of a step that stands for one of `batch`: a step of a few has the launches of a large one, and the same time by that clock;
/// this processor computes it sooner.
constexpr std::int64_t samples_of(std::int64_t batch) { return std::min<std::int64_t>(batch, 4); }
#else
inline double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
constexpr int max_steps = std::numeric_limits<int>::max();
constexpr std::int64_t samples_of(std::int64_t batch) { return batch; }
#endif

/// For each line of the input, a number of steps, prints the seconds per step of run(steps) and the loss that it returns.
template <class Run>
void serve_turns(Run&& run) {
    char line[64];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        const int steps = std::min(std::atoi(line), max_steps);
        const double start = seconds();
        const double loss = run(steps);
        std::printf("{\"seconds\": [%.9f], \"loss\": %.6f}\n", (seconds() - start) / steps, loss);
        std::fflush(stdout);
    }
}

}  // namespace gpu_bench
