// SPDX-License-Identifier: Apache-2.0
//
// alone: the header of the state must not be included by another case. What state() needs is not in cupola.hpp.
//
// expect: state() and restore() of a training need #include <cupola/parallel/state_transfer.hpp>
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#ifndef WITH_ERROR
#include <cupola/parallel/state_transfer.hpp>
#endif

using namespace cupola;

struct Net : Sequential<Input<8>, Linear<4>> {};
using Training = DataParallel<Net, CrossEntropy<4>, Sgd, ConcatMean, Host>;

void give_back(Training& training, const TrainingState& state) { training.restore(state); }
void give_back_a_copy(Training& training) {
    const TrainingState state = training.state();
    auto copy = state;
    copy.step = 0;
    training.restore(copy);
}
void fit_and_keep_the_best(Training& training, InMemoryBatches& batches) {
    fit(training, batches, {.epochs = 3, .restore_best = true});
}
