// SPDX-License-Identifier: Apache-2.0
//
// A loss of other classes than its output has.
//
// expect: CrossEntropy<4> expects an output of 4
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<8>, Linear<8>, ReLU, Keep<"body">, Linear<3>, Output<"kind">, From<"body">, Linear<4>,
                        Output<"box">> {};

#ifdef WITH_ERROR
using Loss = Losses<At<"kind", CrossEntropy<4>>, At<"box", MeanSquaredError>>;
#else
using Loss = Losses<At<"kind", CrossEntropy<3>>, At<"box", MeanSquaredError>>;
#endif

void run() { DataParallel<Net, Loss, Sgd, ConcatMean, Host> training({.batch_size = 8}); }
