// SPDX-License-Identifier: Apache-2.0
//
// An operation of Cupola's that cupola::ops does not have compiled, in a program that links to it.
//
// expect: cupola::ops lacks this operation: it is missing in <cupola/compiled_operations.hpp>
// errors-at-most: 1
#define CUPOLA_OPS
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

#ifdef WITH_ERROR
namespace cupola {
inline namespace CUPOLA_ABI {
namespace ops {
#endif

template <class Device, class T>
struct Forgotten {
    explicit Forgotten(const BuildContext<Device, T>&) {}
    void forward(const ForwardArgs<Device, T>&) const {}
    void backward(const BackwardArgs<Device, T>&) const {}
};

#ifdef WITH_ERROR
}  // namespace ops
}  // namespace CUPOLA_ABI
}  // namespace cupola
using ops::Forgotten;
#endif

struct Forgetful {
    static constexpr ShapeResult output(const Shape& input) { return input; }

    template <class BuildContext>
    static Forgotten<typename BuildContext::DeviceType, typename BuildContext::Element> operation(
        const BuildContext& build) {
        return Forgotten<typename BuildContext::DeviceType, typename BuildContext::Element>(build);
    }
};

struct Net : Sequential<Input<4>, Linear<8>, Forgetful, Linear<3>> {};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
