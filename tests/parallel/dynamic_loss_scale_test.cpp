// SPDX-License-Identifier: Apache-2.0
//
// A training under a dynamic loss scale: a step whose gradient overflows changes nothing but the scale. So the training equals,
// bit for bit, one that never sees the batches of such steps; the scale is that of PyTorch's GradScaler.
#include <cupola/parallel/data_parallel.hpp>

#include "../test.hpp"

#include <set>

#include <unistd.h>

#include <cupola/cupola.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/layers/embedding.hpp>
#include <cupola/parallel/compressed.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "delayed_device.hpp"
#include "loss/squares.hpp"
#include "policies.hpp"
#include "processes/sum_of_processes.hpp"
#include "processes/thread_processes.hpp"
#include "throws_with.hpp"

namespace {

constexpr int replicas = 4;
constexpr std::int64_t batch = 3;

struct Net : Sequential<Input<4, 4, 3>, Named<"conv1", Conv2d<4, 3>>, Named<"bn1", BatchNorm2d<>>, ReLU, Flatten,
                        Named<"out", Linear<1>>> {};
template <class A, class D, bool counts = false, class Statistics = Pooled>
using TrainingOf = DataParallel<Net, WeightedSquares<counts, counts>, AdamW, A, D, Statistics>;

/// A scale at which a gradient of 1e15 is above the largest float, while its square is not.
constexpr LossScale rule{.initial = 0x1p100, .interval = 3};
/// The steps with such a gradient, of one replica.
const std::set<std::int64_t> planted{0, 1, 7, 13, 14};

/// Batches that are a function of the place and the replica; at the places of `overflowing` replica 2 has a target of 1e15.
class Source {
public:
    explicit Source(std::set<std::int64_t> overflowing = {}, float target = 1e15F)
        : overflowing_(std::move(overflowing)), inputs_(count * 48), targets_(count * 2) {
        initialize(inputs_, normal(1.0), 1, 1, 3, 0);
        initialize(targets_, normal(1.0), 1, 1, 4, 0);
        for (std::size_t n = 0; n < count; ++n) targets_[2 * n + 1] = static_cast<float>(1 + n % 5);
        planted_ = targets_;
        for (std::size_t n = 0; n < count; ++n) planted_[2 * n] = target;
    }
    BatchView operator()(std::int64_t place, int replica, HostContext&) {
        const bool overflows = replica == 2 && overflowing_.contains(place);
        const std::int64_t first = (5 * place + 11 * replica) % static_cast<std::int64_t>(count - batch);
        std::vector<float>& targets = overflows ? planted_ : targets_;
        return {inputs_.data() + first * 48, {4, 4, 3}, targets.data() + 2 * first, {2}, batch};
    }
    std::vector<float>& targets() { return targets_; }

private:
    static constexpr std::size_t count = 64;
    std::set<std::int64_t> overflowing_;
    std::vector<float> inputs_, targets_, planted_;
};

/// The batches of the steps that are not planted, in their order.
class WithoutPlanted {
public:
    WithoutPlanted(Source source, int accumulation) : source_(std::move(source)), accumulation_(accumulation) {}
    BatchView operator()(std::int64_t place, int replica, HostContext& context) {
        std::int64_t step = -1;
        for (std::int64_t left = place / accumulation_; left >= 0; --left) {
            do ++step;
            while (planted.contains(step));
        }
        return source_(step * accumulation_ + place % accumulation_, replica, context);
    }

private:
    Source source_;
    int accumulation_;
};

template <class T>
typename T::Options options_of(int devices, const LossScale& scale, int accumulation = 1) {
    typename T::Options options{.replicas = replicas,
                                .devices = devices,
                                .batch_size = batch,
                                .gradient_accumulation_steps = accumulation,
                                .seed = 5,
                                .optimizer = {.learning_rate = exponential_decay(0.02, 1, 0.9), .weight_decay = 0.01},
                                .moving_average = {.decay = 0.99},
                                .loss_scale = scale,
                                .check_every = 2};
    return options;
}

struct Ended {
    std::vector<StepReport> reports;
    TrainingState state;
};

/// `steps` steps, as far ahead as the device allows.
template <class T, class Batches>
Ended run(T& training, Batches batches, std::int64_t steps) {
    Ended ended;
    const auto poll = [&](std::int64_t in_flight) {
        while (const StepReport* const report = training.poll_report(in_flight)) ended.reports.push_back(*report);
    };
    for (std::int64_t s = 0; s < steps; ++s) {
        training.queue(batches);
        poll(T::max_steps_in_flight - 1);
    }
    poll(0);
    ended.state = training.state();
    return ended;
}
template <class T, class Batches>
Ended run(const typename T::Options& options, Batches batches, std::int64_t steps) {
    T training(options);
    return run(training, std::move(batches), steps);
}

void check_same_parameters(const TrainingState& one, const TrainingState& other) {
    CHECK(one.parameters == other.parameters);
    CHECK(one.averages == other.averages);
    CHECK(one.optimizer == other.optimizer);
    CHECK(one.buffers == other.buffers);
}

constexpr std::int64_t all_steps = 20;

/// Against PyTorch's GradScaler, in a plain loop.
void check_scales(const Ended& ended) {
    REQUIRE(ended.reports.size() == all_steps);
    double scale = rule.initial;
    std::int32_t good = 0;
    std::int64_t skipped = 0;
    for (std::int64_t s = 0; s < all_steps; ++s) {
        CAPTURE(s);
        const StepReport& report = ended.reports[static_cast<std::size_t>(s)];
        CHECK(report.step == s);
        CHECK(report.loss_scale == scale);
        CHECK(report.skipped == planted.contains(s));
        CHECK(report.learning_rate == exponential_decay(0.02, 1, 0.9)(s - skipped));
        if (planted.contains(s)) {
            scale /= 2;
            good = 0;
            ++skipped;
        } else if (++good == rule.interval) {
            scale *= 2;
            good = 0;
        }
        CHECK(report.skipped_steps == skipped);
    }
    CHECK(ended.state.step == all_steps);
    CHECK(ended.state.loss_scale == LossScaleState{static_cast<float>(scale), good, skipped});
}

template <class T>
void check_training(int devices, int accumulation = 1) {
    CAPTURE(devices);
    std::set<std::int64_t> places;
    for (const std::int64_t step : planted) places.insert(step * accumulation + accumulation - 1);
    const Ended expected =
        run<T>(options_of<T>(devices, LossScale::constant(1), accumulation), WithoutPlanted(Source(), accumulation),
               all_steps - static_cast<std::int64_t>(planted.size()));
    const Ended ended = run<T>(options_of<T>(devices, rule, accumulation), Source(places), all_steps);
    check_scales(ended);
    check_same_parameters(ended.state, expected.state);
    CHECK(!expected.state.loss_scale);
    std::size_t next = 0;
    for (const StepReport& report : ended.reports) {
        if (report.skipped) continue;
        CHECK(report.loss == expected.reports[next].loss);
        CHECK(report.learning_rate == expected.reports[next++].learning_rate);
    }
}

}  // namespace

TEST_CASE_TEMPLATE("a training under a dynamic scale equals one that never sees the steps that are skipped", D, Host,
                   Delayed) {
    for (const int devices : {1, 2, 4}) {
        check_training<TrainingOf<ConcatMean, D>>(devices);
        check_training<TrainingOf<DeviceSum, D>>(devices);
    }
    check_training<TrainingOf<ConcatMean, D, true>>(2);
    check_training<TrainingOf<DeviceSum, D, true>>(2);
    check_training<TrainingOf<ConcatMean, D>>(1, 2);
    check_training<TrainingOf<DeviceSum, D>>(2, 2);
}

TEST_CASE_TEMPLATE("a training that is moved after any step continues with the same bits", D, Host, Delayed) {
    using T = TrainingOf<ConcatMean, D>;
    const Ended whole = run<T>(options_of<T>(2, rule), Source(planted), all_steps);
    for (std::int64_t moved = 1; moved < all_steps; ++moved) {
        CAPTURE(moved);
        const Ended first = run<T>(options_of<T>(2, rule), Source(planted), moved);
        T second(options_of<T>(4, rule));
        second.restore(first.state);
        const Ended rest = run(second, Source(planted), all_steps - moved);
        check_same_parameters(rest.state, whole.state);
        CHECK(rest.state.loss_scale == whole.state.loss_scale);
        for (std::int64_t s = moved; s < all_steps; ++s) {
            const StepReport &ours = rest.reports[static_cast<std::size_t>(s - moved)],
                             &theirs = whole.reports[static_cast<std::size_t>(s)];
            CHECK(ours.skipped_steps == theirs.skipped_steps);
            CHECK(ours.loss_scale == theirs.loss_scale);
            CHECK(ours.learning_rate == theirs.learning_rate);
        }
    }
}

TEST_CASE("a checkpoint has the state of the scale, and refuses one that cannot be") {
    using T = TrainingOf<ConcatMean, Host>;
    const std::string path =
        (std::filesystem::temp_directory_path() / ("cupola-loss-scale-" + std::to_string(::getpid()))).string();
    const Ended whole = run<T>(options_of<T>(1, rule), Source(planted), all_steps);
    const Ended first = run<T>(options_of<T>(1, rule), Source(planted), 9);
    CHECK(first.state.loss_scale == LossScaleState{0x1p98F, 1, 3});
    write_checkpoint(path, Net::layers, {.state = first.state});
    const Checkpoint read = read_checkpoint(path, Net::layers);
    CHECK(read.state.loss_scale == first.state.loss_scale);
    CHECK(read.info.entries().empty());
    T second(options_of<T>(1, rule));
    second.restore(read.state);
    const Ended rest = run(second, Source(planted), all_steps - 9);
    check_same_parameters(rest.state, whole.state);
    CHECK(rest.state.loss_scale == whole.state.loss_scale);

    for (const LossScaleState& bad : {LossScaleState{0, 1, 3}, LossScaleState{-1, 1, 3},
                                      LossScaleState{std::numeric_limits<float>::infinity(), 1, 3},
                                      LossScaleState{std::numeric_limits<float>::quiet_NaN(), 1, 3},
                                      LossScaleState{8, -1, 3}, LossScaleState{8, 1, -1}, LossScaleState{8, 1, 10}}) {
        TrainingState state = first.state;
        state.loss_scale = bad;
        const std::string refused = message_of<InvalidArgument>([&] { second.restore(state); });
        CHECK_MESSAGE((contains(refused, "loss scale") || contains(refused, " skipped steps")), refused);
        CHECK(message_of<InvalidArgument>([&] { write_checkpoint(path, Net::layers, {.state = state}); }) == refused);
    }
    check_same_parameters(second.state(), rest.state);
    std::filesystem::remove(path);
}

TEST_CASE("a state goes on in a training with a constant scale, and back, with the number of its updates") {
    using T = TrainingOf<ConcatMean, Host>;
    const auto steps = static_cast<std::int64_t>(planted.size());
    const Ended first = run<T>(options_of<T>(1, rule), Source(planted), all_steps);
    const Ended expected =
        run<T>(options_of<T>(1, LossScale::constant(1)), WithoutPlanted(Source(), 1), all_steps - steps);
    check_same_parameters(first.state, expected.state);
    T constant(options_of<T>(1, LossScale::constant(64))), alone(options_of<T>(1, LossScale::constant(1)));
    constant.restore(first.state);
    alone.restore(expected.state);
    const Ended ours = run(constant, Source(), 3);
    const Ended theirs = run(
        alone,
        [source = Source(), steps](std::int64_t place, int replica, HostContext& context) mutable {
            return source(place + steps, replica, context);
        },
        3);
    check_same_parameters(ours.state, theirs.state);
    CHECK(ours.reports[2].learning_rate == theirs.reports[2].learning_rate);
    CHECK(ours.reports[2].loss_scale == 64);
    CHECK(ours.state.loss_scale == LossScaleState{64, 0, steps});
    T dynamic(options_of<T>(1, rule));
    dynamic.restore(ours.state);
    CHECK(dynamic.state().loss_scale == ours.state.loss_scale);
    dynamic.restore(theirs.state);  // of a training that never scaled
    CHECK(dynamic.state().loss_scale == LossScaleState{0x1p100F, 0, 0});
}

TEST_CASE_TEMPLATE("what is not finite at every scale ends the training, and the parameters are those before", D, Host,
                   Delayed) {
    using T = TrainingOf<ConcatMean, D>;
    const std::set<std::int64_t> from_3{3, 4, 5, 6, 7, 8, 9};
    for (const int devices : {1, 2}) {
        CAPTURE(devices);
        T training(options_of<T>(devices, {.initial = 8}));
        const TrainingState before = run(training, Source(), 3).state;
        Source bad(from_3, std::numeric_limits<float>::quiet_NaN());
        std::int64_t failed = -1;
        const std::string message = message_of<DivergedError>([&] {
            try {
                run(training, bad, 6);
            } catch (const DivergedError& error) {
                failed = error.step;
                throw;
            }
        });
        CHECK(failed == 6);
        CHECK(contains(message, "the loss of replica 2 is nan (the loss scale is 1, and its minimum 1) at step 6"));
        CHECK(training.healthy());
        TrainingState after = training.state();
        CHECK(after.step == 6);
        CHECK(after.loss_scale == LossScaleState{1, 0, 3});
        check_same_parameters(after, before);
        // The training goes on with other batches.
        const Ended rest = run(training, Source(), 2);
        CHECK(!rest.reports[1].skipped);
        CHECK(rest.state.loss_scale == LossScaleState{1, 2, 3});
        CHECK(rest.state.parameters != before.parameters);
    }
}

TEST_CASE_TEMPLATE("a gradient that overflows at the smallest scale too is an error that names the scale", D, Host,
                   Delayed) {
    using T = TrainingOf<ConcatMean, D>;
    T training(options_of<T>(2, {.initial = 0x1p100, .minimum = 0x1p99}));
    const std::string message = message_of<DivergedError>([&] { run(training, Source({2, 3, 4}), 8); });
    CHECK(contains(message,
                   "the gradient of replica 2 is not finite (the loss scale is 6.33825e+29, and its minimum "
                   "6.33825e+29) at step 3"));
    CHECK(training.state().loss_scale == LossScaleState{0x1p99F, 0, 1});
}

namespace {

struct Classes : Sequential<Input<3>, Named<"out", Linear<5>>> {};
struct Words : Sequential<Input<1, 2>, Named<"words", Embedding<7, 3>>, Flatten, Named<"out", Linear<5>>> {};

/// Batches of classes, or of ids, of which one has a value that is not valid in one step.
template <class V>
struct Labelled {
    std::int64_t bad_step;
    bool bad_label;
    std::vector<V> inputs = std::vector<V>(12, V{1});
    std::vector<std::int32_t> labels = std::vector<std::int32_t>(4, 2), bad_labels{2, 2, 5, 2};
    std::vector<V> bad_inputs = std::vector<V>(12, V{7});

    BatchView operator()(std::int64_t step, int replica, HostContext&) {
        const bool bad = step == bad_step && replica == 1;
        constexpr Shape each = std::is_same_v<V, float> ? Shape{3} : Shape{1, 2};
        const Column input{{input_column, element_type_of<V>, each},
                           bad && !bad_label ? bad_inputs.data() : inputs.data()};
        const Column target{{target_column, ElementType::int32, {1}},
                            bad && bad_label ? bad_labels.data() : labels.data()};
        return {4, {input, target}};
    }
};

template <class N, class D, class Batches>
void check_refused(int devices, Batches batches, std::string_view part) {
    using T = DataParallel<N, CrossEntropy<5>, Sgd, ConcatMean, D>;
    CAPTURE(devices);
    T training({.replicas = 2,
                .devices = devices,
                .batch_size = 4,
                .optimizer = {.learning_rate = 0.1},
                .loss_scale = LossScale{.initial = 64}});
    const TrainingState before = run(training, batches, 2).state;
    const std::string message = message_of<InvalidArgument>([&] { run(training, batches, 5); });
    CHECK_MESSAGE(contains(message, std::string(part)), message);
    const TrainingState after = training.state();
    CHECK(after.step == 2);
    CHECK(after.parameters == before.parameters);
    CHECK(after.loss_scale == LossScaleState{64, 2, 0});
    batches.bad_step = -1;
    CHECK(run(training, batches, 3).state.loss_scale == LossScaleState{64, 5, 0});
}

}  // namespace

TEST_CASE_TEMPLATE("an input that is not valid is an error at once, before which nothing changes", D, Host, Delayed) {
    for (const int devices : {1, 2}) {
        check_refused<Classes, D>(devices, Labelled<float>{2, true}, "5");
        check_refused<Words, D>(devices, Labelled<std::int32_t>{2, true}, "5");
        check_refused<Words, D>(devices, Labelled<std::int32_t>{2, false}, "the ids of an input must be in range");
    }
    using T = TrainingOf<ConcatMean, D, true>;
    for (const float weight : {0.0F, -1.0F}) {
        for (const int devices : {1, 4}) {
            CAPTURE(weight);
            T training(options_of<T>(devices, rule));
            Source good, bad;
            const TrainingState before = run(training, good, 2).state;
            for (std::size_t n = 1; n < bad.targets().size(); n += 2) bad.targets()[n] = weight;
            CHECK(contains(message_of<InvalidArgument>([&] { run(training, bad, 3); }), "weights"));
            check_same_parameters(training.state(), before);
            CHECK(training.state().loss_scale == before.loss_scale);
        }
    }
}

TEST_CASE("gradients are those without the scale, and the sums of squares of a report too") {
    using T = TrainingOf<ConcatMean, Host>;
    T scaled(options_of<T>(2, rule)), plain(options_of<T>(2, LossScale::constant(1)));
    Source source, other;
    for (int s = 0; s < 4; ++s) {
        scaled.step(source);
        plain.step(other);
        CHECK(scaled.averaged_gradient() == plain.averaged_gradient());
        for (int replica = 0; replica < replicas; ++replica) CHECK(scaled.gradient(replica) == plain.gradient(replica));
    }
    CHECK(scaled.state().loss_scale == LossScaleState{0x1p101F, 1, 0});
}

TEST_CASE("an inspector does not see a step that is skipped") {
    using T = TrainingOf<ConcatMean, Host>;
    T training(options_of<T>(1, rule));
    Source source(planted);
    std::vector<std::int64_t> seen;
    for (int s = 0; s < 10; ++s)
        training.step(source, [&](const Inspection<Host>& inspection) { seen.push_back(inspection.step()); });
    CHECK(seen == std::vector<std::int64_t>{2, 3, 4, 5, 6, 8, 9});
}

namespace {

/// The traces of a training of several processes, each of `devices`.
template <class A>
std::vector<Ended> on_processes(int count, bool shares, int devices, auto&& averaging_of) {
    using T = TrainingOf<A, Host>;
    Hub hub(count, shares);
    std::vector<Ended> ended(static_cast<std::size_t>(count));
    const auto errors = on_threads(count, [&](int number) {
        auto options = options_of<T>(devices, rule);
        ended[static_cast<std::size_t>(number)] = run<T>({.replicas = options.replicas,
                                                          .devices = options.devices,
                                                          .batch_size = options.batch_size,
                                                          .seed = options.seed,
                                                          .optimizer = options.optimizer,
                                                          .averaging = averaging_of(hub, number),
                                                          .moving_average = options.moving_average,
                                                          .loss_scale = options.loss_scale,
                                                          .check_every = options.check_every},
                                                         Source(planted), all_steps);
    });
    CHECK(errors == std::vector<std::string>(errors.size()));
    return ended;
}

}  // namespace

TEST_CASE("all processes skip the same steps, whatever their agreement") {
    using Alone = TrainingOf<ConcatMean, Host>;
    const Ended one = run<Alone>(options_of<Alone>(1, rule), Source(planted), all_steps);
    const auto check = [&](const std::vector<Ended>& processes, bool same_bits) {
        for (const Ended& each : processes) {
            check_scales(each);
            check_same_parameters(each.state, processes[0].state);
            CHECK((each.state.parameters == one.state.parameters) == same_bits);
        }
    };
    for (const int count : {2, 4}) {
        CAPTURE(count);
        const int devices = count == 2 ? 2 : 1;
        for (const bool shares : {true, false}) {
            CAPTURE(shares);
            check(on_processes<ThreadConcatMean>(
                      count, shares, devices,
                      [](Hub& hub, int number) { return ThreadConcatMean{.hub = &hub, .number = number}; }),
                  true);
            check(on_processes<Compressed<ThreadConcatMean>>(count, shares, devices,
                                                             [](Hub& hub, int number) {
                                                                 return Compressed<ThreadConcatMean>{
                                                                     .policy = {.hub = &hub, .number = number}};
                                                             }),
                  false);
        }
        check(on_processes<ThreadSum>(
                  count, true, devices,
                  [](Hub& hub, int number) { return ThreadSum{.hub = &hub, .number = number, .bucket_bytes = 64}; }),
              false);
        check(
            on_processes<Compressed<ThreadSum>>(
                count, true, devices,
                [](Hub& hub, int number) { return Compressed<ThreadSum>{.policy = {.hub = &hub, .number = number}}; }),
            false);
        check(on_processes<SumOfProcesses>(
                  count, true, devices,
                  [](Hub& hub, int number) { return SumOfProcesses{.hub = &hub, .number = number}; }),
              false);
    }
}

TEST_CASE("processes with other loss scales refuse to train together") {
    Hub hub(2, true);
    const auto errors = on_threads(2, [&](int number) {
        using T = TrainingOf<ThreadConcatMean, Host>;
        T training({.replicas = 2,
                    .averaging = {.hub = &hub, .number = number},
                    .loss_scale = LossScale{.initial = number == 0 ? 64.0 : 32.0}});
    });
    for (const std::string& error : errors) CHECK(contains(error, "loss_scale"));
}

TEST_CASE("an option that is no loss scale is refused with its values") {
    using T = TrainingOf<ConcatMean, Host>;
    const std::string message =
        message_of<InvalidArgument>([] { T training(options_of<T>(1, {.initial = 64, .growth = 1, .interval = 1})); });
    CHECK(message ==
          "a loss scale must have a growth of more than 1 and at most 2^127; it is dynamic, from 64, at least 1, "
          "times 1 after 1 step and times 0.5 after a skipped one");
    CHECK(contains(message_of<InvalidArgument>([] { T training(options_of<T>(1, LossScale::constant(0))); }),
                   "must be from 2^-126 to 2^127; it is constant, 0"));
}
