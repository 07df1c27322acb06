// SPDX-License-Identifier: Apache-2.0
//
// A source that fills batches, without Prefetch, which has their memory.
//
// expect: has no memory for its batches: write Prefetch batches(TrainingBatches(...)), or Prefetch around another source
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.batch_size = 8});
#ifdef WITH_ERROR
    TrainingBatches batches(data, IdentityTransform{}, {.batch_size = 8});
#else
    Prefetch batches(TrainingBatches(data, IdentityTransform{}, {.batch_size = 8}));
#endif
    fit(training, batches, {.steps = 10});
}
