// SPDX-License-Identifier: Apache-2.0
//
// The guarantees of a training on every device type and for every kind of agreement: on `Host`, and on a device that has three
// steps in flight and computes later.
#include <cupola/parallel/data_parallel.hpp>

#include "../test.hpp"

#include <unistd.h>

#include <cupola/io/checkpoint.hpp>
#include <cupola/layers/on_device.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "../labelled_samples.hpp"
#include "delayed_device.hpp"
#include "policies.hpp"
#include "step_names.hpp"
#include "throws_with.hpp"
#include "tutorial.hpp"

namespace {

struct Net
    : Sequential<Input<6, 6, 3>, Named<"conv1", Conv2d<4, 3>>, BatchNorm2d<>, ReLU, Flatten, Named<"out", Linear<5>>> {
};
struct ScaledLoss : Float32 {
    static constexpr float loss_scale = 1024;
};
struct ScaledNet : InPrecision<ScaledLoss, Net> {};
struct LinearNet : Sequential<Input<6, 6, 3>, Flatten, Named<"out", Linear<5>>> {};
struct ScaledLinear : InPrecision<ScaledLoss, LinearNet> {};
using TheLoss = LossCollection<CrossEntropy<5>, WeightDecay<0.01, "conv1">>;
template <class D, class A = ConcatMean>
using TrainingOn = DataParallel<Net, TheLoss, Sgd, A, D, Pooled>;
template <class D, class A = ConcatMean>
using Overflowing = DataParallel<ScaledLinear, CrossEntropy<5>, Sgd, A, D>;
template <class A>
using OnHost = TrainingOn<Host, A>;
template <class A>
using OnDelayed = TrainingOn<Delayed, A>;

/// Pooled, but for one call that throws.
struct FailingOnce {
    static constexpr std::string_view name = "failing once";
    static constexpr bool synchronized = false;
    int *calls = nullptr, *failing_call = nullptr;

    void update(const StatisticsUpdate& u) const {
        if ((*calls)++ == *failing_call) throw DataError("not now");
        u.take_pooled();
    }
};

/// Batches that are a function of the step and the replica, in memory that stays.
struct Source : LabelledSamples {
    Source() : LabelledSamples(64, {6, 6, 3}, 5, 9) {}
    BatchView operator()(std::int64_t step, int replica, HostContext&) {
        if (step == failing_step && replica == failing_replica) throw DataError("no samples today");
        return view((step * 5 + replica * 11) % 60, replica == 1 && step % 3 == 1 ? short_size : 4);
    }
    void set(std::int64_t step, int replica, float value) {
        inputs[static_cast<std::size_t>(((step * 5 + replica * 11) % 60) * 108 + 3)] = value;
    }
    std::int64_t short_size = 3, failing_step = -1;
    int failing_replica = 0;
};

struct Ended {
    std::vector<float> parameters, buffers;
    std::vector<double> losses;
    bool operator==(const Ended&) const = default;
};

template <class T>
typename T::Options options_for(int devices) {
    return {.replicas = 4,
            .devices = devices,
            .batch_size = 4,
            .other_batch_sizes = {3},
            .seed = 5,
            .optimizer = {.learning_rate = 0.05, .momentum = 0.9},
            .moving_average = {.decay = 0.9}};
}

/// The parameters of all replicas that have their own, one after another.
std::vector<float> parameters_of_all(auto& training) {
    const TrainingState state = training.state();
    std::vector<float> all = state.parameters;
    for (const ReplicaState& each : state.replicas)
        all.insert(all.end(), each.parameters.begin(), each.parameters.end());
    return all;
}

/// Queues all steps, and collects each report when it has come.
template <class T>
Ended run(const typename T::Options& options, std::int64_t steps, Source source = {}) {
    T training(options);
    Ended ended;
    const auto poll_report = [&](std::int64_t in_flight) {
        while (const StepReport* const report = training.poll_report(in_flight)) ended.losses.push_back(report->loss);
    };
    for (std::int64_t s = 0; s < steps; ++s) {
        training.queue(source);
        poll_report(T::max_steps_in_flight - 1);
    }
    poll_report(0);
    ended.parameters = parameters_of_all(training);
    ended.buffers = training.state().buffers;
    CHECK(training.healthy());
    return ended;
}

template <class D>
struct OnDevice {
    using Device = D;
};

}  // namespace

TEST_CASE("a device that computes later has the same bits as one that computes at once") {
    for (const int devices : {1, 2, 4}) {
        CAPTURE(devices);
        const Ended host = run<TrainingOn<Host>>(options_for<TrainingOn<Host>>(devices), 12);
        CHECK(host.losses.size() == 12);
        CHECK(run<TrainingOn<Delayed>>(options_for<TrainingOn<Delayed>>(devices), 12) == host);
    }
}

TEST_CASE("the operations of a step are queued in the same order on every device type") {
    const auto trace = []<class T>(T*) {
        T training(options_for<T>(2));
        StepNames names(2);
        training.trace_steps(names);
        Source source;
        training.step(source);
        training.step(source, [](const Inspection<Host>&) {});
        std::vector<std::string> all = names.of(0);
        all.insert(all.end(), names.of(1).begin(), names.of(1).end());
        return all;
    };
    const std::vector<std::string> host = trace(static_cast<TrainingOn<Host>*>(nullptr));
    CHECK(host.size() > 20);
    CHECK(host == trace(static_cast<TrainingOn<Delayed>*>(nullptr)));
}

TEST_CASE_TEMPLATE("a policy of each kind trains with the expected gradient", D, Host, Delayed) {
    const Ended mean = run<TrainingOn<D>>(options_for<TrainingOn<D>>(1), 8);
    for (const int devices : {1, 2, 4}) {
        CAPTURE(devices);
        const auto rows = run<TrainingOn<D, MeanInDouble>>(options_for<TrainingOn<D, MeanInDouble>>(devices), 8);
        CHECK(tutorial::difference(rows.parameters, mean.parameters) < 1e-6);
        const auto sums = run<TrainingOn<D, DeviceSum>>(options_for<TrainingOn<D, DeviceSum>>(devices), 8);
        CHECK(tutorial::difference(sums.parameters, mean.parameters) < 1e-6);
    }
}

TEST_CASE_TEMPLATE("a replica's gradient is that of its mean loss, whatever the kind of agreement", D, Host, Delayed) {
    auto rows = options_for<TrainingOn<D>>(2);
    auto sums = options_for<TrainingOn<D, DeviceSum>>(2);
    rows.gradient_accumulation_steps = sums.gradient_accumulation_steps = 2;
    TrainingOn<D> by_rows(rows);
    TrainingOn<D, DeviceSum> by_sums(sums);
    Source source;
    for (int s = 0; s < 2; ++s) {
        by_rows.step(source);
        by_sums.step(source);
        for (int replica = 0; replica < 4; ++replica) {  // replica 1 has a short batch in each step
            CAPTURE(replica);
            CHECK(tutorial::difference(by_sums.gradient(replica), by_rows.gradient(replica)) < 1e-6);
        }
    }
}

TEST_CASE_TEMPLATE("a loss that is scaled by a power of two changes no bit of a gradient or of the parameters", A,
                   ConcatMean, LocalSgd) {
    using T = OnHost<A>;
    using Scaled = DataParallel<ScaledNet, TheLoss, Sgd, A, Host, Pooled>;
    static_assert(requires(T t) { t.averaged_gradient(); } == std::is_same_v<A, ConcatMean>);
    auto options = options_for<T>(2);
    auto scaled_options = options_for<Scaled>(2);
    T training(options);
    Scaled scaled(scaled_options);
    Source source;
    for (int s = 0; s < 2; ++s) {
        training.step(source);
        scaled.step(source);
    }
    for (int replica = 0; replica < 4; ++replica) {
        CAPTURE(replica);
        CHECK(scaled.gradient(replica) == training.gradient(replica));
    }
    CHECK(parameters_of_all(scaled) == parameters_of_all(training));
}

TEST_CASE("a policy that throws leaves the running statistics as they were") {
    using T = DataParallel<Net, TheLoss, Sgd, ConcatMean, Host, FailingOnce>;
    auto options = options_for<T>(2);
    options.gradient_accumulation_steps = 2;
    int calls = 0, failing_call = -1;
    options.statistics = {&calls, &failing_call};
    const auto buffers_after_two_steps = [&] {
        calls = 0;
        T training(options);
        Source source;
        training.step(source);
        CHECK(message_of<DataError>([&] { training.step(source); }) ==
              (failing_call < 0 ? "(no exception)" : "not now"));
        return training.state().buffers;  // makes the report of the second step again
    };
    const std::vector<float> expected = buffers_after_two_steps();
    failing_call = 3;  // the second batch of the second step
    CHECK(buffers_after_two_steps() == expected);
}

TEST_CASE_TEMPLATE("local SGD: replicas continue from their mean every K steps, with the same bits for every placement",
                   D, Host, Delayed) {
    using T = TrainingOn<D, LocalSgd>;
    Source source;  // replica 1 has a short batch in each step
    auto options = options_for<T>(1);
    options.averaging.every = 4;
    const auto state_after = [&](int devices, std::int64_t steps) {
        options.devices = devices;
        T training(options);
        for (std::int64_t s = 0; s < steps; ++s) training.queue(source);
        return training.state();
    };
    const TrainingState between = state_after(1, 6), agreed = state_after(1, 8);
    CHECK(between.replicas[0].parameters != between.replicas[1].parameters);
    CHECK(agreed.replicas[0].parameters == agreed.replicas[3].parameters);
    CHECK(agreed.replicas[0].parameters == agreed.parameters);
    for (const int devices : {2, 4}) {
        CHECK(state_after(devices, 6).replicas == between.replicas);
        CHECK(state_after(devices, 8).parameters == agreed.parameters);
    }
    // Without momentum the mean of the parameters after one step each is the step by the mean gradient.
    options.averaging.every = 1;
    options.optimizer.momentum = 0;
    auto common = options_for<TrainingOn<D>>(1);
    common.optimizer.momentum = 0;
    CHECK(tutorial::difference(state_after(2, 8).parameters, run<TrainingOn<D>>(common, 8, source).parameters) < 1e-5);
    // A state of another placement is that of a training without these replicas too.
    T rest(options);
    TrainingState shorter = rest.state();
    shorter.replicas[2].parameters.pop_back();
    CHECK(message_of<InvalidArgument>([&] { rest.restore(shorter); }) ==
          text("replica 2's part of the state: this network's parameter arena has ", Net::parameter_elements,
               " elements, not ", Net::parameter_elements - 1));
}

TEST_CASE_TEMPLATE("a step that is not finite is reported, and the queued steps after it are discarded", T,
                   TrainingOn<Host>, TrainingOn<Delayed>, OnHost<DeviceSum>, OnDelayed<DeviceSum>, OnHost<LocalSgd>,
                   OnDelayed<LocalSgd>) {
    for (const int devices : {1, 2}) {
        CAPTURE(devices);
        auto options = options_for<T>(devices);
        if constexpr (requires { options.averaging.every; }) options.averaging.every = 3;  // also after the failed step
        Source source;
        const Ended before = run<T>(options, 5);
        source.set(5, 2, std::numeric_limits<float>::quiet_NaN());
        T training(options);
        std::int64_t step = -1;
        int replica = -1;
        std::string what;
        try {
            for (int s = 0; s < 9; ++s) training.queue(source);
            training.poll_report(0);
        } catch (const DivergedError& error) {
            step = error.step;
            replica = error.replica;
            what = error.what();
        }
        CHECK(step == 5);
        CHECK(replica == 2);
        CHECK(contains(what, "sample 0 of its batch is not finite"));
        CHECK(training.step() == 5);
        CHECK(training.healthy());
        CHECK(parameters_of_all(training) == before.parameters);
        source.set(5, 2, 0.5F);
        training.step(source);
        CHECK(training.step() == 6);
    }
}

TEST_CASE_TEMPLATE("a gradient that overflows is named with its replica and parameter, whatever was queued since", T,
                   Overflowing<Host>, Overflowing<Delayed>, Overflowing<Delayed, DeviceSum>,
                   Overflowing<Delayed, LocalSgd>) {
    for (const int devices : {1, 2}) {
        CAPTURE(devices);
        auto options = options_for<T>(devices);
        options.gradient_accumulation_steps = 2;
        T training(options);
        for (const int replica : {2, 3}) {  // in turn: the first is forgotten when the second fails
            CAPTURE(replica);
            const std::int64_t step = 2 * (replica - 2);
            Source source;
            source.set(2 * step, replica, 1e37F);  // in the first of two batches: its loss and all outputs are finite
            std::string what;
            try {
                for (int s = 0; s < 6; ++s) training.queue(source);
                training.poll_report(0);
            } catch (const DivergedError& error) {
                CHECK(error.step == step);
                CHECK(error.replica == replica);
                what = error.what();
            }
            CAPTURE(what);
            CHECK(contains(what, text("the gradient of replica ", replica, " is not finite at step ", step,
                                      ": every output is finite; the gradient of out.weight is not; of its 2 batches "
                                      "the last that has samples was searched")));
            CHECK(training.step() == step);
            CHECK(training.healthy());
        }
    }
}

TEST_CASE_TEMPLATE("a device without a batch ends the step of every device, and the step can be repeated", T,
                   TrainingOn<Host>, TrainingOn<Delayed>, OnHost<DeviceSum>, OnDelayed<DeviceSum>, OnHost<LocalSgd>,
                   OnDelayed<LocalSgd>) {
    const Ended well = run<T>(options_for<T>(2), 6);
    for (const int replica : {0, 3}) {
        CAPTURE(replica);
        T training(options_for<T>(2));
        Source source;
        source.failing_step = 3;
        source.failing_replica = replica;
        for (int s = 0; s < 3; ++s) training.queue(source);
        CHECK_THROWS_WITH_AS(training.queue(source), "no samples today", DataError);
        CHECK(training.step() == 3);
        CHECK(training.healthy());
        source.failing_step = -1;
        for (int s = 3; s < 6; ++s) training.step(source);
        CHECK(parameters_of_all(training) == well.parameters);
    }
}

TEST_CASE_TEMPLATE("a label that is not a class is an error when the step's report is read", D, Host, Delayed) {
    using T = TrainingOn<D>;
    Source source;
    T training(options_for<T>(2));
    training.step(source);
    const std::vector<float> before = training.parameters();
    source.labels[5] = 5;
    CHECK(contains(message_of<InvalidArgument>([&] { training.step(source); }),
                   "sample 0 of the batch has label 5, but the loss has classes 0 to 4"));
    CHECK(training.step() == 1);
    CHECK(training.parameters() == before);
}

TEST_CASE_TEMPLATE("an inspector sees the step that it is called for, and changes no bit", D, Host, Delayed) {
    using T = TrainingOn<D>;
    const Ended plain = run<T>(options_for<T>(2), 6);
    T training(options_for<T>(2));
    Source source;
    std::vector<std::int64_t> seen;
    for (int s = 0; s < 6; ++s) {
        training.queue(source, [&](const Inspection<Host>& inspection) {
            seen.push_back(inspection.step());
            std::size_t layers = 0;
            inspection.for_each_activation([&](std::size_t, std::span<const float>) { ++layers; });
            CHECK(layers == Net::layer_count);
        });
    }
    while (training.poll_report(0) != nullptr) {
    }
    CHECK(seen == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
    CHECK(training.parameters() == plain.parameters);
}
