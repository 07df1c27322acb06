// SPDX-License-Identifier: Apache-2.0
//
// Patterns of Frozen that leave nothing to train, and a training with them: one message.
//
// expect: Frozen leaves no parameter to train: its patterns match all of the network's
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/net/frozen.hpp>

using namespace cupola;

struct Net : Sequential<Input<5>, Named<"body", Linear<8>>, ReLU, Named<"head", Linear<3>>> {};

#ifdef WITH_ERROR
struct Tuned : Frozen<Net, "body.*", "*.weight", "head.bias"> {};
#else
struct Tuned : Frozen<Net, "body.*", "*.weight"> {};
#endif

void run(const InMemory& data) {
    DataParallel<Tuned, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
