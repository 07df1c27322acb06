// SPDX-License-Identifier: Apache-2.0
//
// alone: these headers must not be included by another case. An inspector that uses what it is given, by its type or
// without one, Synchronized, and the file of a history are declared without them: what calls, runs and writes these is
// not in cupola.hpp.
//
// expect: a step with an inspector needs #include <cupola/parallel/inspection.hpp>
// expect: a policy that synchronizes the statistics of batch normalisation needs #include <cupola/parallel/synchronized.hpp>
// expect: write_csv() of a history needs #include <cupola/io/atomic_file.hpp>
// errors-at-most: 3
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#ifndef WITH_ERROR
#include <cupola/io/atomic_file.hpp>
#include <cupola/parallel/inspection.hpp>
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
