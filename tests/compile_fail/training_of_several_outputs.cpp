// SPDX-License-Identifier: Apache-2.0
//
// A network with two ends, for whose first a training has no loss.
//
// expect: the network has 2 outputs, and a training has one loss: take out Output<kind>
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8>, Linear<8>, Output<"kind">, ReLU, Linear<3>> {};
#else
struct Net : Sequential<Input<8>, Linear<8>, ReLU, Linear<3>, Output<"kind">> {};
#endif
using Training = DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host>;

void run() { Training training({.batch_size = 8}); }
