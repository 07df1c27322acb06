// SPDX-License-Identifier: Apache-2.0
//
// A loss that does not state which outputs it accepts.
//
// expect: Hinge is not a loss on Host: it lacks `static constexpr CompileTimeMessage diagnostic(const Shape& output)`
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct Hinge {
    static constexpr std::string_view name = "hinge";
#ifndef WITH_ERROR
    static constexpr CompileTimeMessage diagnostic(const Shape&) { return {}; }
#endif
    using Target = std::int32_t;
    static constexpr Shape target(const Shape&) { return {1}; }
    struct Operation {
        LossResult forward(HostContext&, const float*, const std::int32_t*, std::int64_t, float*) const { return {}; }
    };
    template <class Device>
    [[nodiscard]] Operation operation() const {
        return {};
    }
};

void run(const InMemory& data) {
    DataParallel<Net, Hinge, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
