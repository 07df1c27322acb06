// SPDX-License-Identifier: Apache-2.0
//
// A layer whose operation computes nothing.
//
// expect: layer 2 (double, Twice) has no forward on Host: its operation lacks `void forward(const ForwardArgs&)`
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Twice {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    struct Operation {
#ifndef WITH_ERROR
        void forward(const ForwardArgs<Host>&) {}
#endif
        void backward(const BackwardArgs<Host>&) {}
    };
    static Operation operation(const BuildContext<Host>&) { return {}; }
};
struct Net : Sequential<Input<4>, Linear<8>, Named<"double", Twice>, Linear<3>> {};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
