// SPDX-License-Identifier: Apache-2.0
//
// Steps of which the first gradients count.
#include <cupola/parallel/kinds/backup.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <cupola/host.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "../../loss/squares.hpp"
#include "../../test.hpp"
#include "kind_training.hpp"

using namespace cupola;

namespace {

constexpr int steps = 30;

struct Source {
    Source() {
        for (int step = 0; step < steps; ++step) of_steps[static_cast<std::size_t>(step)].set(step);
    }
    [[nodiscard]] BatchView operator()(std::int64_t step, int number, HostContext&) const {
        if (step == bad_step) return {large.data(), Shape{3}, large.data(), Shape{1}, 3};
        // Batches of unequal sizes.
        return of_steps[static_cast<std::size_t>(step)].of(number, 1 + (step + number) % 3);
    }
    int bad_step = -1;
    std::vector<float> large = std::vector<float>(9, 1e38F);
    std::vector<rules::Batches> of_steps = std::vector<rules::Batches>(steps, rules::Batches(3));
};

template <class Averaging>
auto options(const Averaging& averaging, int devices) {
    return
        typename rules::KindTraining<Averaging, Host>::Options{.replicas = 3,
                                                               .devices = devices,
                                                               .batch_size = 3,
                                                               .other_batch_sizes = {1, 2},
                                                               .optimizer = {.learning_rate = 0.125, .momentum = 0.875},
                                                               .averaging = averaging,
                                                               .moving_average = {.decay = 0.75},
                                                               .check_every = 4};
}
using Training = rules::KindTraining<Backup, Host>;

}  // namespace

TEST_CASE("with no replica to spare it has the bits of ConcatMean") {
    const Source source;
    rules::KindTraining<ConcatMean, Host> expected(options(ConcatMean{}, 1));
    rules::start(expected);
    for (int step = 0; step < steps; ++step) expected.queue(source);
    const TrainingState all = expected.state();
    for (const int devices : {1, 3}) {
        Training training(options(Backup{.count = 3}, devices));
        rules::start(training);
        for (int step = 0; step < steps; ++step) training.queue(source);
        const TrainingState state = training.state();
        CHECK(state.parameters == all.parameters);
        CHECK(state.averages == all.averages);
        REQUIRE(state.centre_optimizer.size() == 1);
        CHECK(state.centre_optimizer[0].name == "velocity");
        CHECK(state.centre_optimizer[0].values == all.optimizer[0].values);
    }
}

TEST_CASE("late replicas have no samples, and the bits are those of ConcatMean with the others") {
    const Source source;
    Training training(options(Backup{.count = 2}, 3));
    rules::start(training);
    std::vector<std::vector<bool>> counts;
    const auto read = [&](std::int64_t in_flight) {
        while (const StepReport* const report = training.poll_report(in_flight)) {
            counts.emplace_back();
            std::int64_t samples = 0;
            int late = 0;
            for (int r = 0; r < 3; ++r) {
                const std::int64_t here = report->replicas[static_cast<std::size_t>(r)].samples;
                counts.back().push_back(here > 0);
                samples += here;
                late += here == 0 ? 1 : 0;
                if (here > 0) CHECK(here == 1 + (report->step + r) % 3);
            }
            CHECK(late == 1);
            CHECK(report->samples == samples);
        }
    };
    for (int step = 0; step < steps; ++step) {
        training.queue(source);
        read(1);
    }
    read(0);
    REQUIRE(counts.size() == steps);

    rules::KindTraining<ConcatMean, Host> expected(options(ConcatMean{}, 1));
    rules::start(expected);
    for (int step = 0; step < steps; ++step) {
        expected.step([&](std::int64_t, int r, HostContext& context) {
            const BatchView batch = source(step, r, context);
            if (counts[static_cast<std::size_t>(step)][static_cast<std::size_t>(r)]) return batch;
            BatchView none = batch;
            none.size = 0;
            return none;
        });
    }
    CHECK(training.state().parameters == expected.state().parameters);
    for (int device = 0; device < 3; ++device) CHECK(training.parameters(device) == expected.parameters());
}

TEST_CASE("on one device the replicas count in turns, also in a training that is resumed") {
    const Source source;
    Training training(options(Backup{.count = 2}, 1)), resumed(options(Backup{.count = 2}, 1));
    rules::start(training);
    for (int step = 0; step < 6; ++step) {
        const StepReport& report = training.step(source);
        for (int r = 0; r < 3; ++r) {
            const bool is_late = r == (2 * step + 2) % 3;
            CHECK((report.replicas[static_cast<std::size_t>(r)].samples == 0) == is_late);
        }
    }
    resumed.restore(training.state());
    for (int step = 6; step < 10; ++step) {
        training.queue(source);
        resumed.queue(source);
    }
    const TrainingState a = training.state(), b = resumed.state();
    CHECK(a.parameters == b.parameters);
    CHECK(a.averages == b.averages);
    CHECK(a.centre_optimizer == b.centre_optimizer);
}

TEST_CASE("the weights of a late replica's samples do not count") {
    const auto options_of = []<class Averaging>(const Averaging& averaging) {
        return typename DataParallel<rules::Net, WeightedSquares<>, Sgd, Averaging, Host>::Options{
            .replicas = 3, .batch_size = 2, .optimizer = {.learning_rate = 0.125}, .averaging = averaging};
    };
    DataParallel<rules::Net, WeightedSquares<>, Sgd, Backup, Host> training(options_of(Backup{.count = 2}));
    DataParallel<rules::Net, WeightedSquares<>, Sgd, ConcatMean, Host> expected(options_of(ConcatMean{}));
    const std::vector<float> samples = {1, 0, 0.5F, -1, 0.25F, 0.5F};
    for (int step = 0; step < 6; ++step) {
        // One device takes the replicas in turns, and the samples of each have weights of their own.
        std::vector<std::vector<float>> targets;
        for (int r = 0; r < 3; ++r) {
            const auto weight = static_cast<float>(1 + 4 * r + step);
            targets.push_back({1, weight, -2, weight / 2});
        }
        const auto batch = [&](int r) -> BatchView {
            return {samples.data(), Shape{3}, targets[static_cast<std::size_t>(r)].data(), Shape{2}, 2};
        };
        const StepReport& report = training.step([&](std::int64_t, int r, HostContext&) { return batch(r); });
        std::vector<bool> counts;
        for (const ReplicaReport& each : report.replicas) counts.push_back(each.samples > 0);
        CHECK(std::ranges::count(counts, true) == 2);
        expected.step([&](std::int64_t, int r, HostContext&) {
            return counts[static_cast<std::size_t>(r)] ? batch(r) : BatchView{};
        });
    }
    const std::vector<float> a = training.parameters(), b = expected.parameters();
    CHECK(a == b);
}

TEST_CASE("an inspector is called where replica 0 counts, else the step is done with an error") {
    const Source source;
    Training training(options(Backup{.count = 2}, 1));
    rules::start(training);
    int calls = 0;
    const auto inspect = [&](const auto&) { ++calls; };
    training.queue(source, inspect);
    CHECK(calls == 1);
    // On one device replicas 2 and 0 count in step 1, and 1 and 2 in step 2.
    training.queue(source, inspect);
    CHECK(calls == 2);
    CHECK_THROWS_WITH_AS(training.queue(source, inspect),
                         "replica 0 was late in step 2, so its inspector was not called; the step is done",
                         InvalidArgument);
    CHECK(calls == 2);
    CHECK(training.step() == 3);
    training.queue(source);
    CHECK(training.state().step == 4);
}

TEST_CASE("a gradient that counts and is not finite ends the run, which returns to the last check") {
    Source source;
    source.bad_step = 6;
    Training training(options(Backup{.count = 2}, 3));
    rules::start(training);
    const auto go = [&] {
        for (int step = 0; step < 10; ++step) training.queue(source);
        static_cast<void>(training.state());
    };
    CHECK_THROWS_AS(go(), DivergedError);
    CHECK(training.step() == 4);
    CHECK(training.state().step == 4);
}

TEST_CASE("Backup counts at least one gradient, and no more than there are replicas") {
    const auto fails = [](const Backup& averaging, const char* message) {
        CHECK_THROWS_WITH_AS(Training{options(averaging, 1)}, message, InvalidArgument);
    };
    fails({.count = 4}, "Backup must count 1 to 3 gradients of 3 replicas, not 4");
    fails({.count = 1, .ahead = 0}, "Backup must have 1 to 4096 steps in flight, not 0");
    CHECK_THROWS_AS(Training{options(Backup{.count = 0}, 1)}, InvalidArgument);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    fails({.count = 1},
          "Backup trains in one process, and the launcher has started 2 (OMPI_COMM_WORLD_SIZE): use Periodic or "
          "ElasticAveraging");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    CHECK(Backup{.count = 4}.description() == "Backup, the first 4 gradients of a step");
}

TEST_CASE("a batch without samples is no error where its step does not need it any more") {
    struct LateWithout {
        [[nodiscard]] BatchView operator()(std::int64_t step, int number, HostContext& context) const {
            BatchView batch = source->operator()(step, number, context);
            if (number == 0) return batch;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            batch.size = 0;
            return batch;
        }
        const Source* source;
    };
    const Source source;
    const LateWithout batches{&source};
    Training training(options(Backup{.count = 1}, 3));
    rules::start(training);
    for (int step = 0; step < 3; ++step) CHECK(training.step(batches).replicas[0].samples > 0);
    CHECK(training.state().step == 3);
}
