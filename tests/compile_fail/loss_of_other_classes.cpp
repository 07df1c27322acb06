// SPDX-License-Identifier: Apache-2.0
//
// A loss for ten classes on a network that tells three apart.
//
// expect: CrossEntropy<10> expects an output of 10, or of 10 channels at each position, but the network's is 3
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

#ifdef WITH_ERROR
using Loss = CrossEntropy<10>;
#else
using Loss = CrossEntropy<3>;
#endif

void run(const InMemory& data) {
    DataParallel<Net, Loss, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
