// SPDX-License-Identifier: Apache-2.0
//
// Two losses at one output.
//
// expect: Losses has two losses at the output kind
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<8>, Linear<8>, ReLU, Keep<"body">, Linear<3>, Output<"kind">, From<"body">, Linear<4>,
                        Output<"box">> {};

#ifdef WITH_ERROR
using Loss = Losses<At<"kind", CrossEntropy<3>>, At<"kind", CrossEntropy<3>>>;
#else
using Loss = Losses<At<"kind", CrossEntropy<3>>, At<"box", MeanSquaredError>>;
#endif

void run() { DataParallel<Net, Loss, Sgd, ConcatMean, Host> training({.batch_size = 8}); }
