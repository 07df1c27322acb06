// SPDX-License-Identifier: Apache-2.0
//
// A device without a way to bring numbers to it.
//
// expect: Bare is not a device: it lacks `copy_from_host` or `copy_to_host` of (Context&, std::byte* to, const std::byte* from, std::size_t)
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

#ifdef WITH_ERROR
struct Bare : Host {
    static void copy_from_host() = delete;
};
#else
using Bare = Host;
#endif

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Bare> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
