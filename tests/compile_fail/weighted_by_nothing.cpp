// SPDX-License-Identifier: Apache-2.0
//
// A loss that counts with a factor of 0.
//
// expect: the factor of a Weighted loss must be finite and more than 0; that of huber is not
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<2>> {};

#ifdef WITH_ERROR
using Loss = Weighted<0, Huber<>>;
#else
using Loss = Weighted<0.5, Huber<>>;
#endif

void run(const BatchView& batch) {
    DataParallel<Net, Loss, Sgd, ConcatMean, Host> training({.batch_size = 8});
    training.step(std::span(&batch, 1));
}
