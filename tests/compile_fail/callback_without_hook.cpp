// SPDX-License-Identifier: Apache-2.0
//
// A callback none of whose functions is a hook.
//
// expect: Stop is not a callback: it has none of `on_begin(Run&)`, `on_step(const StepReport&, Run&)` and `on_end(Run&)`
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct Stop {
#ifdef WITH_ERROR
    void after_step(const StepReport&, Run& run) { run.stop = true; }
#else
    void on_step(const StepReport&, Run& run) { run.stop = true; }
#endif
};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5}, Stop{});
}
