// SPDX-License-Identifier: Apache-2.0
//
// A device without operations: one that is like Host but is not Host.
//
// expect: layer 1 (Linear<8>) has no `static auto operation(const BuildContext&)` for Other
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

#ifdef WITH_ERROR
struct Other : Host {
    static constexpr std::string_view name = "Other";
    using Kernels = Other;
};
#else
using Other = Host;
#endif

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Other> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
