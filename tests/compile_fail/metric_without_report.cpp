// SPDX-License-Identifier: Apache-2.0
//
// A metric that does not say its result.
//
// expect: Count is not a metric: it lacks `void report(MetricResults&) const`
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct Count {
    std::int64_t count = 0;
    void begin(const MetricTask&) { count = 0; }
    void add(const MetricBatch& batch) { count += batch.size; }
#ifdef WITH_ERROR
    double report() const { return static_cast<double>(count); }
#else
    void report(MetricResults& results) const { results.add("count", static_cast<double>(count), Better::larger); }
#endif
};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    evaluate(training, EvaluationBatches(data, IdentityTransform{}, 8), Count{});
}
