// SPDX-License-Identifier: Apache-2.0
//
// A type in place of the network that is not a network.
//
// expect: Linear<3> is not a network: use a Sequential, or a struct that derives from one
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

#ifdef WITH_ERROR
using Trained = Linear<3>;
#else
using Trained = Net;
#endif

void run(const InMemory& data) {
    DataParallel<Trained, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
