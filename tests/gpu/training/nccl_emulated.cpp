// SPDX-License-Identifier: Apache-2.0
//
// NcclAllReduce on emulated GPUs, and what its step calls; and Compressed<NcclAllReduce>: the weighted sum of each device is rounded,
// and the stand-in for NCCL rounds after each addition.
//
// Covers: cupola/parallel/compressed.hpp, cupola/processes/nccl/nccl_collective.hpp
#include "../../test.hpp"

#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/layers/initializer.hpp>
#include <cupola/loss/weighted_cross_entropy.hpp>
#include <cupola/nccl.hpp>
#include <cupola/parallel/compressed.hpp>
#include <cupola/parallel/kinds/one_of.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "../../parallel/kinds/kind_training.hpp"
#include "../emulator/control.hpp"
#include "../emulator/nccl_behavior.hpp"

namespace {

struct Scaled16 : Float32 {
    static constexpr float loss_scale = 64;
};
struct NcclNet
    : InPrecision<Scaled16, Sequential<Input<12>, Named<"hidden", Linear<40>>, ReLU, Named<"out", Linear<3>>>> {};
template <class A, class Loss = CrossEntropy<3>>
using NcclTraining = DataParallel<NcclNet, Loss, Sgd, A, Cuda>;

static_assert(AveragesBuckets<Compressed<NcclAllReduce>, Cuda> && !AveragesRows<Compressed<NcclAllReduce>, Cuda>);
static_assert(agreement_diagnostic<Compressed<NcclAllReduce>, Cuda>().empty());

/// In host memory, which the emulator's devices read.
class NcclBatches {
public:
    NcclBatches() : inputs_(count * 12), labels_(count) {
        initialize(inputs_, normal(1.0), 1, 1, 3, 0);
        for (std::size_t n = 0; n < count; ++n) {
            const float* const x = inputs_.data() + 12 * n;
            labels_[n] = x[0] + x[1] > 0.5F ? 0 : (x[2] * x[3] > 0 ? 1 : 2);
        }
    }
    BatchView operator()(std::int64_t step, int replica, CudaContext&) const {
        constexpr std::int64_t sizes[] = {8, 8, 3, 0};
        const std::int64_t first = (8 * step + 16 * replica) % static_cast<std::int64_t>(count - 8);
        const std::int64_t size = unequal ? sizes[static_cast<std::size_t>(step + replica) % 4] : 8;
        if (size == 0) return {};
        return {inputs_.data() + 12 * first, labels_.data() + first, size, NcclNet::input_shape};
    }
    void set_input(std::size_t element, float value) { inputs_[element] = value; }
    bool unequal = true;

private:
    static constexpr std::size_t count = 256;
    std::vector<float> inputs_;
    std::vector<std::int32_t> labels_;
};

template <class A, class Loss = CrossEntropy<3>>
NcclTraining<A, Loss> nccl_training(int devices, const NcclAllReduce& policy) {
    typename NcclTraining<A, Loss>::Options options;
    options.replicas = 4;
    options.devices = devices;
    options.batch_size = 8;
    options.other_batch_sizes = {3};
    options.seed = 3;
    options.device.deterministic = true;
    options.optimizer = {.learning_rate = 0.2, .momentum = 0.5};
    if constexpr (std::is_same_v<Loss, WeightedCrossEntropy<3>>) options.loss.data.class_weights = {1, 2, 0.5F};
    if constexpr (AgreesOnCentre<A>)
        options.averaging.every = 2;
    else if constexpr (std::is_same_v<A, NcclAllReduce>)
        options.averaging = policy;
    else if constexpr (!std::is_same_v<A, ConcatMean>)
        options.averaging = {.policy = policy};
    return NcclTraining<A, Loss>(options);
}

/// The copies and fills of a step, once the first ones have been captured.
template <class A, class Loss = CrossEntropy<3>>
std::int64_t copies_of_step(int devices, const NcclBatches& batches, const NcclAllReduce& policy = {}) {
    auto training = nccl_training<A, Loss>(devices, policy);
    for (int step = 0; step < 5; ++step) training.step(batches);
    CHECK(training.not_captured() == "");
    emulator::record_work();
    training.step(batches);
    const std::vector<std::string> work = emulator::recorded_work();
    CHECK(!work.empty());
    return std::count(work.begin(), work.end(), "a copy") + std::count(work.begin(), work.end(), "a memset");
}

}  // namespace

TEST_CASE("a step copies nothing by NCCL, and by ConcatMean each row and the mean") {
    using Weighted = WeightedCrossEntropy<3>;
    NcclBatches batches;
    batches.unequal = false;
    for (const int devices : {1, 4}) {
        CAPTURE(devices);
        for (const std::int64_t bucket_bytes : {0, 64}) {
            const NcclAllReduce policy{.bucket_bytes = bucket_bytes};
            CHECK(copies_of_step<NcclAllReduce>(devices, batches, policy) == 0);
            CHECK(copies_of_step<NcclAllReduce, Weighted>(devices, batches, policy) == 0);
            CHECK(copies_of_step<Compressed<NcclAllReduce>>(devices, batches, policy) == 0);
        }
        CHECK(copies_of_step<ConcatMean>(devices, batches) == 4 + devices);
    }
}

TEST_CASE("a step has at most max_groups groups of NCCL's calls per device") {
    const NcclBatches batches;
    const auto groups_of_step = [&](auto training) {
        for (int step = 0; step < 5; ++step) training.step(batches);
        const emulator::NcclCallCounts before = emulator::nccl_call_counts();
        training.step(batches);
        const emulator::NcclCallCounts after = emulator::nccl_call_counts();
        CHECK(after.host_seconds - before.host_seconds == doctest::Approx(50e-6 * (after.groups - before.groups)));
        return after.groups - before.groups;
    };
    for (const int devices : {1, 2}) {
        CAPTURE(devices);
        // The two layers of the network are two buckets; the last one has 123 of the 643 elements.
        for (const auto& [max_groups, expected] : {std::pair{1, 1}, {2, 1}, {6, 2}}) {
            const NcclAllReduce policy{.bucket_bytes = 64, .max_groups = max_groups};
            CHECK(groups_of_step(nccl_training<NcclAllReduce>(devices, policy)) == expected * devices);
            // In 16 bits the weight is summed by a call of its own, in the last group.
            CHECK(groups_of_step(nccl_training<Compressed<NcclAllReduce>>(devices, policy)) == expected * devices);
        }
    }
}

TEST_CASE("the sums of NCCL are divided by the weights of the labels") {
    using Weighted = WeightedCrossEntropy<3>;
    const NcclBatches batches;
    for (const int devices : {1, 2}) {
        CAPTURE(devices);
        auto concat = nccl_training<ConcatMean, Weighted>(1, {});
        auto nccl = nccl_training<NcclAllReduce, Weighted>(devices, {.bucket_bytes = 64});
        for (int step = 0; step < 6; ++step) {
            CHECK(nccl.step(batches).loss == doctest::Approx(concat.step(batches).loss).epsilon(1e-5));
            const std::vector<float> expected = concat.averaged_gradient(), mean = nccl.averaged_gradient();
            float largest = 0, apart = 0;
            for (std::size_t i = 0; i < mean.size(); ++i) {
                largest = std::max(largest, std::abs(expected[i]));
                apart = std::max(apart, std::abs(mean[i] - expected[i]));
            }
            CHECK(apart < 1e-5F * largest);
            nccl.restore(concat.state());
        }
    }
}

TEST_CASE("replicas agree on a centre by the sums of NCCL as by the loops of the rules") {
    // As a program has them that chooses between them when it runs.
    using Choice = OneOf<Periodic<NcclAllReduce>, Periodic<NcclAllReduce, Sgd>, ElasticAveraging<NcclAllReduce>>;
    for (const int devices : {1, 2}) {
        CAPTURE(devices);
        rules::for_each_kind<NcclAllReduce>(3, [&](rules::Rule rule, const auto& averaging) {
            CAPTURE(rules::name_of(rule));
            CHECK(rules::error_of<Cuda>(rules::golden_settings(rule, 4, 3), Choice(averaging), devices) < 1e-6);
        });
        CHECK(rules::error_of<Cuda>(rules::golden_settings(rules::Rule::local_sgd, 4, 3),
                                    Periodic<Compressed<NcclAllReduce>>{.every = 3}, devices) < 2e-2);
    }
}

TEST_CASE("a loss scale of 64 does not change how far the mean of the replicas moves a centre") {
    NcclBatches batches;
    batches.unequal = false;
    const auto check = [&](auto concat, auto nccl) {
        for (int step = 0; step < 5; ++step) {
            concat.step(batches);
            nccl.step(batches);
        }
        const std::vector<float> expected = concat.parameters(), centre = nccl.parameters();
        float apart = 0;
        for (std::size_t i = 0; i < centre.size(); ++i) apart = std::max(apart, std::abs(centre[i] - expected[i]));
        CHECK(apart < 1e-5F);
    };
    for (const int devices : {1, 2}) {
        CAPTURE(devices);
        check(nccl_training<Periodic<ConcatMean>>(1, {}), nccl_training<Periodic<NcclAllReduce>>(devices, {}));
        check(nccl_training<ElasticAveraging<ConcatMean>>(1, {}),
              nccl_training<ElasticAveraging<NcclAllReduce>>(devices, {}));
    }
}

TEST_CASE("a replica without samples is an error where it has parameters of its own, and none before") {
    const NcclBatches batches;
    const auto check = [&](const auto& averaging, std::int64_t first, const std::string& name) {
        using Chosen = std::remove_cvref_t<decltype(averaging)>;
        for (const int devices : {1, 2}) {
            CAPTURE(devices);
            DataParallel<NcclNet, CrossEntropy<3>, Sgd, Chosen, Cuda> training({.replicas = 4,
                                                                                .devices = devices,
                                                                                .batch_size = 8,
                                                                                .other_batch_sizes = {3},
                                                                                .seed = 3,
                                                                                .averaging = averaging});
            for (std::int64_t step = 0; step < first; ++step) CHECK(training.step(batches).samples == 8 + 8 + 3);
            // In step s the replica r has none where s + r is 3 or 7.
            const std::string message = text("replica ", first == 0 ? 3 : 7 - first, " has no samples in step ", first,
                                             ", and on Cuda ", name, " updates each replica with its own samples");
            CHECK_THROWS_WITH_AS(training.step(batches), message.c_str(), InvalidArgument);
        }
    };
    check(Periodic<ConcatMean>{.every = 2, .from_step = 5}, 5, "Periodic");
    check(Periodic<NcclAllReduce>{.every = 2, .from_step = 5}, 5, "Periodic");
    check(ElasticAveraging<ConcatMean>{.every = 2}, 0, "ElasticAveraging");
    check(ElasticAveraging<NcclAllReduce>{.every = 2}, 0, "ElasticAveraging");
}

TEST_CASE("the compressed sum of the ranks is within one rounding per rank and addition of the sum in double") {
    for (const int devices : {1, 2, 4}) {
        for (const std::int64_t bucket_bytes : {0, 64}) {
            CAPTURES(devices, bucket_bytes);
            const NcclBatches batches;
            const NcclAllReduce policy{.bucket_bytes = bucket_bytes};
            auto exact = nccl_training<NcclAllReduce>(devices, policy);
            auto compressed = nccl_training<Compressed<NcclAllReduce>>(devices, policy);
            for (int step = 0; step < 5; ++step) {
                const StepReport report = exact.step(batches);
                CHECK(compressed.step(batches).loss == report.loss);
                const std::vector<float> mean = compressed.averaged_gradient();
                std::vector<double> sum(mean.size()), size(mean.size());
                for (int r = 0; r < 4; ++r) {
                    const auto samples = static_cast<double>(report.replicas[static_cast<std::size_t>(r)].samples);
                    if (samples == 0) continue;
                    const std::vector<float> row = exact.gradient(r);
                    CHECK(compressed.gradient(r) == row);  // rows are not rounded
                    for (std::size_t i = 0; i < row.size(); ++i) {
                        sum[i] += samples / static_cast<double>(report.samples) * static_cast<double>(row[i]);
                        size[i] +=
                            std::abs(samples / static_cast<double>(report.samples) * static_cast<double>(row[i]));
                    }
                }
                std::size_t rounded = 0;
                for (std::size_t i = 0; i < mean.size(); ++i) {
                    const double difference = std::abs(static_cast<double>(mean[i]) - sum[i]);
                    REQUIRE(difference <= devices * 0x1p-8 * 1.01 * size[i] + 1e-7);
                    rounded += difference > 0x1p-16 * std::abs(sum[i]) ? 1 : 0;
                }
                CHECK(rounded > mean.size() / 4);
                compressed.restore(exact.state());
            }
        }
    }
}

TEST_CASE("a training by compressed sums converges as the other one, and reports what is not finite as it does") {
    NcclBatches batches;
    batches.unequal = false;
    auto exact = nccl_training<NcclAllReduce>(2, {});
    auto compressed = nccl_training<Compressed<NcclAllReduce>>(2, {});
    double first = 0, last_exact = 0, last_compressed = 0;
    for (int step = 0; step < 120; ++step) {
        const double one = exact.step(batches).loss, other = compressed.step(batches).loss;
        if (step == 0) first = one;
        if (step >= 100) {
            last_exact += one / 20;
            last_compressed += other / 20;
        }
    }
    CHECK(last_exact < 0.5 * first);
    CHECK(std::abs(last_compressed - last_exact) < 0.02 * first);
    batches.set_input(12 * (8 * (120 % 31) + 16) % (12 * 248) + 5, std::numeric_limits<float>::quiet_NaN());
    const auto error_of = [&](auto& training) {
        for (int step = 0; step < 40; ++step) {
            try {
                training.step(batches);
            } catch (const DivergedError& error) {
                return std::string(error.what());
            }
        }
        return std::string();
    };
    compressed.restore(exact.state());
    const std::string expected = error_of(exact);
    CHECK_FALSE(expected.empty());
    CHECK(error_of(compressed) == expected);
}
