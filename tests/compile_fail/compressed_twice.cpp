// SPDX-License-Identifier: Apache-2.0
//
// A policy that compresses a policy that compresses.
//
// expect: Compressed cannot wrap Compressed<ConcatMean, bfloat16>, whose gradients are compressed already
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

#ifdef WITH_ERROR
using Averaging = Compressed<Compressed<ConcatMean>>;
#else
using Averaging = Compressed<ConcatMean>;
#endif

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, Averaging, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
