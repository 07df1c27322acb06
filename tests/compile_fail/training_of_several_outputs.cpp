// SPDX-License-Identifier: Apache-2.0
//
// One loss for a network with two outputs.
//
// expect: the network has the outputs kind, box, and the loss cross_entropy is of one: use Losses with an At for each output
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<8>, Linear<8>, ReLU, Keep<"body">, Linear<3>, Output<"kind">, From<"body">, Linear<4>,
                        Output<"box">> {};

#ifdef WITH_ERROR
using Loss = CrossEntropy<4>;
#else
using Loss = Losses<At<"kind", CrossEntropy<3>>, At<"box", MeanSquaredError>>;
#endif

void run() { DataParallel<Net, Loss, Sgd, ConcatMean, Host> training({.batch_size = 8}); }
