// SPDX-License-Identifier: Apache-2.0
//
// A program that is compiled with -ffast-math, and so may take every number for finite, gets the errors that it gets without:
// numbers that are not finite in its data, its options and the results of a training.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <cupola/data/batches.hpp>
#include <cupola/data/csv.hpp>
#include <cupola/data/evaluation.hpp>
#include <cupola/data/in_memory.hpp>
#include <cupola/data/standardization.hpp>
#include <cupola/data/weighted_order.hpp>
#include <cupola/host.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/loss/binary_cross_entropy.hpp>
#include <cupola/metrics/auc.hpp>
#include <cupola/metrics/metric.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/optim/sgd.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/parallel/data_parallel.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/train/fit.hpp>
#include <cupola/train/log_every.hpp>

using namespace cupola;

namespace {

// The bits of numbers that the compiler does not know.
const volatile std::uint32_t nan_bits = 0x7FC0'0000U, infinity_bits = 0x7F80'0000U;
int failures = 0;

void expect(bool condition, const std::string& what) {
    if (condition) return;
    std::printf("%s\n", what.c_str());
    ++failures;
}

template <class Function>
void expect_error(const std::string& message, Function&& function) {
    try {
        function();
        expect(false, "not thrown: " + message);
    } catch (const Error& error) {
        expect(std::string(error.what()).find(message) != std::string::npos,
               "thrown: " + std::string(error.what()) + "\nand not: " + message);
    }
}

struct Net : Sequential<Input<2>, Linear<1>> {};
using Training = DataParallel<Net, BinaryCrossEntropy, Sgd, ConcatMean, Host>;

// A metric whose value is NaN, and one whose value is a number in the first record only.
struct NotANumber {
    float nan = 0;
    int* records = nullptr;
    void begin(const MetricTask&) {}
    void add(const MetricBatch&) { ++*records; }
    void report(MetricResults& results) const {
        results.add("never", static_cast<double>(nan), Better::larger);
        results.add("once", *records <= 1 ? 0.5 : static_cast<double>(nan), Better::larger);
    }
};

}  // namespace

int main(int argc, char** argv) {
    const auto nan = std::bit_cast<float>(std::uint32_t{nan_bits}),
               infinity = std::bit_cast<float>(std::uint32_t{infinity_bits});
    const std::string file = std::string(argc > 1 ? argv[1] : ".") + "/fast_math.csv";

    std::vector<float> samples(32), targets(16);
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<float>(i % 7) - 3.0F;
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<float>(i % 2);
    const auto with = [](std::vector<float> values, float value) {
        values[3] = value;
        return values;
    };

    for (const float value : {nan, infinity}) {
        const std::vector<float> bad = with(targets, value);
        expect_error(text(value, " in its column target at sample 3"), [&] { InMemory({2}, samples, {1}, bad); });
    }
    for (const char* value : {"nan", "-inf"}) {
        std::ofstream(file) << "a,b,label\n1," << value << ",x\n2,3,y\n";
        expect_error(text("\"", value, "\" is not finite"), [&] { (void)read_csv(file, {.label = "label"}); });
    }
    std::remove(file.c_str());
    const std::vector<float> infinite = with(samples, infinity);
    expect_error("column 1 of the input of sample 1 of the data set",
                 [&] { (void)Standardization::of(InMemory({2}, infinite, {1}, targets)); });
    expect_error("of a standardization must be finite, not nan", [&] { Standardization({0, nan}, {1, 1}); });
    expect_error("the weight of sample 1", [&] {
        const std::vector<double> weights{1, static_cast<double>(nan)};
        WeightedOrder(weights, 1);
    });
    expect_error("a learning rate must be at least 0, not nan", [&] { const Schedule rate(nan); });
    expect_error("not nan", [&] { (void)LossAverages({.decay = static_cast<double>(nan)}); });
    expect(loss_text(nan) == "nan" && text(nan) == "nan" && text(-infinity) == "-inf",
           "the text of a NaN is " + text(nan));

    const Training::Options options{.batch_size = 16, .seed = 1, .optimizer = {.learning_rate = 0.1}};
    expect_error("momentum",
                 [&] { Training({.batch_size = 8, .optimizer = {.learning_rate = 0.1, .momentum = nan}}); });
    const InMemory data({2}, samples, {1}, targets);
    InMemoryBatches batches(data, {.batch_size = 16, .seed = 1});
    {
        Training training(options);
        const std::vector<float> with_nan = with(samples, nan);
        const InMemory bad({2}, with_nan, {1}, targets);
        InMemoryBatches all(bad, {.batch_size = 16, .seed = 1});
        expect_error("is not finite", [&] { (void)training.step(all); });
    }
    {
        Training training(options);
        int records = 0;
        const auto fitted = [&](const char* quantity) {
            records = 0;
            EvaluationBatches test(data, IdentityTransform{}, 16);
            return fit(training, batches,
                       {.epochs = 3, .validation = test, .metrics = {NotANumber{nan, &records}}, .quantity = quantity});
        };
        expect(!fitted("never").best, "a record whose metric is NaN is the best one");
        expect(fitted("once").best == 0, "a record whose metric is NaN is better than one whose metric is a number");
        TrainingState state = training.state();
        state.parameters[0] = nan;
        expect_error("a state must be finite", [&] { training.restore(state); });
    }
    if (failures == 0) std::printf("the errors are those of a program without -ffast-math\n");
    return failures == 0 ? 0 : 1;
}
