// SPDX-License-Identifier: Apache-2.0
//
// A compressed policy whose function has another name.
//
// expect: Middle is not an averaging policy on Host: it lacks `void average(Context&, const GradientRows&, std::span<float>) const`
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct Middle {
    static constexpr std::string_view name = "middle";
    void middle(HostContext&, const GradientRows&, std::span<float>) const {}
};

#ifdef WITH_ERROR
using Averaging = Compressed<Middle>;
#else
using Averaging = Compressed<ConcatMean>;
#endif

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, Averaging, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
