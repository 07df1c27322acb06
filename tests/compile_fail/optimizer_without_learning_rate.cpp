// SPDX-License-Identifier: Apache-2.0
//
// An optimiser without the function of its learning rate, which the report needs.
//
// expect: Descent is not an optimiser on Host: it lacks `double learning_rate_at(std::int64_t step) const`
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct Descent {
    [[nodiscard]] int state_arenas() const { return 0; }
#ifndef WITH_ERROR
    [[nodiscard]] double learning_rate_at(std::int64_t) const { return 0.1; }
#endif
    [[nodiscard]] std::string_view state_name(int) const { return "none"; }
    [[nodiscard]] std::string description() const { return "descent"; }
    template <class Device>
    void update(const Update<Device>&) const {}
};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Descent, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
