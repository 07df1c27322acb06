// SPDX-License-Identifier: Apache-2.0
//
// A formula that is given the gradient by reference.
//
// expect: a formula must be a function object of plain numbers with `void operator()(float& w, float g, float&... state) const`
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct DescentFormula {
    float rate;
#ifdef WITH_ERROR
    void operator()(float& w, const float& g) const { w -= rate * g; }
#else
    void operator()(float& w, float g) const { w -= rate * g; }
#endif
};

struct Descent {
    [[nodiscard]] int state_arenas() const { return 0; }
    [[nodiscard]] std::string_view state_name(int) const { return "none"; }
    [[nodiscard]] std::string description() const { return "descent"; }
    [[nodiscard]] double learning_rate_at(std::int64_t) const { return 0.1; }
    template <class Apply>
    void formula(std::int64_t, const Segment&, Apply&& apply) const {
        apply(DescentFormula{0.1F});
    }
};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Descent, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}
