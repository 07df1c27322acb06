// SPDX-License-Identifier: Apache-2.0
//
// bench_step_bfloat16 on an emulated H200, for tests/gpu/run --emulated: that the programs and the command work is tried without a GPU.
// The libraries compute nothing and a step has a few samples, so that it takes a fraction of a second. Times are those of the emulator's
// clock, by which the calls of libraries take microseconds, as on a GPU and not as in the emulator's tests; they say nothing of a GPU.
// No launch of the step takes less than its bound at batch 128 on the page of predictions.
#define CUPOLA_BENCH_CUPTI
#define CUPOLA_BENCH_EMULATED
#define CUPOLA_BENCH_NAME "bench_step_bfloat16"
#define CUPOLA_BENCH_PRECISION MixedBFloat16

#include "../../emulator/control.hpp"
#include "../../emulator/cudnn_engines.hpp"

namespace {

[[maybe_unused]] const bool prepared = [] {
    namespace emulator = cupola::emulator;
    constexpr int multiprocessors = 4;  // as many blocks of a cooperative grid take turns
    emulator::set_devices(1);
    emulator::set_multiprocessors(multiprocessors);
    emulator::set_memory(std::size_t{141} * 1'000'000'000);
    constexpr double kernel_seconds = 3.6e-6, convolution_time = 0.055, product_time = 0.036;
    emulator::set_kernel_seconds(kernel_seconds);
    for (std::int64_t engine = 0; engine < emulator::engine_count; ++engine) {
        const double own = emulator::cudnn_engine_kind(engine, emulator::ElementKind::bfloat16).seconds;
        emulator::set_engine_behavior(engine, emulator::EngineBehavior{.seconds = convolution_time * own});
    }
    for (std::int64_t parts = 1; parts <= 3; ++parts) {
        emulator::set_product_behavior(
            parts, emulator::EngineBehavior{.seconds = product_time * emulator::product_behavior(parts).seconds});
    }
    emulator::set_runs(emulator::Runs::no_libraries);
    return true;
}();

}  // namespace

#include "../../../standard.hpp"
#include "step.cu"
