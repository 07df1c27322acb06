// SPDX-License-Identifier: Apache-2.0
//
// alone: these headers must not be included by another case. An inspector that uses what it is given, by its type or
// without one, Synchronized, the file of a history, metrics, and networks in parts are declared without them: what
// calls, runs and writes these is not in cupola.hpp.
//
// expect: a step with an inspector needs #include <cupola/parallel/inspection.hpp>
// expect: a policy that synchronizes the statistics of batch normalisation needs #include <cupola/parallel/synchronized.hpp>
// expect: write_csv() of a history needs #include <cupola/io/atomic_file.hpp>
// expect: metrics need #include <cupola/metrics/metric.hpp>; <cupola/metrics.hpp> has them all
// expect: an evaluation with metrics needs #include <cupola/metrics/metric.hpp>
// expect: a training of a network in parts needs #include <cupola/parallel/pipeline.hpp>
// errors-at-most: 6
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/net/pipeline/split.hpp>
#ifndef WITH_ERROR
#include <cupola/io/atomic_file.hpp>
#include <cupola/metrics/metric.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/pipeline.hpp>
#include <cupola/parallel/synchronized.hpp>
#endif

using namespace cupola;

struct Net : Sequential<Input<8>, Linear<4>> {};
using Training = DataParallel<Net, CrossEntropy<4>, Sgd, ConcatMean, Host>;

struct Batches {
    BatchView operator()(std::int64_t, int, HostContext&) const { return {}; }
};

std::size_t parameters_of(const Inspection<Host>& inspection) { return inspection.parameters().size(); }

std::size_t inspect(Training& training, const Batches& batches) {
    std::size_t size = 0;
    training.step(batches, [&](const auto& inspection) {
        size = inspection.averaged_gradient().size() + parameters_of(inspection);
    });
    return size;
}

struct Normalized : Sequential<Input<4, 4, 1>, Conv2d<8, 3>, BatchNorm2d<>, Flatten, Linear<4>> {};

void train(InMemoryBatches& batches) {
    DataParallel<Normalized, CrossEntropy<4>, Sgd, ConcatMean, Host, Synchronized> training({.replicas = 2});
    fit(training, batches, {.steps = 3});
}

void keep(const History& history) { history.write_csv("history.csv"); }

struct Count {
    void begin(const auto&) { count = 0; }
    void add(const auto& batch) { count += batch.size; }
    void report(auto& results) const { results.add("count", static_cast<double>(count), {}); }
    std::int64_t count = 0;
};

double count_of(Training& training, const InMemory& data) {
    EvaluationBatches test(data, IdentityTransform{}, 8);
    return evaluate(training, test, Count{}).metric("count");
}

std::int64_t samples_of(Training& training, const InMemory& data) {
    std::int64_t samples = 0;
    EvaluationBatches test(data, IdentityTransform{}, 8);
    training.evaluate(test, test.count(), Weights::trained, [&](const auto& batch) { samples += batch.size; });
    return samples;
}

struct Deep : Sequential<Input<4, 4, 1>, Conv2d<4, 3>, ReLU, Conv2d<4, 3>, Flatten, Linear<4>> {};
struct Halves : Split<Deep, 2> {};

void train_in_parts(InMemoryBatches& batches) {
    DataParallel<Halves, CrossEntropy<4>, Sgd, ConcatMean, Host> training({.devices = 2});
    fit(training, batches, {.steps = 3});
}
