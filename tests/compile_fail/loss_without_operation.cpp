// SPDX-License-Identifier: Apache-2.0
//
// A loss that computes nothing.
//
// expect: Hinge is not a loss on Host: it lacks `operation<Device>(const Shape& output)` with `LossResult forward(Context&, const float* outputs, const Target* targets, std::int64_t batch, float* gradient)`
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct Hinge {
    static constexpr std::string_view name = "hinge";
    static constexpr CompileTimeMessage diagnostic(const Shape&) { return {}; }
    using Target = std::int32_t;
    static constexpr Shape target(const Shape&) { return {1}; }
    struct Operation {
        LossResult forward(HostContext&, const float*, const std::int32_t*, std::int64_t, float*) const { return {}; }
    };
#ifndef WITH_ERROR
    template <class Device>
    [[nodiscard]] Operation operation() const {
        return {};
    }
#endif
};

void run(const InMemory& data) {
    DataParallel<Net, Hinge, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
