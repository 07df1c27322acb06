// SPDX-License-Identifier: Apache-2.0
//
// Weight decay that names no layer.
//
// expect: WeightDecay names no layer; name at least one, as in WeightDecay<0.004, 'local3'>
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Named<"hidden", Linear<8>>, ReLU, Linear<3>> {};

#ifdef WITH_ERROR
using Decay = WeightDecay<0.004>;
#else
using Decay = WeightDecay<0.004, "hidden">;
#endif

void run(const InMemory& data) {
    DataParallel<Net, LossCollection<CrossEntropy<3>, Decay>, Sgd, ConcatMean, Host> training(
        {.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
