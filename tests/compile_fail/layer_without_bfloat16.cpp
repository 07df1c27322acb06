// SPDX-License-Identifier: Apache-2.0
//
// A layer that computes in float alone, in a network under bfloat16.
//
// expect: layer 2 (double, Twice) has no `static auto operation(const BuildContext&)` for Host in bfloat16
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Twice {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    struct Operation {
        void forward(const ForwardArgs<Host>&) {}
        void backward(const BackwardArgs<Host>&) {}
    };
    static Operation operation(const BuildContext<Host>&) { return {}; }
};
struct Net : Sequential<Input<4>, Linear<8>, Named<"double", Twice>, Linear<3>> {};
#ifdef WITH_ERROR
struct Computed : InPrecision<MixedBFloat16, Net> {};
#else
struct Computed : InPrecision<Float32, Net> {};
#endif

void run(const InMemory& data) {
    DataParallel<Computed, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
