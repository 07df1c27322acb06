// SPDX-License-Identifier: Apache-2.0
//
// Replicas that exchange with a centre one after another: the rules against their loops in double, orders and their
// logs, states, failures and bad input.
#include <cupola/loss/mean_squared_error.hpp>
#include <cupola/loss/weighted_cross_entropy.hpp>
#include <cupola/parallel/kinds/asynchronous.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <cupola/host.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/kinds/backup.hpp>
#include <cupola/parallel/kinds/hogwild.hpp>
#include <cupola/parallel/kinds/one_of.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/train/fit.hpp>

#include "../../instructions.hpp"
#include "../../test.hpp"
#include "kind_training.hpp"

using namespace cupola;

namespace {

/// The batches of all steps, made before, for several threads.
class Source {
public:
    Source(int replicas, int steps) : batches_(static_cast<std::size_t>(steps), rules::Batches(replicas)) {
        for (int step = 0; step < steps; ++step) batches_[static_cast<std::size_t>(step)].set(step);
    }
    [[nodiscard]] BatchView operator()(std::int64_t step, int number, HostContext&) const {
        if (step == bad_step && number == bad_number)
            return {large_.data(), Shape{3}, (target_is_bad ? infinite_ : large_).data(), Shape{1}, 3};
        return batches_[static_cast<std::size_t>(step)].of(number);
    }

    /// A batch with a loss that is not finite, or with targets that are not.
    int bad_step = -1, bad_number = 0;
    bool target_is_bad = false;

private:
    std::vector<rules::Batches> batches_;
    std::vector<float> large_ = std::vector<float>(9, 1e38F);
    std::vector<float> infinite_ = std::vector<float>(3, std::numeric_limits<float>::infinity());
};

struct Normed : Sequential<Input<6, 6, 2>, Named<"conv", Conv2d<3, 3>>, BatchNorm2d<>, ReLU, Flatten,
                           Named<"frozen", Linear<4>>, Linear<3>> {};

struct Wide : Sequential<Input<256>, Linear<512>, ReLU, Linear<512>, ReLU, Linear<512>, Linear<3>> {};

/// Its exchange takes the position, which it does not say.
struct Forceless {
    [[nodiscard]] std::unique_ptr<CentreExchange> exchange(int replicas) const { return Elastic{}.exchange(replicas); }
    [[nodiscard]] std::string description() const { return "Forceless"; }
};

constexpr int last_step = 40;
template <class Rule>
using Training = rules::KindTraining<Asynchronous<Rule>, Host>;

/// A training with its batches, whose steps are in flight until the state is asked for.
template <class Rule>
struct Trial {
    explicit Trial(const Asynchronous<Rule>& averaging, int replicas = 3, int devices = 3, int check_every = 0)
        : source(replicas, last_step),
          training({.replicas = replicas,
                    .devices = devices,
                    .batch_size = 3,
                    .optimizer = {.learning_rate = exponential_decay(0.125, 10, 0.9), .momentum = 0.875},
                    .averaging = averaging,
                    .moving_average = {.decay = 0.75},
                    .check_every = check_every}) {
        rules::start(training);
    }
    void go(int to) {
        while (training.step() < to) {
            training.queue(source);
            read();
        }
    }
    void read() {
        while (const StepReport* const report = training.poll_report()) reports.push_back(*report);
    }

    Source source;
    Training<Rule> training;
    std::vector<StepReport> reports;
};

/// The calls of a source that return after it has been destroyed.
struct Late {
    std::atomic<bool> is_destroyed = false;
    std::atomic<int> calls = 0;
};
/// A source whose batches take a while.
class SlowSource {
public:
    SlowSource(const Source& source, Late& late) : source_(&source), late_(&late) {}
    SlowSource(const SlowSource&) = delete;
    SlowSource& operator=(const SlowSource&) = delete;
    ~SlowSource() { late_->is_destroyed = true; }
    [[nodiscard]] BatchView operator()(std::int64_t step, int number, HostContext& context) const {
        const Source& source = *source_;
        Late& late = *late_;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (late.is_destroyed) ++late.calls;
        return source(step, number, context);
    }

private:
    const Source* source_;
    Late* late_;
};

void check_equal(const TrainingState& a, const TrainingState& b) {
    CHECK(a.step == b.step);
    CHECK(a.parameters == b.parameters);
    CHECK(a.averages == b.averages);
    CHECK(a.replicas == b.replicas);
    CHECK(a.samples_since == b.samples_since);
}

/// The largest difference of the centre to that of the rule after each tenth of 100 steps, by the largest magnitude of the
/// trajectory.
template <class Rule>
double error_of(const rules::Settings& settings, const Asynchronous<Rule>& averaging, int devices) {
    Training<Rule> training({.replicas = settings.replicas,
                             .devices = devices,
                             .batch_size = rules::coordinates,
                             .optimizer = {.learning_rate = settings.rate,
                                           .momentum = rules::has_momentum(settings.rule) ? settings.momentum : 0.0},
                             .averaging = averaging});
    rules::start(training);
    rules::Training expected(settings);
    const Source source(settings.replicas, 100);
    double largest = 0, error = 0;
    for (int step = 1; step <= 100; ++step) {
        training.queue(source);
        expected.step();
        largest = std::max(largest, rules::magnitude(expected));
        if (step % 10 != 0) continue;
        const std::vector<float> centre = training.parameters();
        for (std::size_t j = 0; j < rules::coordinates; ++j)
            error = std::max(error, std::abs(expected.centre[j] - static_cast<double>(centre[j])));
    }
    return error / largest;
}

/// Two replicas on two devices, of which the first computes most batches.
OrderLog uneven_log(const std::string& rule) {
    return {.replicas = 2,
            .devices = 2,
            .rule = rule,
            .claims = {0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1},
            .turns = {0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 1}};
}

}  // namespace

TEST_CASE("round robin exchanges are the rules' loops, for any number of replicas and period") {
    for (const int every : {1, 3, 16}) {
        for (int replicas = 1; replicas <= 5; ++replicas) {
            CAPTURE(every);
            CAPTURE(replicas);
            const auto check = [&](rules::Rule rule, const auto& averaging) {
                CAPTURE(rules::name_of(rule));
                const auto settings = rules::golden_settings(rule, replicas, every);
                CHECK(error_of(settings, averaging, replicas == 4 ? 2 : 1) < 1e-6);
            };
            const Asynchronous<Elastic> elastic{.rule = {.every = every}, .ahead = 10, .order = Order::round_robin()};
            check(rules::Rule::asynchronous_easgd, elastic);
            check(rules::Rule::asynchronous_eamsgd, elastic);
            const Asynchronous<Downpour> downpour{.rule = {.every = every}, .ahead = 10, .order = Order::round_robin()};
            check(rules::Rule::downpour, downpour);
        }
    }
}

TEST_CASE("a replay computes the batches that its log says, in that order") {
    const auto check = [](const auto& rule, rules::Rule as) {
        const OrderLog log = uneven_log(rule.description());
        using Rule = std::remove_cvref_t<decltype(rule)>;
        rules::KindTraining<Asynchronous<Rule>, Host> training(
            {.replicas = 2,
             .devices = 2,
             .batch_size = 3,
             .optimizer = {.learning_rate = 0.125, .momentum = 0.875},
             .averaging = {.rule = rule, .ahead = 6, .order = Order::replay(log)}});
        rules::start(training);
        const Source source(2, 6);
        for (int step = 0; step < 6; ++step) training.queue(source);
        std::vector<std::int64_t> replicas, staleness;
        while (const StepReport* const report = training.poll_report(0)) {
            for (const ReplicaReport& each : report->replicas) {
                replicas.push_back(each.replica);
                staleness.push_back(each.staleness);
            }
        }
        auto settings = rules::golden_settings(as, 2, 2);
        settings.moving_rate = 0.25;
        rules::Training expected(settings);
        std::size_t next[2] = {0, 0};
        std::vector<std::int64_t> expected_staleness(12, -1);
        std::int64_t exchanges = 0, last[2] = {-1, -1};
        for (const std::uint16_t replica : log.turns) {
            std::size_t& n = next[replica];
            while (log.claims[n] != replica) ++n;
            if ((expected.batches[replica] + (as == rules::Rule::downpour ? 1 : 0)) % 2 == 0) {
                expected_staleness[n] = exchanges - last[replica] - 1;
                last[replica] = exchanges++;
            }
            expected.batch(replica, static_cast<int>(n % 2), static_cast<int>(n / 2));
            ++n;
        }
        CHECK(replicas == std::vector<std::int64_t>(log.claims.begin(), log.claims.end()));
        CHECK(staleness == expected_staleness);
        const TrainingState state = training.state();
        for (std::size_t j = 0; j < rules::coordinates; ++j) {
            CHECK(static_cast<double>(state.parameters[j]) == doctest::Approx(expected.centre[j]).epsilon(1e-5));
            for (std::size_t r = 0; r < 2; ++r) {
                const double velocity = static_cast<double>(state.replicas[r].optimizer[0].values[j]);
                const double x = static_cast<double>(state.replicas[r].parameters[j]) - 0.875 * velocity;
                if (as != rules::Rule::downpour) CHECK(x == doctest::Approx(expected.x[r][j]).epsilon(1e-5));
            }
        }
    };
    check(Elastic{.every = 2, .rate = 0.25}, rules::Rule::asynchronous_eamsgd);
}

TEST_CASE("a free run that is replayed has the same bits, also from a state inside of it") {
    const auto check = [](const auto& rule) {
        using Rule = std::remove_cvref_t<decltype(rule)>;
        const auto log = std::make_shared<OrderLog>();
        Trial<Rule> free({.rule = rule, .ahead = 4, .log = log});
        free.go(last_step / 2);
        const TrainingState half = free.training.state();
        free.go(last_step);
        const TrainingState whole = free.training.state();
        CHECK(log->claims.size() == 3 * last_step);
        CHECK_NOTHROW(require_valid(*log));

        const auto again = std::make_shared<OrderLog>();
        const Asynchronous<Rule> replay{.rule = rule, .ahead = 4, .order = Order::replay(*log), .log = again};
        Trial<Rule> replayed(replay);
        replayed.go(last_step / 2);
        check_equal(replayed.training.state(), half);
        replayed.go(last_step);
        check_equal(replayed.training.state(), whole);
        CHECK(*again == *log);

        Trial<Rule> resumed(replay);
        resumed.training.restore(half);
        resumed.go(last_step);
        check_equal(resumed.training.state(), whole);
        CHECK(*again == *log);
    };
    check(Elastic{.every = 3});
    check(Downpour{.every = 2});
}

TEST_CASE("a free run that is resumed continues its log, whatever was done after its state") {
    const auto log = std::make_shared<OrderLog>();
    const Asynchronous<Downpour> averaging{.rule = {.every = 3}, .ahead = 4, .log = log};
    TrainingState state;
    {
        Trial<Downpour> killed(averaging);
        killed.go(11);
        state = killed.training.state();
        killed.go(20);
        static_cast<void>(killed.training.state());
    }
    CHECK(log->end_step() == 20);
    Trial<Downpour> resumed(averaging);
    resumed.training.restore(state);
    resumed.go(last_step);
    const TrainingState whole = resumed.training.state();
    CHECK(log->end_step() == last_step);
    Trial<Downpour> replayed({.rule = {.every = 3}, .ahead = 4, .order = Order::replay(*log)});
    replayed.go(11);
    check_equal(replayed.training.state(), state);
    replayed.go(last_step);
    check_equal(replayed.training.state(), whole);
}

TEST_CASE("the centre's moving average moves with every batch that is the last of as many as there are replicas") {
    Trial<Elastic> run({.rule = {.every = 1}, .order = Order::round_robin()}, 2, 1);
    std::vector<float> average = run.training.state().averages;
    const MovingAverage rule{.decay = 0.75};
    for (int step = 0; step < 5; ++step) {
        run.go(step + 1);
        const TrainingState state = run.training.state();
        const auto fraction = static_cast<float>(1 - rule.decay_at(step + 1));
        for (std::size_t j = 0; j < rules::coordinates; ++j) {
            average[j] += fraction * (state.parameters[j] - average[j]);
            CHECK(state.averages[j] == doctest::Approx(average[j]).epsilon(1e-6));
        }
    }
}

TEST_CASE("each device evaluates the centre, and at most `ahead` steps are in flight") {
    Trial<Elastic> run({.rule = {.every = 3}, .ahead = 2});
    CHECK(run.training.steps_in_flight() == 2);
    run.training.queue(run.source);
    run.training.queue(run.source);
    run.training.queue(run.source);  // drops the report of the first
    const StepReport* const report = run.training.poll_report(0);
    REQUIRE(report != nullptr);
    CHECK(report->step == 1);
    CHECK(report->samples == 9);
    run.go(7);
    const TrainingState state = run.training.state();
    for (int device = 0; device < 3; ++device) CHECK(run.training.parameters(device) == state.parameters);
    CHECK(run.training.predict(std::vector<float>{0, 1, 0}) == std::vector<float>{state.parameters[1]});
}

TEST_CASE("an inspected step shows the parameters and the gradient of replica 0 before its update") {
    Trial<Elastic> run({.rule = {.every = 1}, .ahead = 2});
    run.go(5);
    const TrainingState before = run.training.state();
    std::vector<float> shown, gradient;
    run.training.queue(run.source, [&](const auto& inspection) {
        CHECK(inspection.step() == 5);
        shown.assign(inspection.parameters().begin(), inspection.parameters().end());
        gradient.assign(inspection.averaged_gradient().begin(), inspection.averaged_gradient().end());
    });
    CHECK(shown == before.replicas[0].parameters);
    for (std::size_t j = 0; j < rules::coordinates; ++j) {
        const double expected = rules::Quadratic().gradient(static_cast<double>(shown[j]), 0, 5, j);
        CHECK(static_cast<double>(gradient[j]) == doctest::Approx(expected).epsilon(1e-5));
    }
    CHECK_THROWS_WITH_AS(static_cast<void>(run.training.gradient(0)), "Asynchronous keeps no gradients",
                         InvalidArgument);
}

TEST_CASE("a policy that is chosen when the program runs may be asynchronous") {
    using Choice = OneOf<ConcatMean, Asynchronous<Elastic>, Asynchronous<Downpour>>;
    const Source source(3, last_step);
    const auto run = [&]<class Averaging>(const Averaging& averaging, std::int64_t in_flight) {
        rules::KindTraining<Averaging, Host> training({.replicas = 3,
                                                       .devices = 3,
                                                       .batch_size = 3,
                                                       .optimizer = {.learning_rate = 0.125, .momentum = 0.875},
                                                       .averaging = averaging});
        rules::start(training);
        CHECK(training.steps_in_flight() == in_flight);
        for (int step = 0; step < 8; ++step) training.queue(source);
        while (training.poll_report(0) != nullptr) {
        }
        int inspections = 0;
        training.step(source, [&](const auto&) { ++inspections; });
        CHECK(inspections == 1);
        training.restore(training.state());
        training.step(source);
        return training.state();
    };
    rules::KindTraining<Choice, Host> chosen({.batch_size = 3, .averaging = Asynchronous<Downpour>{}});
    chosen.step(source);
    CHECK_THROWS_WITH_AS(static_cast<void>(chosen.gradient(0)), "Asynchronous keeps no gradients", InvalidArgument);
    const Asynchronous<Elastic> elastic{.rule = {.every = 3}, .ahead = 2, .order = Order::round_robin()};
    const Asynchronous<Downpour> downpour{.rule = {.every = 2}, .ahead = 5, .order = Order::round_robin()};
    check_equal(run(Choice(elastic), 2), run(elastic, 2));
    check_equal(run(Choice(downpour), 5), run(downpour, 5));
    check_equal(run(Choice(), 1), run(ConcatMean{}, 1));
    CHECK(run(Choice(elastic), 2).parameters != run(Choice(), 1).parameters);
}

TEST_CASE("a batch that is not finite ends the run, which returns to the state of the last check") {
    const Asynchronous<Elastic> averaging{.rule = {.every = 2}, .ahead = 4, .order = Order::round_robin()};
    Trial<Elastic> good(averaging, 3, 3, 4), bad(averaging, 3, 3, 4);
    good.go(8);
    const TrainingState checked = good.training.state();
    bad.source.bad_step = 10;
    bad.source.bad_number = 1;
    const auto fails = [&](const std::string& expected) {
        try {
            bad.go(last_step);
            FAIL("nothing was thrown");
        } catch (const DivergedError& error) {
            CHECK(error.step == 10);
            CHECK(error.replica == 1);
            CHECK_MESSAGE(std::string(error.what()).starts_with(expected), error.what());
            CHECK_MESSAGE(
                std::string(error.what()).ends_with("the training has the state of step 8, the last that was checked"),
                error.what());
        }
    };
    fails("the loss of replica 1 is ");
    check_equal(bad.training.state(), checked);
    CHECK(bad.training.healthy());
    fails("the loss of replica 1 is ");
    bad.source.target_is_bad = true;
    CHECK_THROWS_WITH_AS(
        bad.go(last_step),
        "sample 0 of the batch has target inf at element 0, but the loss expects targets that are finite",
        InvalidArgument);
    check_equal(bad.training.state(), checked);
    bad.source.bad_step = -1;
    bad.go(13);
    good.go(13);
    check_equal(bad.training.state(), good.training.state());
}

TEST_CASE("an exception of the batches ends the run in the same way") {
    Trial<Downpour> run({.ahead = 3}, 3, 2);
    const TrainingState first = run.training.state();
    const auto failing = [&](std::int64_t step, int number, HostContext& context) {
        require<DataError>(step < 6, "there is no batch of step ", step);
        return run.source(step, number, context);
    };
    const auto go = [&] {
        for (int step = 0; step < 20; ++step) {
            run.training.queue(failing);
            run.read();
        }
    };
    CHECK_THROWS_WITH_AS(go(), "there is no batch of step 6", DataError);
    check_equal(run.training.state(), first);
    const std::vector<float> none;
    const auto empty = [&](std::int64_t, int, HostContext&) {
        return BatchView{none.data(), Shape{3}, none.data(), Shape{1}, 0};
    };
    CHECK_THROWS_WITH_AS(run.training.step(empty),
                         doctest::Contains(" of step 0 has no samples, and a batch of Asynchronous needs some"),
                         InvalidArgument);
}

TEST_CASE("the memory report has the state to which a failure returns") {
    const Trial<Elastic> elastic({}, 3, 2);
    const MemoryReport& memory = elastic.training.memory();
    // Parameters and velocity of each replica, the centre and its moving average.
    CHECK(memory.saved == (3 * 2 + 2) * memory.centre);
    MemoryReport without = memory;
    without.saved = 0;
    CHECK(memory.total() == without.total() + memory.saved);
    CHECK(to_string(memory).find(" the state of the last check + ") != std::string::npos);
    const Trial<Downpour> downpour({}, 3, 2);
    CHECK(downpour.training.memory().saved == (3 * 3 + 2) * memory.centre);
    // Those of its replica, the centre and its velocity.
    const rules::KindTraining<Backup, Host> backup(typename rules::KindTraining<Backup, Host>::Options{});
    CHECK(backup.memory().saved == 3 * memory.centre);
    const rules::KindTraining<ConcatMean, Host> synchronous(typename rules::KindTraining<ConcatMean, Host>::Options{});
    CHECK(synchronous.memory().saved == 0);
}

TEST_CASE("the times of steps in flight have one writer") {
    const auto log = std::make_shared<OrderLog>();
    Trial<Elastic> run({.rule = {.every = 2}, .log = log}, 1, 1);
    StepTimes times(8, 4);
    run.training.queue(run.source);
    run.training.time_steps(&times);
    // No step is in flight.
    CHECK(log->end_step() == 1);
    run.go(4);
    run.training.time_steps(nullptr);
    run.go(6);
    CHECK(run.training.state().step == 6);
}

TEST_CASE("parameters that are set begin a new period of every replica") {
    Trial<Elastic> run({.rule = {.every = 4}, .order = Order::round_robin()}, 2, 1);
    run.go(3);
    CHECK(run.training.state().samples_since == std::vector<std::int64_t>{3, 3});
    rules::start(run.training);
    CHECK(run.training.state().samples_since == std::vector<std::int64_t>{0, 0});
}

TEST_CASE("logs that no run can have, and those of another training, are errors") {
    const auto check = [](OrderLog log, const char* message) {
        CHECK_THROWS_WITH_AS(static_cast<void>(Order::replay(std::move(log))), message, DataError);
    };
    OrderLog log{.replicas = 2, .devices = 2, .claims = {0, 1}, .turns = {1, 0}};
    CHECK_NOTHROW(require_valid(log));
    log.devices = 1;
    check(log, "an order log lets replica 1 complete a batch, in turn 0, that it cannot have begun");
    log.devices = 3;
    check(log, "an order log cannot be of 2 replicas on 3 devices");
    log = {.replicas = 2, .devices = 2, .claims = {0, 0}, .turns = {0, 1}};
    check(log, "an order log lets replica 1 complete a batch, in turn 1, that it cannot have begun");
    // One of several processes may be steps ahead of the others.
    CHECK_NOTHROW(require_valid({.replicas = 2, .devices = 2, .claims = {0, 1, 0, 1}, .turns = {1, 1, 0, 0}}));
    // But no batch before that of the same number in the step before.
    OrderLog swapped{.replicas = 2, .devices = 2, .claims = {1, 1, 1, 0}, .turns = {1, 0, 1, 1}};
    CHECK_NOTHROW(require_valid(swapped));
    swapped.turns = {0, 1, 1, 1};
    check(swapped, "an order log lets replica 0 complete a batch, in turn 0, that it cannot have begun");
    log.turns = {0, 2};
    check(log, "an order log of 2 replicas names another one");
    log.turns = {0};
    check(log, "an order log of 2 replicas has 2 batches and 1 turns, not those of whole steps");

    log = {.replicas = 1, .devices = 1, .first_step = (std::int64_t{1} << 40) + 1};
    check(log, "an order log begins at step 0 to 1099511627776, not at step 1099511627777");
    log.first_step = -1;
    check(log, "an order log begins at step 0 to 1099511627776, not at step -1");

    const Elastic rule{.every = 2};
    const auto make = [&](const OrderLog& of, int devices, std::int64_t ahead) {
        return Trial<Elastic>({.rule = rule, .ahead = ahead, .order = Order::replay(of)}, 2, devices);
    };
    log = uneven_log(Elastic{}.description());
    CHECK_THROWS_WITH_AS(make(log, 2, 6),
                         "the order log is of another training: it has 2 replicas on 2 devices, seed 0 and the rule "
                         "Elastic every 16 batches, moving rate 0.9 / replicas, and this training has 2 on 2, seed 0 "
                         "and Elastic every 2 batches, moving rate 0.9 / replicas",
                         InvalidArgument);
    log.rule = rule.description();
    CHECK_THROWS_AS(make(log, 1, 6), InvalidArgument);
    auto short_of_steps = make(log, 2, 1);
    CHECK_THROWS_WITH_AS(short_of_steps.go(2),
                         "the order log has batches of step 1 before the last of step 0: a replay has as many steps in "
                         "flight as the run that was recorded, and evaluates and saves where that did",
                         InvalidArgument);
    auto too_long = make(log, 2, 6);
    CHECK_THROWS_WITH_AS(too_long.go(7), "the order log has the steps 0 to 5, and not step 6", InvalidArgument);

    const auto other = std::make_shared<OrderLog>(uneven_log(rule.description()));
    CHECK_THROWS_WITH_AS(
        (Trial<Elastic>({.rule = rule, .log = other}, 2, 1)),
        "the order log that is to be continued is of another training: it has 2 replicas on 2 devices, seed 0 and the "
        "rule Elastic every 2 batches, moving rate 0.9 / replicas, and this training has 2 on 1, seed 0 and Elastic "
        "every 2 batches, moving rate 0.9 / replicas",
        InvalidArgument);
    // One that is given to two trainings is that of the first.
    const auto shared = std::make_shared<OrderLog>();
    Trial<Elastic> first({.rule = rule, .log = shared}, 2, 2), second({.rule = rule, .log = shared}, 2, 1);
    first.go(1);
    CHECK(shared->replicas == 0);
    static_cast<void>(first.training.parameters());
    CHECK_THROWS_WITH_AS(second.go(1), doctest::Contains("is to be continued is of another training: "),
                         InvalidArgument);
}

TEST_CASE("an order log from a file that does not fit the training is a DataError that names the file") {
    const Elastic rule{.every = 2};
    OrderLog log = uneven_log(rule.description());
    log.file = "run1/order";
    const auto replay = [&](const OrderLog& of, int replicas = 2, int devices = 2) {
        return Trial<Elastic>({.rule = rule, .ahead = 6, .order = Order::replay(of)}, replicas, devices);
    };
    const auto is_of_another = [](const std::string& has, const std::string& has_here) {
        return "run1/order: the order log is of another training: it has " + has + ", and this training has " +
               has_here;
    };
    const std::string by = "Elastic every 2 batches, moving rate 0.9 / replicas";
    CHECK_THROWS_WITH_AS(
        replay(log, 3, 2),
        is_of_another("2 replicas on 2 devices, seed 0 and the rule " + by, "3 on 2, seed 0 and " + by).c_str(),
        DataError);
    CHECK_THROWS_WITH_AS(
        replay(log, 2, 1),
        is_of_another("2 replicas on 2 devices, seed 0 and the rule " + by, "2 on 1, seed 0 and " + by).c_str(),
        DataError);
    OrderLog other = log;
    other.seed = 5;
    CHECK_THROWS_WITH_AS(
        replay(other),
        is_of_another("2 replicas on 2 devices, seed 5 and the rule " + by, "2 on 2, seed 0 and " + by).c_str(),
        DataError);
    other = log;
    other.rule = "Downpour every 2 batches";
    CHECK_THROWS_WITH_AS(replay(other),
                         is_of_another("2 replicas on 2 devices, seed 0 and the rule Downpour every 2 batches",
                                       "2 on 2, seed 0 and " + by)
                             .c_str(),
                         DataError);
    auto too_long = replay(log);
    CHECK_THROWS_WITH_AS(too_long.go(7), "run1/order: the order log has the steps 0 to 5, and not step 6", DataError);

    // One that is to be continued.
    const auto continues = [&](const OrderLog& of) {
        return Trial<Elastic>({.rule = rule, .log = std::make_shared<OrderLog>(of)}, 2, 2);
    };
    CHECK_THROWS_WITH_AS(
        continues(other),
        doctest::Contains("run1/order: the order log that is to be continued is of another training: "), DataError);
    other = log;
    other.first_step = 4;
    auto begins_later = continues(other);
    CHECK_THROWS_WITH_AS(begins_later.go(1),
                         "run1/order: the order log that is to be continued has the steps 4 to 9, and the training "
                         "continues at step 0",
                         DataError);
    OrderLog inside{
        .replicas = 2, .devices = 2, .rule = rule.description(), .claims = {0, 1, 0, 0}, .turns = {0, 0, 1, 0}};
    inside.file = "run1/order";
    Trial<Elastic> recorded({.rule = rule}, 2, 2);
    recorded.go(1);
    auto in_flight = continues(inside);
    in_flight.training.restore(recorded.training.state());
    CHECK_THROWS_WITH_AS(in_flight.go(2),
                         "run1/order: the order log has batches in flight before step 1: it is of another run, or that "
                         "run had no checkpoint there",
                         DataError);
}

TEST_CASE("a step that depends on one that is not queued ends the run, after which batches and inspector may go") {
    const Elastic rule{.every = 2};
    const Asynchronous<Elastic> averaging{
        .rule = rule, .ahead = 6, .order = Order::replay(uneven_log(rule.description()))};
    const std::string message =
        "the order log has batches of step 1 before the last of step 0: a replay has as many steps in flight as the run "
        "that was recorded, and evaluates and saves where that did";
    Trial<Elastic> run(averaging, 2, 2);
    const TrainingState start = run.training.state();
    int calls = 0;
    CHECK_THROWS_WITH_AS(run.training.queue(run.source, [&](const auto&) { ++calls; }), message.c_str(),
                         InvalidArgument);
    CHECK(run.training.step() == 0);
    {
        const auto source = std::make_unique<Source>(run.source);
        run.training.queue(*source);
        CHECK_THROWS_WITH_AS(static_cast<void>(run.training.poll_report(0)), message.c_str(), InvalidArgument);
        CHECK(run.training.step() == 0);
        run.training.queue(*source);
        CHECK_THROWS_WITH_AS(static_cast<void>(run.training.state()), message.c_str(), InvalidArgument);
    }
    check_equal(run.training.state(), start);
    Trial<Elastic> whole(averaging, 2, 2);
    for (Trial<Elastic>* const each : {&run, &whole})
        for (int step = 0; step < 6; ++step) each->training.queue(each->source);
    check_equal(run.training.state(), whole.training.state());
    CHECK(calls == 0);
}

TEST_CASE("a log with batches in flight before the first step is neither replayed nor continued") {
    const Elastic rule{.every = 2};
    const OrderLog log{
        .replicas = 2, .devices = 2, .rule = rule.description(), .claims = {0, 1, 0, 0}, .turns = {0, 0, 1, 0}};
    Trial<Elastic> recorded({.rule = rule}, 2, 2);
    recorded.go(1);
    const TrainingState inside = recorded.training.state();
    const char* const message =
        "the order log has batches in flight before step 1: it is of another run, or that run had no checkpoint there";
    Trial<Elastic> replayed({.rule = rule, .order = Order::replay(log)}, 2, 2);
    replayed.training.restore(inside);
    CHECK_THROWS_WITH_AS(replayed.go(2), message, InvalidArgument);
    const auto kept = std::make_shared<OrderLog>(log);
    Trial<Elastic> continued({.rule = rule, .log = kept}, 2, 2);
    continued.training.restore(inside);
    CHECK_THROWS_WITH_AS(continued.go(2), message, InvalidArgument);
    CHECK(*kept == log);
    CHECK(impl::is_complete_before(log, 0));
    CHECK(impl::is_complete_before(log, 2));
}

TEST_CASE("a step of a replay in which replica 0 has not the first batch cannot be inspected") {
    const Elastic rule{.every = 2};
    const OrderLog log{
        .replicas = 2, .devices = 2, .rule = rule.description(), .claims = {1, 0, 0, 1}, .turns = {1, 0, 0, 1}};
    Trial<Elastic> run({.rule = rule, .order = Order::replay(log)}, 2, 2);
    int calls = 0;
    const auto inspect = [&](const auto&) { ++calls; };
    CHECK_THROWS_WITH_AS(
        run.training.queue(run.source, inspect),
        "step 0 cannot be inspected: in the order log its batch 0 is replica 1's, and an inspector sees "
        "replica 0",
        InvalidArgument);
    run.go(1);
    run.training.queue(run.source, inspect);
    CHECK(calls == 1);
}

TEST_CASE("the report of a step with a loss that is not finite is not given before the error") {
    // To find the first output that is not finite takes a while.
    using OfWide = DataParallel<Wide, WeightedCrossEntropy<3>, Sgd, Asynchronous<Downpour>, Host>;
    const std::vector<float> inputs(32 * 256, 1e38F);
    const std::vector<std::int32_t> labels(32, 1);
    const auto batches = [&](std::int64_t, int, HostContext&) {
        return BatchView{inputs.data(), labels.data(), 32, Wide::input_shape};
    };
    OfWide training({.batch_size = 32, .optimizer = {.learning_rate = 0.1}});
    training.queue(batches);
    CHECK_THROWS_AS(static_cast<void>(training.poll_report(0)), DivergedError);
}

namespace {

struct Small : Sequential<Input<3>, Linear<8>, ReLU, Linear<1>> {};
struct Small16 : InPrecision<MixedBFloat16, Small> {};

/// The centre after as many steps as the source has.
template <class Network, class Averaging>
std::vector<float> centre_of(const Averaging& averaging, int devices) {
    constexpr int steps = 12;
    const Source source(3, steps);
    DataParallel<Network, MeanSquaredError, NesterovVelocity, Averaging, Host> training(
        {.replicas = 3,
         .devices = devices,
         .batch_size = 3,
         .seed = 1,
         .optimizer = {.learning_rate = 0.03125, .momentum = 0.5},
         .averaging = averaging});
    for (int step = 0; step < steps; ++step) training.queue(source);
    return training.parameters();
}

}  // namespace

TEST_CASE("networks in bfloat16 train asynchronously: parameters, centre and exchanges are floats") {
    if (!computes_bfloat16()) return;
    const auto check = [](const auto& averaging) {
        const std::vector<float> narrow = centre_of<Small16>(averaging, 1), wide = centre_of<Small>(averaging, 1);
        CHECK(centre_of<Small16>(averaging, 3) == narrow);
        CHECK(narrow != wide);
        REQUIRE(narrow.size() == wide.size());
        for (std::size_t i = 0; i < wide.size(); ++i) CHECK(std::abs(narrow[i] - wide[i]) < 0.02F);
    };
    check(Asynchronous<Elastic>{.rule = {.every = 2}, .order = Order::round_robin()});
    check(Asynchronous<Downpour>{.rule = {.every = 2}, .order = Order::round_robin()});
    CHECK(centre_of<Small16>(Backup{.count = 3}, 2) == centre_of<Small16>(ConcatMean{}, 2));

    const Asynchronous<Downpour> free{.rule = {.every = 2}, .log = std::make_shared<OrderLog>()};
    const std::vector<float> recorded = centre_of<Small16>(free, 3);
    CHECK(centre_of<Small16>(Asynchronous<Downpour>{.rule = {.every = 2}, .order = Order::replay(*free.log)}, 3) ==
          recorded);
}

TEST_CASE("fit trains on batches that are prepared ahead, evaluates between steps, and is replayed") {
    std::vector<float> inputs, targets;
    for (int i = 0; i < 60; ++i) {
        for (int j = 0; j < 3; ++j) inputs.push_back(static_cast<float>((7 * i + 5 * j) % 11) / 8 - 0.5F);
        targets.push_back(inputs[inputs.size() - 3] - inputs[inputs.size() - 1]);
    }
    const InMemory data(Shape{3}, inputs, Shape{1}, targets);
    const auto run = [&](const Asynchronous<Elastic>& averaging, int workers) {
        Training<Elastic> training({.replicas = 3,
                                    .devices = 2,
                                    .batch_size = 4,
                                    .seed = 5,
                                    .optimizer = {.learning_rate = 0.2, .momentum = 0},
                                    .averaging = averaging});
        Prefetch batches(TrainingBatches(data, IdentityTransform{}, {.batch_size = 4, .replicas = 3, .seed = 5}),
                         {.workers = workers});
        EvaluationBatches evaluation(data, IdentityTransform{}, 4, 2);
        const History history = fit(training, batches, {.steps = 24, .every = 8, .validation = evaluation});
        CHECK(history.records.size() == 3);
        CHECK(*history.records[2].validation_loss < *history.records[0].validation_loss);
        return training.state().parameters;
    };
    const auto log = std::make_shared<OrderLog>();
    const std::vector<float> free = run({.rule = {.every = 2}, .ahead = 3, .log = log}, 1);
    CHECK(run({.rule = {.every = 2}, .ahead = 3, .order = Order::replay(*log)}, 0) == free);
}

TEST_CASE(
    "one replica trains as with ConcatMean: accumulated batches, labels that do not count, regularisers, statistics") {
    using Loss = LossCollection<WeightedCrossEntropy<3>, WeightDecay<0.1, "conv">>;
    const auto run = [](const auto& averaging) {
        using Averaging = std::remove_cvref_t<decltype(averaging)>;
        using OfNormed = DataParallel<Normed, Loss, Sgd, Averaging, Host, Pooled>;
        OfNormed training(typename OfNormed::Options{
            .batch_size = 4,
            .other_batch_sizes = {3},
            .gradient_accumulation_steps = 2,
            .seed = 3,
            .loss = {.data = {.ignored_label = 2}},
            .optimizer = {.learning_rate = 0.1, .momentum = 0.5},
            .groups = {{.pattern = "*.bias", .rate = 2}, {.pattern = "frozen.*", .frozen = true}},
            .averaging = averaging});
        std::vector<float> images(4 * 6 * 6 * 2);
        for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>((i * 7) % 23) / 11 - 1;
        const std::vector<std::int32_t> labels = {0, 2, 1, 2, 0, 1, 1};
        std::vector<double> losses;
        for (int step = 0; step < 5; ++step) {
            const StepReport& report = training.step([&](std::int64_t place, int, HostContext&) {
                return BatchView{images.data(), labels.data() + place % 4, 3 + place % 2, Normed::input_shape};
            });
            losses.push_back(report.loss);
            losses.push_back(report.weight);
            losses.push_back(report.parts[1].value);
        }
        const TrainingState state = training.state();
        std::vector<double> values(losses.begin(), losses.end());
        values.insert(values.end(), state.parameters.begin(), state.parameters.end());
        values.insert(values.end(), state.buffers.begin(), state.buffers.end());
        return values;
    };
    const std::vector<double> expected = run(ConcatMean{});
    const auto check = [&](const std::vector<double>& values) {
        REQUIRE(values.size() == expected.size());
        double largest = 0;
        for (std::size_t i = 0; i < values.size(); ++i) largest = std::max(largest, std::abs(values[i] - expected[i]));
        CHECK(largest < 1e-5);
    };
    check(run(Asynchronous<Downpour>{}));
    check(run(Backup{}));
    check(run(Hogwild{}));
}

TEST_CASE("numbers that are out of range, states of another rule, and several processes are errors") {
    const auto fails = [](const auto& averaging, const char* message) {
        using Rule = decltype(averaging.rule);
        CHECK_THROWS_WITH_AS(Trial<Rule>(averaging, 2, 1), message, InvalidArgument);
    };
    fails(Asynchronous<Elastic>{.rule = {.every = 0}}, "Elastic must exchange every 1 or more batches, not every 0");
    fails(Asynchronous<Downpour>{.rule = {.every = -1}},
          "Downpour must exchange every 1 or more batches, not every -1");
    fails(Asynchronous<Elastic>{.rule = {.rate = 0}}, "the moving rate must be more than 0, not 0");
    fails(Asynchronous<Elastic>{.ahead = 0}, "Asynchronous must have 1 to 4096 steps in flight, not 0");

    fails(Asynchronous<Forceless>{},
          "Asynchronous has a rule whose exchange takes the position before the update, and the rule does not say so: "
          "give it `static constexpr bool has_force = true`");

    Trial<Elastic> four({.rule = {.every = 4}}, 2, 1), two({.rule = {.every = 2}}, 2, 1);
    four.go(3);
    CHECK_THROWS_WITH_AS(two.training.restore(four.training.state()),
                         "the state is that of replicas that agree by Elastic every 4 batches, moving rate 0.9 / "
                         "replicas, and those of this training agree by Elastic every 2 batches, moving rate 0.9 / "
                         "replicas; load_parameters reads the centre alone from its checkpoint",
                         InvalidArgument);
    TrainingState by_hand = four.training.state();
    by_hand.rule.clear();
    CHECK_THROWS_WITH_AS(two.training.restore(by_hand),
                         "the state is of another rule: a replica has 3 batches since its last exchange, and exchanges "
                         "every 2",
                         InvalidArgument);
    by_hand.file = "run1/model-3.safetensors";
    CHECK_THROWS_WITH_AS(two.training.restore(by_hand),
                         "run1/model-3.safetensors cannot be resumed from: the state is of another rule: a replica has "
                         "3 batches since its last exchange, and exchanges every 2",
                         DataError);
    Trial<Downpour> downpour({.rule = {.every = 4}}, 2, 1);
    CHECK_THROWS_WITH_AS(downpour.training.restore(four.training.state()),
                         doctest::Contains("and those of this training agree by Downpour every 4 batches"),
                         InvalidArgument);

    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    fails(Asynchronous<Downpour>{},
          "Asynchronous trains in one process, and the launcher has started 2 (OMPI_COMM_WORLD_SIZE): use Periodic or "
          "ElasticAveraging, or SharedCentre on one machine");
    unsetenv("OMPI_COMM_WORLD_SIZE");
}

TEST_CASE("steps that may be skipped are an error that names the policy and the option") {
    const auto check = [](const auto& averaging, const std::string& name) {
        using Chosen = std::remove_cvref_t<decltype(averaging)>;
        using Skipping = DataParallel<rules::Net, MeanSquaredError, Sgd, Chosen, Host>;
        using Unlabelled = DataParallel<Sequential<Input<3>, Linear<3>>, WeightedCrossEntropy<3>, Sgd, Chosen, Host>;
        CHECK_THROWS_WITH_AS(
            (Skipping({.replicas = 2, .averaging = averaging, .loss_scale = LossScale{}})),
            (name + " cannot skip a step, which a dynamic loss_scale does: use a constant one").c_str(),
            InvalidArgument);
        CHECK_THROWS_WITH_AS((Unlabelled({.replicas = 2,
                                          .loss = {.data = {.ignored_label = -1}},
                                          .averaging = averaging,
                                          .skip_steps_without_labels = true})),
                             (name + " cannot skip a step, which skip_steps_without_labels does: leave it out").c_str(),
                             InvalidArgument);
        CHECK_NOTHROW((Skipping({.replicas = 2, .averaging = averaging, .loss_scale = LossScale::constant(8)})));
    };
    check(Periodic<ConcatMean>{}, "Periodic");
    check(ElasticAveraging<ConcatMean>{}, "ElasticAveraging");
    check(Asynchronous<Downpour>{}, "Asynchronous");
    check(Hogwild{}, "Hogwild");
    check(Backup{}, "Backup");
    check(OneOf<ConcatMean, Hogwild>(Hogwild{}), "Hogwild");
}

TEST_CASE("a run's header describes the rule and the order, and warns of a moving rate that is not stable") {
    CHECK(Asynchronous<Elastic>{}.description() ==
          "Asynchronous Elastic every 16 batches, moving rate 0.9 / replicas, in free order, at most 4 steps ahead");
    CHECK(Asynchronous<Downpour>{.ahead = 1, .order = Order::round_robin()}.description() ==
          "Asynchronous Downpour every 1 batch, round robin, at most 1 step ahead");
    CHECK(Asynchronous<Elastic>{.rule = {.rate = 1}}.warning(4) ==
          "the moving rate 1 is not below 1: asynchronous elastic averaging is not stable");
    CHECK(Asynchronous<Elastic>{}.warning(4).empty());
    CHECK(Asynchronous<Downpour>{}.warning(4).empty());
}

TEST_CASE("the batches of fit() are called no more when an error ends it") {
    struct Stops {
        [[nodiscard]] bool synchronize_after(std::int64_t step) const {
            require<DataError>(step < 2, "not after step 2");
            return false;
        }
        void on_end(Run&) {}
    };
    Late late;
    Trial<Elastic> stopped({.rule = {.every = 1}}, 3, 2);
    CHECK_THROWS_WITH_AS(fit(stopped.training, SlowSource(stopped.source, late), {.steps = 10}, Stops{}),
                         "not after step 2", DataError);
    CHECK(late.is_destroyed);
    const auto log = std::make_shared<OrderLog>();
    Trial<Elastic> recorded({.rule = {.every = 1}, .log = log}, 3, 2);
    recorded.go(3);
    static_cast<void>(recorded.training.parameters());
    late.is_destroyed = false;
    Trial<Elastic> replayed({.rule = {.every = 1}, .order = Order::replay(*log)}, 3, 2);
    CHECK_THROWS_WITH_AS(fit(replayed.training, SlowSource(replayed.source, late), {.steps = 10}),
                         "the order log has the steps 0 to 2, and not step 3", InvalidArgument);
    // No job is left: the state can be read, and none of the threads waits for a source.
    CHECK(replayed.training.step() == 3);
    check_equal(replayed.training.state(), recorded.training.state());
    CHECK(late.calls == 0);
}
