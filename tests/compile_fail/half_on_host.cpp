// SPDX-License-Identifier: Apache-2.0
//
// Host computes nothing in IEEE's half, which is Cuda's.
//
// expect: layer 1 (Linear<8>) has no `static auto operation(const BuildContext&)` for Host in float16
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};
#ifdef WITH_ERROR
struct Computed : InPrecision<MixedFloat16, Net> {};
#else
struct Computed : InPrecision<MixedBFloat16, Net> {};
#endif

void run(const InMemory& data) {
    DataParallel<Computed, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
