// SPDX-License-Identifier: Apache-2.0
//
// A type in place of the device that is not a device.
//
// expect: HostContext is not a device: it lacks `static constexpr std::string_view name`
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

#ifdef WITH_ERROR
using D = HostContext;
#else
using D = Host;
#endif

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, D> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
