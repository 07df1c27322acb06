// SPDX-License-Identifier: Apache-2.0
//
// A layer that has extents and no operation.
//
// expect: layer 2 (double, Twice) has no `static auto operation(const BuildContext&)` for Host
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
#ifndef WITH_ERROR
    static Operation operation(const BuildContext<Host>&) { return {}; }
#endif
};
struct Net : Sequential<Input<4>, Linear<8>, Named<"double", Twice>, Linear<3>> {};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
