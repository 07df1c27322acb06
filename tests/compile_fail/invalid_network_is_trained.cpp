// SPDX-License-Identifier: Apache-2.0
//
// A network with an error that is trained nevertheless: the training adds no second message.
//
// expect: layer 1 (Linear<8>) expects one extent, the features: put Flatten before it; its input is 2 x 2 x 1 from the Input
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<2, 2, 1>, Linear<8>, ReLU, Linear<3>> {};
#else
struct Net : Sequential<Input<2, 2, 1>, Flatten, Linear<8>, ReLU, Linear<3>> {};
#endif

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
