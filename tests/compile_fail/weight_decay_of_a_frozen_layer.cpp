// SPDX-License-Identifier: Apache-2.0
//
// Weight decay of a layer whose weights are frozen.
//
// expect: WeightDecay names the layer body, whose weights are frozen: leave it out, because they cannot decay
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/net/frozen.hpp>

using namespace cupola;

struct Net : Sequential<Input<7>, Named<"body", Linear<8>>, ReLU, Named<"head", Linear<3>>> {};
struct Tuned : Frozen<Net, "body.*"> {};

#ifdef WITH_ERROR
using Decay = WeightDecay<0.004, "head", "body">;
#else
using Decay = WeightDecay<0.004, "head">;
#endif

void run(const InMemory& data) {
    DataParallel<Tuned, LossCollection<CrossEntropy<3>, Decay>, Sgd, ConcatMean, Host> training({.batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
