// SPDX-License-Identifier: Apache-2.0
//
// A hook that takes something else: it would never be called.
//
// expect: Stop::on_step cannot be called as `on_step(const StepReport&, Run&)`
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct Stop {
#ifdef WITH_ERROR
    void on_step(const Evaluation&, Run& run) { run.stop = true; }
#else
    void on_step(const StepReport&, Run& run) { run.stop = true; }
#endif
};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5}, Stop{});
}
