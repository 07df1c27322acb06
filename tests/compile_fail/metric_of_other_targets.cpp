// SPDX-License-Identifier: Apache-2.0
//
// A metric of numbers in the validations of a network that is trained with class labels.
//
// expect: metrics::MeanAbsoluteError compares the output with targets (float32) of its extents; the output is 3, and the loss reads int32 1
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    EvaluationBatches test(data, IdentityTransform{}, 8);
#ifdef WITH_ERROR
    fit(training, batches, {.epochs = 2, .validation = test, .metrics = {metrics::MeanAbsoluteError{}}});
#else
    fit(training, batches, {.epochs = 2, .validation = test, .metrics = {metrics::Accuracy{}}});
#endif
}
