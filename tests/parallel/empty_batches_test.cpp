// SPDX-License-Identifier: Apache-2.0
//
// Replicas, and accumulated batches, without samples: inspection uses a batch that has samples.
#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/io/summary_sink.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/synchronized.hpp>
#include <cupola/train/summary_writer.hpp>

#include "throws_with.hpp"

namespace {

struct Net : Sequential<Input<6, 6, 3>, Conv2d<4, 3>, ReLU, Flatten, Linear<2>> {};
struct Normed : Sequential<Input<6, 6, 3>, Conv2d<4, 3>, BatchNorm2d<>, ReLU, Flatten, Linear<2>> {};
template <class N, class Statistics = FirstReplica>
using TrainingOf = DataParallel<N, CrossEntropy<2>, Sgd, ConcatMean, Host, Statistics>;
using Together = TrainingOf<Normed, Synchronized>;

constexpr std::int64_t size = 4;

/// A batch of numbers of its own for each seed.
struct Batch {
    std::vector<float> values = std::vector<float>(size * Net::input_shape.size());
    std::vector<std::int32_t> labels{0, 1, 1, 0};
    explicit Batch(std::uint32_t number) { initialize(values, normal(1.0), 1, 1, 5, number); }
    [[nodiscard]] BatchView view() const { return {values.data(), labels.data(), size, Net::input_shape}; }
};

struct Seen {
    const float* samples = nullptr;
    std::int64_t batch_size = 0;
    std::vector<std::vector<float>> outputs;
    template <class D>
    void operator()(const Inspection<D>& inspection) {
        samples = inspection.batch().inputs();
        batch_size = inspection.batch().size;
        inspection.for_each_activation(
            [&](std::size_t, std::span<const float> values) { outputs.emplace_back(values.begin(), values.end()); });
    }
};

/// The values of an inspection of a step of one replica with this batch.
template <class Training>
Seen alone(const Batch& batch) {
    Training training({.batch_size = size, .seed = 3});
    Seen seen;
    training.step([&](std::int64_t, int, HostContext&) { return batch.view(); }, seen);
    return seen;
}

}  // namespace

TEST_CASE_TEMPLATE("an inspector sees the first replica that has samples", Training, TrainingOf<Net>,
                   TrainingOf<Normed>, Together) {
    const Batch batch(7);
    const Seen expected = alone<Training>(batch);
    for (const int devices : {1, 2, 3}) {
        CAPTURE(devices);
        for (const int full : {1, 2}) {
            Training training({.replicas = 3, .devices = devices, .batch_size = size, .seed = 3});
            Seen seen;
            training.step(
                [&](std::int64_t, int replica, HostContext&) { return replica == full ? batch.view() : BatchView{}; },
                seen);
            CHECK(seen.samples == batch.values.data());
            CHECK(seen.batch_size == size);
            CHECK(seen.outputs == expected.outputs);
        }
    }
}

TEST_CASE("an inspector sees the last accumulated batch that has samples") {
    const Batch first(7), second(8);
    const Seen expected = alone<TrainingOf<Net>>(second);
    TrainingOf<Net> training({.batch_size = size, .gradient_accumulation_steps = 4, .seed = 3});
    const BatchView parts[] = {first.view(), second.view(), {}, {}};
    Seen seen;
    training.step([&](std::int64_t part, int, HostContext&) { return parts[part]; }, seen);
    CHECK(seen.samples == second.values.data());
    CHECK(seen.outputs == expected.outputs);
}

TEST_CASE("a gradient that is not finite is searched for in the last accumulated batch that has samples") {
    const Batch good(7);
    Batch bad(8);
    bad.values[1 * Net::input_shape.size() + 40] = std::numeric_limits<float>::quiet_NaN();
    const BatchView parts[] = {good.view(), bad.view(), {}, good.view(), good.view(), {}};
    for (const int devices : {1, 2}) {
        CAPTURE(devices);
        TrainingOf<Net> training(
            {.replicas = 2, .devices = devices, .batch_size = size, .gradient_accumulation_steps = 3, .seed = 3});
        const std::string message = message_of<DivergedError>([&] {
            training.step([&](std::int64_t part, int replica, HostContext&) { return parts[3 * replica + part]; });
        });
        CAPTURE(message);
        CHECK(contains(message, "of replica 0"));
        CHECK(contains(message, "sample 1 of its batch is not finite"));
    }
}

TEST_CASE("summaries of a step whose first replica has no samples are written") {
    struct Kept : SummarySink {
        std::size_t images = 0, histograms = 0;
        void start(std::int64_t) override {}
        void write(std::int64_t, const StepSummary& summary) override {
            images += summary.images.size();
            histograms += summary.histograms.size();
        }
    };
    const Batch batch(7);
    const auto kept = [&](int replicas) {
        Kept sink;
        TrainingOf<Net> training({.replicas = replicas, .batch_size = size, .seed = 3});
        const auto batches = [&](std::int64_t, int replica, HostContext&) {
            return replica == replicas - 1 ? batch.view() : BatchView{};
        };
        fit(training, batches, {.steps = 1}, SummaryWriter(sink, Net::layers, {.every = 1}));
        return std::pair(sink.images, sink.histograms);
    };
    CHECK(kept(1).second > 0);
    CHECK(kept(2) == kept(1));
}
