// SPDX-License-Identifier: Apache-2.0
//
// Replicas that agree on a centre, in a training: the same bits on any number of devices, the state at any step, files,
// and bad input. rules_on_devices_test.cpp compares the rules.
#include <cupola/parallel/kinds/centre_agreement.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <cupola/host.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/io/load_parameters.hpp>
#include <cupola/parallel/compressed.hpp>
#include <cupola/parallel/kinds/one_of.hpp>

#include "../../temporary_folder.hpp"
#include "../../test.hpp"
#include "kind_training.hpp"

using namespace cupola;

namespace {

/// The slow weights of Lookahead: every so often the centre moves half of the way to the mean of the replicas, and all
/// replicas continue from it.
struct SlowWeights {
    static constexpr std::string_view name = "SlowWeights";
    using Averaging = ConcatMean;
    std::int64_t every = 5;
    ConcatMean averaging{};

    [[nodiscard]] CentreRule rule(int) const { return {.every = every, .factor = 0.5}; }
};

/// A rule whose update pulls the replicas, in a policy that says so or not.
template <bool says>
struct Pulling {
    static constexpr std::string_view name = "Pulling";
    static constexpr bool has_force = says;
    using Averaging = ConcatMean;
    ConcatMean averaging{};

    [[nodiscard]] CentreRule rule(int replicas) const {
        return {.every = 2, .factor = 0.2 * replicas, .in_update = true, .moving_rate = 0.2};
    }
};

/// Three replicas with batches of unequal sizes and a schedule, which has made `to - from` steps.
template <class Averaging>
struct Case {
    using Training = rules::KindTraining<Averaging, Host>;

    Case(const Averaging& averaging, int devices, double momentum, double average = 0)
        : training({.replicas = 3,
                    .devices = devices,
                    .batch_size = 3,
                    .other_batch_sizes = {1, 2},
                    .optimizer = {.learning_rate = exponential_decay(0.125, 3, 0.9), .momentum = momentum},
                    .averaging = averaging,
                    .moving_average = {.decay = average, .warm_up = false}}) {
        rules::start(training);
    }
    void go(int to) {
        rules::Batches batches(3);
        for (; step < to; ++step) {
            batches.set(step);
            training.step([&](std::int64_t, int r, HostContext&) { return batches.of(r, 1 + (r + step) % 3); });
        }
    }

    Training training;
    int step = 0;
};

template <class Averaging>
std::vector<float> centre_after(const Averaging& averaging, int devices, int steps) {
    Case run(averaging, devices, 0.875);
    run.go(steps);
    return run.training.parameters();
}

}  // namespace

TEST_CASE("before from_step the replicas have the bits of the averaging inside, and afterwards others") {
    const auto inside = centre_after(ConcatMean{}, 2, 9);
    CHECK(centre_after(Periodic<ConcatMean>{.every = 4, .from_step = 100}, 2, 9) == inside);
    CHECK(centre_after(Periodic<ConcatMean>{.every = 4, .from_step = 6}, 2, 9) != inside);
    CHECK(centre_after(Periodic<ConcatMean>{.every = 4, .from_step = 8}, 2, 8) == centre_after(ConcatMean{}, 2, 8));
}

TEST_CASE("the centre has the same bits on any number of devices, also around compressed rows") {
    const auto check = [](const auto& averaging) {
        const auto expected = centre_after(averaging, 1, 9);
        for (const int devices : {2, 3}) CHECK(centre_after(averaging, devices, 9) == expected);
    };
    check(Periodic<ConcatMean>{.every = 4, .from_step = 2});
    check(Periodic<Compressed<ConcatMean>, Sgd>{.every = 4, .outer = rules::outer_sgd()});
    check(ElasticAveraging<ConcatMean>{.every = 4});
    check(ElasticAveraging<Compressed<ConcatMean>>{.every = 4});
}

TEST_CASE("a step's losses have the regularisers of the centre, on any number of devices") {
    const auto losses = [](int devices) {
        DataParallel<rules::Net, LossCollection<MeanSquaredError, WeightDecayAll<0.5>>, Sgd, Periodic<ConcatMean>, Host>
            training({.replicas = 3,
                      .devices = devices,
                      .batch_size = 3,
                      .optimizer = {.learning_rate = 0.125},
                      .averaging = {.every = 4}});
        rules::start(training);
        rules::Batches batches(3);
        std::vector<double> result;
        for (int step = 0; step < 3; ++step) {
            batches.set(step);
            const StepReport& report = training.step([&](std::int64_t, int r, HostContext&) { return batches.of(r); });
            for (const ReplicaReport& replica : report.replicas) {
                result.push_back(replica.total);
                CHECK(replica.parts[1].value == report.replicas[0].parts[1].value);
            }
            // The centre has not moved.
            double squares = 0;
            for (const double each : rules::Quadratic{}.start) squares += each * each;
            CHECK(report.parts[1].value == doctest::Approx(0.25 * squares));
        }
        return result;
    };
    const auto expected = losses(1);
    for (const int devices : {2, 3}) CHECK(losses(devices) == expected);
}

TEST_CASE("a training that is resumed after any step has the bits of one that is not") {
    const auto check = [](const auto& averaging, double momentum) {
        Case whole(averaging, 1, momentum, 0.75);
        std::vector<TrainingState> states;
        for (int at = 1; at <= 9; ++at) {
            whole.go(at);
            states.push_back(whole.training.state());
        }
        for (int at = 1; at < 9; ++at) {
            CAPTURE(at);
            Case resumed(averaging, 1 + at % 3, momentum, 0.75);
            resumed.training.restore(states[static_cast<std::size_t>(at - 1)]);
            resumed.step = at;
            resumed.go(9);
            const TrainingState state = resumed.training.state();
            CHECK(state.parameters == states.back().parameters);
            CHECK(state.averages == states.back().averages);
            CHECK(state.replicas == states.back().replicas);
            CHECK(state.centre_optimizer == states.back().centre_optimizer);
            CHECK(state.samples_since == states.back().samples_since);
        }
    };
    check(Periodic<ConcatMean>{.every = 4, .from_step = 2}, 0.875);
    check(Periodic<ConcatMean, Sgd>{.every = 4, .outer = rules::outer_sgd()}, 0.0);
    check(ElasticAveraging<ConcatMean>{.every = 4}, 0.875);
    check(Periodic<ConcatMean>{.every = 16, .from_step = 2, .fragments = 8, .delay = 1, .mix = 0.5}, 0.875);
    check(Periodic<ConcatMean, Sgd>{.every = 8, .fragments = 8, .outer = rules::outer_sgd()}, 0.0);
    check(Periodic<ConcatMean, Sgd>{.every = 5, .delay = 3, .outer = rules::outer_sgd()}, 0.875);
}

TEST_CASE("a checkpoint has the mean that moves the centre later, and the samples of each fragment") {
    const TemporaryFolder folder;
    const std::string path = folder.path("model.safetensors");
    const Periodic<ConcatMean> averaging{.every = 6, .fragments = 3, .delay = 1};
    Case whole(averaging, 1, 0.875), resumed(averaging, 2, 0.875);
    whole.go(6);
    write_checkpoint(path, rules::Net::layers, {.state = whole.training.state()});
    resumed.training.restore(read_checkpoint(path, rules::Net::layers).state);
    resumed.step = 6;
    whole.go(15);
    resumed.go(15);
    const TrainingState a = whole.training.state(), b = resumed.training.state();
    CHECK(a.samples_since.size() == 9);
    REQUIRE(a.centre_optimizer.size() == 1);
    CHECK(a.centre_optimizer[0].name == "mean_difference");
    CHECK(a.rule == "Periodic every 6 steps, in 3 fragments, 1 step later");
    CHECK(a.parameters == b.parameters);
    CHECK(a.replicas == b.replicas);
    CHECK(a.samples_since == b.samples_since);
    CHECK(a.centre_optimizer == b.centre_optimizer);
}

TEST_CASE("parameters that are set drop the mean that is to move the centre") {
    Case run(Periodic<ConcatMean>{.every = 4, .delay = 2}, 1, 0.0);
    run.go(5);
    CHECK(run.training.state().centre_optimizer[0].values != std::vector<float>(rules::arena_elements));
    std::vector<float> values(rules::arena_elements);
    values[0] = 0.25F, values[1] = 0.5F, values[2] = 0.75F;
    run.training.set_parameters(values);
    run.go(6);
    CHECK(run.training.parameters() == values);
}

TEST_CASE("the centre has the same bits on any number of devices in fragments, also around compressed rows") {
    const auto check = [](const auto& averaging) {
        const auto expected = centre_after(averaging, 1, 13);
        for (const int devices : {2, 3}) CHECK(centre_after(averaging, devices, 13) == expected);
    };
    check(Periodic<ConcatMean>{.every = 16, .fragments = 8, .delay = 1});
    check(Periodic<Compressed<ConcatMean>>{.every = 8, .fragments = 8, .mix = 0.5});
    // One fragment without a delay is the rule as it is without these members.
    CHECK(centre_after(Periodic<ConcatMean>{.every = 4, .fragments = 1, .delay = 0}, 1, 13) ==
          centre_after(Periodic<ConcatMean>{.every = 4}, 1, 13));
}

namespace {

/// An outer optimiser that reads whole tensors.
struct WholeTensors {
    static constexpr std::string_view name = "WholeTensors";
    double learning_rate = 1;
    [[nodiscard]] int state_arenas() const { return 0; }
    [[nodiscard]] std::string_view state_name(int) const { return {}; }
    [[nodiscard]] double learning_rate_at(std::int64_t) const { return learning_rate; }
    [[nodiscard]] std::string description() const { return "whole tensors"; }
    template <class Device>
    void update(const Update<Device>&) const {}
};

}  // namespace

TEST_CASE("bad numbers of fragments and of steps of delay are one message") {
    const auto refused = [](const auto& averaging, const char* message) {
        CHECK_THROWS_WITH_AS(Case(averaging, 1, 0.0), message, InvalidArgument);
    };
    using Local = Periodic<ConcatMean>;
    refused(Local{.every = 4, .fragments = 0}, "Periodic that agrees every 4 steps must have 1 to 4 fragments, not 0");
    refused(Local{.every = 1, .fragments = 2}, "Periodic that agrees every 1 step must have 1 to 1 fragments, not 2");
    refused(Local{.every = 32, .fragments = 17},
            "Periodic cannot divide the 16 elements of the parameters' arena into 17 fragments");
    refused(Local{.every = 4, .delay = -1},
            "Periodic with 1 fragment every 4 steps must move the centre 0 to 3 steps later, before the next fragment "
            "begins, not -1");
    refused(Local{.every = 8, .fragments = 3, .delay = 2},
            "Periodic with 3 fragments every 8 steps must move the centre 0 to 1 steps later, before the next fragment "
            "begins, not 2");
    refused(Local{.every = 4, .mix = 1.5}, "Periodic must mix in 0 to 1 of a replica's own parameters, not 1.5");
    refused(Periodic<ConcatMean, WholeTensors>{.every = 4, .fragments = 2},
            "Periodic with 2 fragments needs an outer optimiser with a formula of one element: another one reads whole "
            "tensors");
    Case later(Local{.every = 4, .delay = 1}, 1, 0.0), at_once(Local{.every = 4}, 1, 0.0);
    CHECK_THROWS_WITH_AS(at_once.training.restore(later.training.state()),
                         doctest::Contains("agree by Periodic every 4 steps, 1 step later, and those of this training "
                                           "agree by Periodic every 4 steps; "),
                         InvalidArgument);
    TrainingState fewer = later.training.state();
    fewer.samples_since.insert(fewer.samples_since.end(), 3, 0);
    CHECK_THROWS_WITH_AS(later.training.restore(fewer), "a state of 3 replicas in 1 fragment has 6 numbers of samples",
                         InvalidArgument);
    const Periodic<ConcatMean> streaming{.every = 64, .fragments = 4, .delay = 8, .mix = 0.5};
    CHECK(streaming.description() ==
          "Periodic every 64 steps, in 4 fragments, 8 steps later, mix 0.5, around ConcatMean");
    CHECK(Local{.every = 8, .fragments = 2, .delay = 3}.description() ==
          "Periodic every 8 steps, in 2 fragments, 3 steps later, around ConcatMean");
}

TEST_CASE("the mean is by the samples since the last agreement") {
    // Replica 1 has a third of the samples of replica 0 in each step.
    const auto run = [](auto averaging, int steps) {
        rules::KindTraining<decltype(averaging), Host> training({.replicas = 2,
                                                                 .batch_size = 3,
                                                                 .other_batch_sizes = {1, 2},
                                                                 .optimizer = {.learning_rate = 0.125},
                                                                 .averaging = averaging});
        rules::start(training);
        rules::Batches batches(2);
        for (int step = 0; step < steps; ++step) {
            batches.set(step);
            training.step([&](std::int64_t, int r, HostContext&) { return batches.of(r, r == 0 ? 3 : 1); });
        }
        return training.state();
    };
    const TrainingState before = run(Periodic<ConcatMean>{.every = 3}, 2),
                        after = run(Periodic<ConcatMean>{.every = 3}, 3),
                        apart = run(Periodic<ConcatMean>{.every = 4}, 3);
    CHECK(before.samples_since == std::vector<std::int64_t>{6, 2});
    CHECK(after.samples_since == std::vector<std::int64_t>{0, 0});
    for (std::size_t j = 0; j < rules::coordinates; ++j) {
        const double x0 = static_cast<double>(apart.replicas[0].parameters[j]),
                     x1 = static_cast<double>(apart.replicas[1].parameters[j]);
        CHECK(static_cast<double>(after.parameters[j]) == doctest::Approx((9 * x0 + 3 * x1) / 12).epsilon(1e-6));
    }
    CHECK(after.replicas[0].parameters == after.parameters);
    CHECK(after.replicas[1].parameters == after.parameters);
    CHECK(apart.replicas[0].parameters != apart.replicas[1].parameters);
}

TEST_CASE("a replica without samples in a step does not move, and no force acts on it") {
    const auto check = [](auto averaging, int devices) {
        CAPTURE(devices);
        averaging.every = 4;
        Case run(averaging, devices, 0.875);
        run.go(4);
        const TrainingState before = run.training.state();
        rules::Batches batches(3);
        batches.set(4);
        run.training.step([&](std::int64_t, int r, HostContext&) { return batches.of(r, r == 1 ? 0 : 3); });
        const TrainingState after = run.training.state();
        CHECK(after.replicas[0].parameters != before.replicas[0].parameters);
        CHECK(after.replicas[1] == before.replicas[1]);
        CHECK(after.replicas[2].parameters != before.replicas[2].parameters);
        return std::pair(before, after);
    };
    for (const int devices : {1, 2}) {
        check(Periodic<ConcatMean>{}, devices);
        // A step of an agreement: each difference is that of the position without the look-ahead.
        const auto [before, after] = check(ElasticAveraging<ConcatMean>{.rate = 0.2}, devices);
        for (std::size_t j = 0; j < rules::coordinates; ++j) {
            double expected = static_cast<double>(before.parameters[j]);
            for (const std::size_t r : {0U, 2U}) {
                const ReplicaState& replica = before.replicas[r];
                const double x = static_cast<double>(replica.parameters[j]) -
                                 0.875 * static_cast<double>(replica.optimizer[0].values[j]);
                expected += 0.2 * (x - static_cast<double>(before.parameters[j]));
            }
            CHECK(static_cast<double>(after.parameters[j]) == doctest::Approx(expected).epsilon(1e-5));
        }
    }
}

TEST_CASE("the centre's moving average moves at agreements, by the decay to the power of the period") {
    for (const int delay : {0, 3}) {
        CAPTURE(delay);
        const int first_move = 4 + delay;
        Case run(Periodic<ConcatMean>{.every = 4, .delay = delay}, 2, 0.0, 0.75);
        std::vector<float> average = run.training.state().averages;
        run.go(first_move - 1);
        CHECK(run.training.state().averages == average);
        run.go(first_move);
        const TrainingState state = run.training.state();
        const double kept = std::pow(0.75, first_move);
        for (std::size_t j = 0; j < rules::coordinates; ++j) {
            const double expected = kept * static_cast<double>(rules::Quadratic{}.start[j]) +
                                    (1 - kept) * static_cast<double>(state.parameters[j]);
            // The average begins with the first parameters, before start() sets others.
            const double first = static_cast<double>(average[j]);
            CHECK(static_cast<double>(state.averages[j]) ==
                  doctest::Approx(expected + kept * (first - rules::Quadratic{}.start[j])).epsilon(1e-6));
        }
    }
}

TEST_CASE("a rule of a user's own needs its numbers alone") {
    Case slow(SlowWeights{.every = 3}, 2, 0.0), apart(SlowWeights{.every = 4}, 1, 0.0);
    const TrainingState first = slow.training.state();
    slow.go(3);
    apart.go(3);
    const TrainingState to = slow.training.state(), from = apart.training.state();
    double samples = 0;
    for (const std::int64_t each : from.samples_since) samples += static_cast<double>(each);
    for (std::size_t j = 0; j < rules::coordinates; ++j) {
        double mean = 0;
        for (std::size_t r = 0; r < 3; ++r)
            mean += static_cast<double>(from.samples_since[r]) / samples *
                    static_cast<double>(from.replicas[r].parameters[j]);
        const double half = (static_cast<double>(first.parameters[j]) + mean) / 2;
        CHECK(static_cast<double>(to.parameters[j]) == doctest::Approx(half).epsilon(1e-5));
        CHECK(to.replicas[1].parameters[j] == to.parameters[j]);
    }
}

TEST_CASE("a rule of a user's own whose update pulls the replicas needs a policy that says so") {
    const std::string lacks = "Pulling has a rule with in_update and lacks `static constexpr bool has_force = true`";
    CHECK_THROWS_WITH_AS(Case(Pulling<false>{}, 1, 0.0), lacks.c_str(), InvalidArgument);
    using Choice = OneOf<ElasticAveraging<ConcatMean>, Pulling<false>, Pulling<true>>;
    CHECK_THROWS_WITH_AS(Case(Choice(Pulling<false>{}), 1, 0.0), lacks.c_str(), InvalidArgument);
    const auto expected = centre_after(ElasticAveraging<ConcatMean>{.every = 2, .rate = 0.2}, 1, 5);
    CHECK(centre_after(Pulling<true>{}, 1, 5) == expected);
    CHECK(centre_after(Choice(Pulling<true>{}), 2, 5) == expected);
}

TEST_CASE("a run's header describes the rule, and warns of a moving rate that is not stable") {
    const Periodic<ConcatMean> local_sgd{.every = 16, .from_step = 1000};
    const Periodic<ConcatMean, Sgd> diloco{.every = 64,
                                           .outer = {.learning_rate = 0.7, .momentum = 0.9, .nesterov = true}};
    const ElasticAveraging<ConcatMean> easgd{.every = 16, .rate = MovingRate::paper(0.9)};
    CHECK(local_sgd.description() == "Periodic every 16 steps from step 1000 on around ConcatMean");
    CHECK(diloco.description() == "Periodic every 64 steps around ConcatMean, the centre by " +
                                      diloco.outer.description() + ", learning rate constant 0.7");
    CHECK(easgd.warning(4).empty());
    CHECK(Periodic<ConcatMean>{.every = 8, .from_step = 100}.description() ==
          "Periodic every 8 steps from step 100 on around ConcatMean");
    CHECK(
        Periodic<ConcatMean, Sgd>{.every = 64, .outer = rules::outer_sgd()}.description() ==
        "Periodic every 64 steps around ConcatMean, the centre by sgd, momentum 0.9, nesterov, learning rate constant 0.7");
    const ElasticAveraging<ConcatMean> fast{.every = 1, .rate = 0.5}, slow{.rate = 0.2};
    CHECK(fast.description() == "ElasticAveraging every 1 step, moving rate 0.5, around ConcatMean");
    CHECK(fast.warning(4) ==
          "the moving rate 0.5 is not below 0.4 = 2 / (4 replicas + 1): elastic averaging is not stable");
    CHECK(slow.warning(4).empty());
}

TEST_CASE("a policy that is chosen when the program runs makes the training of the chosen one") {
    using Choice = OneOf<ConcatMean, Periodic<ConcatMean>, Periodic<ConcatMean, Sgd>, ElasticAveraging<ConcatMean>>;
    const auto check = [](const auto& chosen) {
        Case direct(chosen, 2, 0.875, 0.75);
        Case named(Choice(chosen), 2, 0.875, 0.75);
        CHECK(to_string(named.training.memory()) == to_string(direct.training.memory()));
        direct.go(6);
        named.go(6);
        const TrainingState expected = direct.training.state(), state = named.training.state();
        CHECK(state.parameters == expected.parameters);
        CHECK(state.averages == expected.averages);
        CHECK(state.replicas == expected.replicas);
        CHECK(state.centre_optimizer == expected.centre_optimizer);
        // Each continues the other.
        named.training.restore(expected);
        direct.training.restore(state);
    };
    const Periodic<ConcatMean> local{.every = 4, .from_step = 2};
    const ElasticAveraging<ConcatMean> elastic{.every = 4, .rate = 0.5};
    check(ConcatMean{});
    check(local);
    check(Periodic<ConcatMean, Sgd>{.every = 4, .outer = rules::outer_sgd()});
    check(elastic);

    CHECK(Choice().description() == "ConcatMean");
    CHECK(Choice(local).description() == local.description());
    CHECK(Choice(elastic).warning(4) == elastic.warning(4));
    CHECK(Choice(local).warning(4).empty());

    Case averaged(Choice(), 1, 0.0), own(Choice(local), 1, 0.0);
    averaged.go(1);
    own.go(1);
    CHECK(averaged.training.averaged_gradient().size() == static_cast<std::size_t>(rules::Net::trained_elements));
    CHECK_THROWS_WITH_AS(static_cast<void>(own.training.averaged_gradient()),
                         "Periodic updates each replica with its own gradient, and averages none", InvalidArgument);
}

TEST_CASE("the model is the centre: parameters, predictions and evaluation of every device") {
    Case run(ElasticAveraging<ConcatMean>{.every = 4}, 3, 0.875);
    run.go(6);
    const TrainingState state = run.training.state();
    CHECK(state.replicas.size() == 3);
    CHECK(state.parameters != state.replicas[0].parameters);
    for (int device = 0; device < 3; ++device) CHECK(run.training.parameters(device) == state.parameters);
    const std::vector<float> unit = {0, 1, 0};
    CHECK(run.training.predict(unit) == std::vector<float>{state.parameters[1]});
    std::vector<float> values(state.parameters.size());
    for (std::size_t j = 0; j < rules::coordinates; ++j) values[j] = static_cast<float>(j + 1);
    run.training.set_parameters(values);
    CHECK(run.training.predict(unit) == std::vector<float>{2});
    for (const ReplicaState& each : run.training.state().replicas) CHECK(each.parameters == values);
}

TEST_CASE(
    "a checkpoint has the centre under the plain names, each replica and the outer state, and continues exactly") {
    const Periodic<ConcatMean, Sgd> averaging{.every = 4, .outer = rules::outer_sgd()};
    const TemporaryFolder folder;
    const std::string path = folder.path("centre.safetensors");
    Case run(averaging, 2, 0.875, 0.75);
    run.go(6);
    const TrainingState state = run.training.state();
    write_checkpoint(path, rules::Net::layers, {.state = state});
    const SafetensorsFile file(path);
    for (const std::string name : {"0.weight", "ema.0.weight", "outer.momentum_buffer.0.weight", "replica.0.0.weight",
                                   "replica.2.optimizer.velocity.0.weight"})
        CHECK_MESSAGE(file.find(name) != nullptr, name);
    CHECK(file.find("optimizer.velocity.0.weight") == nullptr);

    const TrainingState read = read_checkpoint(path, rules::Net::layers).state;
    CHECK(read.parameters == state.parameters);
    CHECK(read.averages == state.averages);
    CHECK(read.replicas == state.replicas);
    CHECK(read.centre_optimizer == state.centre_optimizer);
    CHECK(read.samples_since == state.samples_since);
    CHECK(read.optimizer.empty());
    CHECK(read.rule == "Periodic every 4 steps, the centre by sgd, momentum 0.9, nesterov");
    CHECK(read.file == path);
    Case resumed(averaging, 3, 0.875, 0.75);
    resumed.training.restore(read);
    resumed.step = 6;
    run.go(9);
    resumed.go(9);
    CHECK(resumed.training.state().replicas == run.training.state().replicas);

    // A rule with a long text is read whole.
    TrainingState other = state;
    other.rule = std::string(150, 'r');
    write_checkpoint(folder.path("long"), rules::Net::layers, {.state = other});
    CHECK(read_checkpoint(folder.path("long"), rules::Net::layers).state.rule == other.rule);

    // The parameters alone are those of the centre, and begin anew in all replicas.
    Case loaded(Periodic<ConcatMean>{}, 1, 0.0);
    static_cast<void>(load_parameters(loaded.training, path, {.patterns = {"*"}}));
    const TrainingState begun = loaded.training.state();
    CHECK(begun.parameters == state.parameters);
    for (const ReplicaState& each : begun.replicas) CHECK(each.parameters == state.parameters);
}

TEST_CASE("an update that overflows is found in the next agreement, and the centre stays") {
    for (const int devices : {1, 2}) {
        CAPTURE(devices);
        rules::KindTraining<Periodic<ConcatMean>, Host> training({.replicas = 2,
                                                                  .devices = devices,
                                                                  .batch_size = 3,
                                                                  .optimizer = {.learning_rate = 3e38},
                                                                  .averaging = {.every = 1}});
        rules::start(training);
        const std::vector<float> before = training.parameters();
        rules::Batches batches(2);
        batches.set(0);
        CHECK_THROWS_WITH_AS(training.step([&](std::int64_t, int r, HostContext&) { return batches.of(r); }),
                             "after step 0 the difference of a replica to the centre is not finite: training diverged "
                             "in this step or one since the last check; restore an earlier state",
                             DivergedError);
        CHECK(training.parameters() == before);
    }
}

TEST_CASE("bad input of agreements on a centre is one message") {
    CHECK_THROWS_WITH_AS(Case(Periodic<ConcatMean>{.every = 0}, 1, 0.0),
                         "Periodic must agree every 1 or more steps, not every 0", InvalidArgument);
    CHECK_THROWS_WITH_AS(Case(Periodic<ConcatMean>{.from_step = -1}, 1, 0.0),
                         "Periodic must have its first own step at 0 or later, not at -1", InvalidArgument);
    CHECK_THROWS_WITH_AS(Case(ElasticAveraging<ConcatMean>{.every = -3}, 1, 0.0),
                         "ElasticAveraging must agree every 1 or more steps, not every -3", InvalidArgument);
    CHECK_THROWS_WITH_AS(Case(ElasticAveraging<ConcatMean>{.rate = 0.0}, 1, 0.0),
                         "the moving rate must be more than 0, not 0", InvalidArgument);

    Case local(Periodic<ConcatMean>{.every = 4}, 2, 0.875);
    Case outer(Periodic<ConcatMean, Sgd>{.every = 4, .outer = rules::outer_sgd()}, 2, 0.875);
    Case plain(ConcatMean{}, 2, 0.875);
    CHECK_THROWS_WITH_AS(plain.training.restore(local.training.state()),
                         "the state is that of 3 replicas that agree on a centre, and the replicas of this training do "
                         "not; load_parameters reads the centre alone from its checkpoint",
                         InvalidArgument);
    CHECK_THROWS_WITH_AS(local.training.restore(plain.training.state()),
                         "the replicas of this training agree on a centre, and the state has none; load_parameters "
                         "reads the parameters alone from its checkpoint",
                         InvalidArgument);
    const auto refused = [](auto& there, TrainingState state) {
        CHECK_THROWS_WITH_AS(
            there.training.restore(state),
            doctest::Contains("the state is that of replicas that agree by Periodic every 4 steps, and those of this "
                              "training agree by Periodic every 4 steps, the centre by sgd"),
            InvalidArgument);
        state.rule.clear();
        return state;
    };
    CHECK_THROWS_WITH_AS(outer.training.restore(refused(outer, local.training.state())),
                         "the centre's part of the state: this optimiser keeps momentum_buffer, and the state has none",
                         InvalidArgument);
    // The states of one without momentum fit.
    Case plain_outer(Periodic<ConcatMean, Sgd>{.every = 4, .outer = {.learning_rate = 0.5}}, 2, 0.875);
    plain_outer.training.restore(refused(plain_outer, local.training.state()));
    Case longer(Periodic<ConcatMean>{.every = 5}, 2, 0.875);
    CHECK_THROWS_WITH_AS(
        longer.training.restore(local.training.state()),
        "the state is that of replicas that agree by Periodic every 4 steps, and those of this training "
        "agree by Periodic every 5 steps; load_parameters reads the centre alone from its checkpoint",
        InvalidArgument);
    Case elastic(ElasticAveraging<ConcatMean>{.every = 4}, 2, 0.875);
    CHECK_THROWS_WITH_AS(
        elastic.training.restore(local.training.state()),
        "the state is that of replicas that agree by Periodic every 4 steps, and those of this training "
        "agree by ElasticAveraging every 4 steps; load_parameters reads the centre alone from its "
        "checkpoint",
        InvalidArgument);
    TrainingState many = local.training.state();
    many.samples_since[1] = std::int64_t{1} << 62;
    CHECK_THROWS_WITH_AS(
        local.training.restore(many),
        "a replica of the state has 4611686018427387904 samples since the last agreement, not 0 to 1099511627776",
        InvalidArgument);
    TrainingState fewer = local.training.state();
    fewer.replicas.pop_back();
    CHECK_THROWS_WITH_AS(local.training.restore(fewer),
                         "this training has 3 replicas with parameters of their own, and the state has those of 2",
                         InvalidArgument);
    // From a file they are errors of the data, which name it.
    fewer.file = "run1/model-3.safetensors";
    CHECK_THROWS_WITH_AS(local.training.restore(fewer),
                         "run1/model-3.safetensors cannot be resumed from: this training has 3 replicas with "
                         "parameters of their own, and the state has those of 2",
                         DataError);
    TrainingState of_file = local.training.state();
    CHECK(of_file.file.empty());
    of_file.file = "run1/model-3.safetensors";
    CHECK_THROWS_WITH_AS(longer.training.restore(of_file),
                         "run1/model-3.safetensors cannot be resumed from: the state is that of replicas that agree by "
                         "Periodic every 4 steps, and those of this training agree by Periodic every 5 steps; "
                         "load_parameters reads the centre alone from its checkpoint",
                         DataError);
    of_file.tensors[0].name = "other.weight";
    CHECK_THROWS_WITH_AS(local.training.restore(of_file),
                         doctest::Contains("run1/model-3.safetensors cannot be resumed from: the state belongs to "
                                           "another network: "),
                         DataError);
    of_file.file.clear();
    CHECK_THROWS_AS(local.training.restore(of_file), InvalidArgument);
    local.go(3);
    CHECK_NOTHROW(static_cast<void>(local.training.gradient(1)));
    local.go(4);
    CHECK_THROWS_WITH_AS(static_cast<void>(local.training.gradient(1)),
                         "the replicas have agreed in step 3, behind which the rows of the gradients are their "
                         "differences to the centre",
                         InvalidArgument);
    for (const int devices : {1, 2}) {
        Case none(Periodic<ConcatMean>{.every = 4}, devices, 0.0);
        CHECK_THROWS_WITH_AS(none.training.step([](std::int64_t, int, HostContext&) { return BatchView{}; }),
                             "step 0 has no samples on any replica", InvalidArgument);
        CHECK(none.training.healthy());
    }
}
