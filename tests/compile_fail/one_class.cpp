// SPDX-License-Identifier: Apache-2.0
//
// A cross-entropy whose loss is always 0.
//
// expect: CrossEntropy<1> has too few classes
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<1>> {};

#ifdef WITH_ERROR
using Loss = CrossEntropy<1>;
#else
using Loss = MeanSquaredError;
#endif

void run(const BatchView& batch) {
    DataParallel<Net, Loss, Sgd, ConcatMean, Host> training({.batch_size = 8});
    training.step(std::span(&batch, 1));
}
