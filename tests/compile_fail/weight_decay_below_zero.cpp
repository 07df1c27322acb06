// SPDX-License-Identifier: Apache-2.0
//
// A weight decay that lets weights grow.
//
// expect: the coefficient of WeightDecayAll must be finite and at least 0
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<2>> {};

#ifdef WITH_ERROR
using Loss = LossCollection<CrossEntropy<2>, WeightDecayAll<-0.1>>;
#else
using Loss = LossCollection<CrossEntropy<2>, WeightDecayAll<0.1>>;
#endif

void run(const BatchView& batch) {
    DataParallel<Net, Loss, Sgd, ConcatMean, Host> training({.batch_size = 8});
    training.step(std::span(&batch, 1));
}
