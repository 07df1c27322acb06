// SPDX-License-Identifier: Apache-2.0
//
// A Huber loss that is nowhere quadratic.
//
// expect: the delta of Huber must be positive and finite
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<2>> {};

#ifdef WITH_ERROR
using Loss = Huber<0>;
#else
using Loss = Huber<0.5>;
#endif

void run(const BatchView& batch) {
    DataParallel<Net, Loss, Sgd, ConcatMean, Host> training({.batch_size = 8});
    training.step(std::span(&batch, 1));
}
