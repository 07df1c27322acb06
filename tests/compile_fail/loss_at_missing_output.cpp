// SPDX-License-Identifier: Apache-2.0
//
// A loss at an output that the network does not have.
//
// expect: Losses has a loss at the output boxes, but the outputs of the network are: kind, box
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<8>, Linear<8>, ReLU, Keep<"body">, Linear<3>, Output<"kind">, From<"body">, Linear<4>,
                        Output<"box">> {};

#ifdef WITH_ERROR
using Loss = Losses<At<"kind", CrossEntropy<3>>, At<"boxes", MeanSquaredError>>;
#else
using Loss = Losses<At<"kind", CrossEntropy<3>>, At<"box", MeanSquaredError>>;
#endif

void run() { DataParallel<Net, Loss, Sgd, ConcatMean, Host> training({.batch_size = 8}); }
