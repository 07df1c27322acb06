// SPDX-License-Identifier: Apache-2.0
//
// Weights of nine classes at positions of which each has four channels.
//
// expect: WeightedCrossEntropy<9> expects an output of 9, or of 9 channels at each position, but the network's is 6 x 6 x 4
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<6, 6, 3>, Conv2d<4, 3>> {};

#ifdef WITH_ERROR
using Loss = WeightedCrossEntropy<9>;
#else
using Loss = WeightedCrossEntropy<4>;
#endif

void run(const BatchView& batch) {
    DataParallel<Net, Loss, Sgd, ConcatMean, Host> training({.batch_size = 8});
    training.step(std::span(&batch, 1));
}
