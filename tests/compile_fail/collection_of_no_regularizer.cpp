// SPDX-License-Identifier: Apache-2.0
//
// Something in a loss collection that is not a regulariser.
//
// expect: Dropout<0.5> is not a regulariser: it lacks `names`, `value` or `static constexpr CompileTimeMessage diagnostic(std::span<const LayerInfo>)`
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Named<"hidden", Linear<8>>, ReLU, Linear<3>> {};

#ifdef WITH_ERROR
using Decay = Dropout<0.5>;
#else
using Decay = WeightDecay<0.004, "hidden">;
#endif

void run(const InMemory& data) {
    DataParallel<Net, LossCollection<CrossEntropy<3>, Decay>, Sgd, ConcatMean, Host> training(
        {.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
