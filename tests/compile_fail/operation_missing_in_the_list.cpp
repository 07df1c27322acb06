// SPDX-License-Identifier: Apache-2.0
//
// An operation of Cupola that compiled_operations.hpp does not list, in a program that is compiled separately.
//
// expect: layer 2 (Forgetful) has no `static auto operation(const BuildContext&)` for Host
// errors-at-most: 1
#define CUPOLA_SEPARATE_COMPILATION
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

template <class Device, class T>
class Forgotten;

// The class is in a header of ops/host/ that such a program does not include.
#ifndef WITH_ERROR
template <class T>
class Forgotten<Host, T> {
public:
    explicit Forgotten(const BuildContext<Host, T>&) {}
    void forward(const ForwardArgs<Host, T>&) const {}
    void backward(const BackwardArgs<Host, T>&) const {}
};
#endif

struct Forgetful {
    static constexpr ShapeResult output(const Shape& input) { return input; }

    template <class BuildContext>
    static FactoryOf<Forgotten, BuildContext> operation(const BuildContext&) {
        return {};
    }
};

struct Net : Sequential<Input<4>, Linear<8>, Forgetful, Linear<3>> {};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
