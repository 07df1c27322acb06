// SPDX-License-Identifier: Apache-2.0
//
// Misspelt options. Of `{.batchsize = 8}` as an argument compilers say only that no function takes it: the declaration that they show
// says what to write, and with the type of the options they name the member.
//
// expect: has no non-static data member named 'batchsize'
// expect: has no non-static data member named 'weights'
// expect: has no non-static data member named 'lr'
// expect: Adam' has no non-static data member named 'rate'
// expect: has no non-static data member named 'smoothing'
// expect: has no non-static data member named 'step'
// expect: has no non-static data member named 'batch'
// expect: has no non-static data member named 'worker'
// expect: has no non-static data member named 'frequency'
// expect: DataParallel<...>::Options{...} names it
// expect: FitOptions<Training>{...} names it
// expect: BatchOptions{...} names it
// expect-clang: field designator 'batchsize' does not refer to any field
// expect-clang: field designator 'weights' does not refer to any field
// expect-clang: field designator 'lr' does not refer to any field
// expect-clang: field designator 'rate' does not refer to any field
// expect-clang: field designator 'smoothing' does not refer to any field
// expect-clang: field designator 'step' does not refer to any field
// expect-clang: field designator 'batch' does not refer to any field
// expect-clang: field designator 'worker' does not refer to any field
// expect-clang: field designator 'frequency' does not refer to any field
// expect-clang: DataParallel<...>::Options{...} names it
// expect-clang: FitOptions<Training>{...} names it
// expect-clang: BatchOptions{...} names it
// errors-at-most: 12
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<3>> {};
using Training = DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host>;

void run(const InMemory& data, Training& training, InMemoryBatches& batches) {
#ifdef WITH_ERROR
    Training first(Training::Options{.batchsize = 8});
    Training second(Training::Options{.loss = {.weights = {}}});
    Training third(Training::Options{.optimizer = {.lr = 0.1}});
    const Adam adam{.rate = 0.1};
    const CrossEntropy<3> loss{.smoothing = 0.1F};
    fit(training, batches, FitOptions<Training>{.step = 10});
    InMemoryBatches fourth(data, BatchOptions{.batch = 8});
    Prefetch fifth(TrainingBatches(data, AsStored{}, {}), PrefetchOptions{.worker = 1});
    LogEvery log(LogOptions{.frequency = 5});
    Training sixth({.batchsize = 8});
    fit(training, batches, {.step = 10});
    InMemoryBatches seventh(data, {.batch = 8});
#else
    Training first(Training::Options{.batch_size = 8});
    Training second(
        {.batch_size = 8, .loss = {.data = {.label_smoothing = 0.1F}}, .optimizer = {.learning_rate = 0.1}});
    const Adam adam{.learning_rate = 0.1};
    const CrossEntropy<3> loss{.label_smoothing = 0.1F};
    fit(training, batches, FitOptions<Training>{.steps = 10});
    InMemoryBatches fourth(data, BatchOptions{.batch_size = 8});
    Prefetch fifth(TrainingBatches(data, AsStored{}, {}), PrefetchOptions{.workers = 1});
    LogEvery log(LogOptions{.every = 5});
#endif
}
