// SPDX-License-Identifier: Apache-2.0
//
// A policy that moves parameters, whose agreement is not in cupola.hpp.
//
// expect: LocalSgd needs #include <cupola/parallel/agreement/parameter_agreement.hpp>
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#ifndef WITH_ERROR
#include <cupola/parallel/agreement/parameter_agreement.hpp>
#endif

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct LocalSgd {
    static constexpr std::string_view name = "LocalSgd";
    [[nodiscard]] std::int64_t every() const { return 4; }
    void agree(HostContext&, const ParameterRows&) const {}
};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, LocalSgd, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
