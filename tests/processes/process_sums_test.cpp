// SPDX-License-Identifier: Apache-2.0
//
// A training whose processes add their weighted sums, in buckets while the backward passes run, has the parameters of one process
// up to rounding, and the same on each process; here the processes are threads. No process waits for the buckets of one that has
// failed.
//
// Covers: cupola/processes/agreement/process_sums_agreement.hpp
#include <cupola/processes/processes.hpp>

#include "../test.hpp"

#include <cupola/net/frozen.hpp>
#include <cupola/parallel/synchronized.hpp>

#include "instructions.hpp"
#include "process_trainings.hpp"
#include "thread_processes.hpp"

namespace {

using processes::AnyStatistics, processes::Batches, processes::Case;

template <class N, class Averaging, class Statistics = AnyStatistics>
using Training = DataParallel<N, processes::Loss, Sgd, Averaging, Host, Statistics>;
template <class N, class Averaging, class Statistics = AnyStatistics>
auto options_of(const Case& c, const Averaging& averaging, const Statistics& statistics = {}) {
    return typename Training<N, Averaging, Statistics>::Options{.replicas = processes::replicas,
                                                                .devices = c.devices,
                                                                .batch_size = processes::batch,
                                                                .other_batch_sizes = {2, 4},
                                                                .gradient_accumulation_steps = c.accumulation,
                                                                .seed = 5,
                                                                .optimizer = {.learning_rate = 0.02, .momentum = 0.9},
                                                                .averaging = averaging,
                                                                .statistics = statistics,
                                                                .check_every = 2};
}

/// What each of several processes has after its steps.
struct Sums {
    std::vector<std::string> errors;
    std::vector<std::vector<float>> parameters;
    /// The sums that it has begun.
    std::vector<std::vector<std::size_t>> begun;
};
/// `run(training, number)` makes the steps.
template <class N, class Statistics = AnyStatistics, class Run>
Sums sums_of(int count, const Case& c, std::int64_t bucket_bytes, Run&& run) {
    Hub hub(count, true);
    Sums sums;
    sums.parameters.resize(static_cast<std::size_t>(count));
    sums.errors = on_threads(count, [&](int number) {
        const ThreadSum averaging{.hub = &hub, .number = number, .bucket_bytes = bucket_bytes};
        Training<N, ThreadSum, Statistics> training(options_of<N>(c, averaging, Statistics{}));
        run(training, number);
        sums.parameters[static_cast<std::size_t>(number)] = training.parameters();
    });
    for (int p = 0; p < count; ++p) sums.begun.push_back(hub.begun(p));
    return sums;
}

/// The largest difference from the mean of one process after some steps, in all processes, which have the same parameters.
template <class N, class Statistics = AnyStatistics, class B>
double difference_from_mean(int count, const Case& c, std::int64_t bucket_bytes, const B& batches, int steps) {
    Case one_device = c;
    one_device.devices = 1;
    Training<N, ConcatMean, Statistics> alone(options_of<N>(one_device, ConcatMean{}, Statistics{}));
    for (int s = 0; s < steps; ++s) alone.step(batches);
    const std::vector<float> expected = alone.parameters();
    const Sums sums = sums_of<N, Statistics>(count, c, bucket_bytes, [&](auto& training, int) {
        for (int s = 0; s < steps; ++s) training.step(batches);
    });
    double largest = 0;
    for (int p = 0; p < count; ++p) {
        const auto at = static_cast<std::size_t>(p);
        CHECK(sums.errors[at] == "");
        CHECK(sums.parameters[at] == sums.parameters[0]);
        // Every bucket of every step, once, in the same order.
        CHECK(sums.begun[at] == sums.begun[0]);
        CHECK(sums.begun[at].size() % static_cast<std::size_t>(steps) == 0);
        CHECK(std::accumulate(sums.begun[at].begin(), sums.begun[at].end(), std::size_t{0}) ==
              static_cast<std::size_t>(steps * N::trained_elements));
        if (sums.parameters[at].size() != expected.size()) return std::numeric_limits<double>::infinity();
        for (std::size_t i = 0; i < expected.size(); ++i)
            largest = std::max(largest, static_cast<double>(std::abs(sums.parameters[at][i] - expected[i])));
    }
    return largest;
}

/// The identity, which calls a function in its backward pass.
struct Watch {
    static thread_local int process;
    static inline std::atomic<void (*)(int process)> on_backward = nullptr;

    struct Operation {
        std::int64_t count;
        void forward(const ForwardArgs<Host>& args) const { std::copy_n(args.input, count, args.output); }
        void backward(const BackwardArgs<Host>& args) const {
            if (const auto call = on_backward.load()) call(process);
            if (args.input_gradient != nullptr) std::copy_n(args.output_gradient, count, args.input_gradient);
        }
    };
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static Operation operation(const BuildContext<Host>& build) { return {build.batch * build.output.size()}; }
};
thread_local int Watch::process = 0;

struct Watched : Sequential<Input<8, 8, 3>, Named<"conv1", Conv2d<16, 3, stride(2)>>, Watch, ReLU,
                            Named<"conv2", Conv2d<32, 3, stride(2)>>, ReLU, Flatten, Named<"out", Linear<1>>> {};
struct InBFloat16 : InPrecision<MixedBFloat16, processes::Net> {};
struct Tuned : Frozen<processes::Net, "conv1.*", "bn1.*"> {};

constexpr std::int64_t small_bucket = 1024;

}  // namespace

TEST_CASE("the sum of the processes' weighted sums is the average up to rounding, and the same on each") {
    for (const Case& c : {Case{.unequal = true, .devices = 2}, Case{.unequal = true, .accumulation = 2},
                          Case{.accumulation = 2, .devices = 2}, Case{}}) {
        for (const int count : {1, 2, 4}) {
            if (c.devices > 4 / count) continue;
            for (const std::int64_t bytes : {std::int64_t{0}, small_bucket}) {
                CAPTURES(c.accumulation, count, bytes);
                CHECK(difference_from_mean<processes::Net>(count, c, bytes, Batches(c), 5) < 1e-5);
            }
        }
    }
    // The passes of replicas that synchronise their statistics give no buckets.
    const Case synchronized{.unequal = true, .devices = 2};
    CHECK(difference_from_mean<processes::Net, Synchronized>(2, synchronized, small_bucket, Batches(synchronized), 5) <
          1e-5);
}

TEST_CASE("a process without samples gives its buckets too") {
    const Case c;
    const Batches all(c);
    const auto batches = [&](std::int64_t place, int replica, HostContext& context) {
        return place == 1 && replica >= 2 ? BatchView{} : all(place, replica, context);
    };
    CHECK(difference_from_mean<processes::Net>(2, c, small_bucket, batches, 3) < 1e-5);
}

TEST_CASE("sums of bfloat16 networks and of frozen ones are the average; frozen parameters are in no bucket") {
    const Case c{.unequal = true};
    if (computes_bfloat16()) CHECK(difference_from_mean<InBFloat16>(2, c, small_bucket, Batches(c), 1) < 1e-6);
    CHECK(difference_from_mean<Tuned>(2, c, small_bucket, Batches(c), 5) < 1e-5);
    const auto one_step = [&](auto& training, int) { training.step(Batches(c)); };
    const Sums whole = sums_of<processes::Net>(2, c, small_bucket, one_step),
               tuned = sums_of<Tuned>(2, c, small_bucket, one_step);
    CHECK(whole.begun[0].size() > tuned.begun[0].size());
    CHECK(tuned.begun[0].size() > 1);
}

TEST_CASE("the first bucket is under way before the backward pass has finished") {
    const Case c;
    const Batches batches(c);
    static Hub* hub = nullptr;
    static std::vector<std::size_t> seen;
    Hub here(2, true);
    hub = &here;
    seen.assign(2, 0);
    Watch::on_backward = [](int process) { seen[static_cast<std::size_t>(process)] = hub->begun(process).size(); };
    const auto errors = on_threads(2, [&](int number) {
        const ThreadSum averaging{.hub = &here, .number = number, .bucket_bytes = small_bucket};
        Training<Watched, ThreadSum> training(options_of<Watched>(c, averaging));
        training.step([&](std::int64_t place, int replica, HostContext& context) {
            Watch::process = number;
            return batches(place, replica, context);
        });
    });
    Watch::on_backward = nullptr;
    CHECK(errors == std::vector<std::string>(2));
    // The parameters of conv2 and out; those of conv1 are the last bucket.
    CHECK(seen == std::vector<std::size_t>{1, 1});
    CHECK(here.begun(0).size() == 2);
    CHECK(here.begun(0) == here.begun(1));
}

TEST_CASE("an error in the middle of a backward pass ends the step of all, whose buckets are all given") {
    const Batches batches{Case{}};
    for (const int devices : {1, 2}) {
        CAPTURE(devices);
        const Sums sums = sums_of<Watched>(2, {.devices = devices}, small_bucket, [&](auto& training, int number) {
            const auto source = [&](std::int64_t place, int replica, HostContext& context) {
                Watch::process = 10 * number + replica;
                return batches(place, replica, context);
            };
            training.step(source);
            if (number == 1) {
                Watch::on_backward = [](int process) {
                    if (process == 13) throw DataError("the memory is damaged");
                };
                CHECK_THROWS_WITH_AS(training.step(source), "the memory is damaged", DataError);
                Watch::on_backward = nullptr;
            } else {
                CHECK_THROWS_WITH_AS(training.step(source), "process 1 failed in step 1: the memory is damaged",
                                     DeviceError);
            }
            CHECK(training.step() == 1);
            training.step(source);
        });
        CHECK(sums.errors == std::vector<std::string>(2));
        CHECK(sums.parameters[0] == sums.parameters[1]);
        CHECK(sums.begun[0].size() == 6);
        CHECK(sums.begun[0] == sums.begun[1]);
    }
}

TEST_CASE("what is not finite is reported by all processes that add sums with the same origin as by one") {
    for (const int accumulation : {1, 2}) {
        const Case c{.accumulation = accumulation};
        Batches with_nan(c);
        with_nan.set_input(22 * 8 * 8 * 3 + 5, std::numeric_limits<float>::quiet_NaN());
        std::string alone;
        try {
            Training<processes::Net, ConcatMean> training(options_of<processes::Net>(c, ConcatMean{}));
            training.step(with_nan);
        } catch (const DivergedError& error) {
            alone = error.what();
        }
        CHECK(alone.find("the loss of replica 2 is nan") != std::string::npos);
        const Sums sums = sums_of<processes::Net>(2, c, small_bucket, [&](auto& training, int) {
            CHECK_THROWS_WITH_AS(training.step(with_nan), alone.c_str(), DivergedError);
            CHECK(training.step() == 0);
            CHECK(training.healthy());
        });
        CHECK(sums.errors == std::vector<std::string>(2));
        CHECK(sums.parameters[0] == sums.parameters[1]);
    }
}

TEST_CASE("the bucket sizes of the processes have to be the same") {
    Hub hub(2, true);
    const auto errors = on_threads(2, [&](int number) {
        const ThreadSum averaging{.hub = &hub, .number = number, .bucket_bytes = 1024 * (1 + number)};
        const Training<processes::Net, ThreadSum> training(options_of<processes::Net>({}, averaging));
    });
    CHECK(errors == std::vector<std::string>(2, "process 1 has another bucket_bytes than process 0: 2048, not 1024"));
}
