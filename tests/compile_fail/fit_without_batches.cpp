// SPDX-License-Identifier: Apache-2.0
//
// A data set where its batches belong.
//
// expect: InMemory is not a source of batches: fit calls it with (step, replica, context) and needs a BatchView, as from Prefetch or InMemoryBatches
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
#ifdef WITH_ERROR
    fit(training, data, {.steps = 10}, LogEvery{5});
#else
    fit(training, batches, {.steps = 10}, LogEvery{5});
#endif
}
