// SPDX-License-Identifier: Apache-2.0
#include <cupola/train/checkpoint_every.hpp>

#include "../test.hpp"

#include <stdexcept>

#include <cupola/train/fit.hpp>

#include "throws_with.hpp"

namespace {

struct NoNet {
    static constexpr std::span<const LayerInfo> layers{};
};

/// A training whose state is its step alone.
struct Training {
    using NetworkType = NoNet;
    struct Options {
        std::int64_t batch_size = 8;
        int replicas = 2, gradient_accumulation_steps = 3;
    };
    StepReport report{.replicas = {{.samples = 8, .weight = 8, .parts = {{"cross_entropy", 1.5}}, .total = 1.5}},
                      .parts = {{"cross_entropy", 1.5}}};
    Options options{};
    bool whole = true;
    std::int64_t diverges_at = -1;

    std::int64_t made = 0, reported = 0;

    [[nodiscard]] std::int64_t step() const { return made; }
    static constexpr std::int64_t max_steps_in_flight = 1;
    template <class Batches>
        requires std::is_invocable_v<Batches&>
    void queue(Batches&&) {
        if (made == diverges_at) throw DivergedError("diverged", made, 0);
        ++made;
    }
    const StepReport* poll_report(std::int64_t max_in_flight) {
        if (made - reported <= max_in_flight) return nullptr;
        report.step = reported++;
        return &report;
    }
    [[nodiscard]] bool healthy() const { return whole; }
    [[nodiscard]] TrainingState state() const { return {.step = made, .parameters = {static_cast<float>(made)}}; }
};

/// Its reports come two steps later.
struct QueuedTraining : Training {
    static constexpr std::int64_t max_steps_in_flight = 3;
    using Training::queue;
    template <class Batches, class Inspect>
    void queue(Batches&, Inspect&&) {
        ++made;
    }
};

/// Keeps what it is given, or refuses it as a full disk does.
struct Directory {
    std::vector<Checkpoint> saved{};
    std::vector<std::pair<std::int64_t, double>> metrics{};
    bool full = false;

    void save(std::span<const LayerInfo>, const Checkpoint& checkpoint) {
        require<DataError>(!full, "the disk is full");
        saved.push_back(checkpoint);
    }
    void save_best(std::span<const LayerInfo>, const Checkpoint& checkpoint, double metric) {
        metrics.emplace_back(checkpoint.state.step, metric);
    }
    [[nodiscard]] std::vector<std::int64_t> steps() const {
        std::vector<std::int64_t> result;
        for (const Checkpoint& checkpoint : saved) result.push_back(checkpoint.state.step);
        return result;
    }
};

constexpr auto batches = [] {};
using Steps = std::vector<std::int64_t>;

Steps saved_steps(Training& training, std::int64_t every, std::int64_t steps) {
    Directory directory;
    fit(training, batches, {.steps = steps}, CheckpointEvery(training, directory, {.every = every}));
    return directory.steps();
}
Steps saved_steps(std::int64_t every, std::int64_t steps) {
    Training training;
    return saved_steps(training, every, steps);
}

}  // namespace

TEST_CASE("checkpoints are written after whole steps: every N steps, counted from step 0, and at the end") {
    CHECK(saved_steps(3, 7) == Steps{3, 6, 7});
    CHECK(saved_steps(3, 6) == Steps{3, 6});
    CHECK(saved_steps(1, 3) == Steps{1, 2, 3});
    CHECK(saved_steps(100, 7) == Steps{7});
    CHECK(saved_steps(0, 7) == Steps{7});
}

TEST_CASE("a resumed run keeps the interval of its checkpoints, and writes none for a step that it did not make") {
    Training training{.made = 4, .reported = 4};
    CHECK(saved_steps(training, 3, 4) == Steps{6, 8});
    CHECK(saved_steps(training, 3, 0).empty());
    CHECK(saved_steps(training, 0, 0).empty());
}

TEST_CASE("a checkpoint that is due with a record of the history is written once, after the record") {
    Training training;
    Directory directory;
    int records = 0;
    struct Counts {
        int& records;
        void on_record(const HistoryRecord&, Run&) const { ++records; }
    };
    const auto progress = [&](CheckpointInfo& info) { info.set("records", text(records)); };
    CheckpointEvery checkpoints(training, directory, {.every = 2, .progress = progress});
    fit(
        training, [] {}, {.steps = 5, .every = 4}, Counts{records}, checkpoints);
    std::vector<std::string> saved;
    for (const Checkpoint& each : directory.saved)
        saved.push_back(text(each.state.step, ": ", *each.info.find("records")));
    CHECK(saved == std::vector<std::string>{"2: 0", "4: 1", "5: 2"});
}

TEST_CASE("a directory whose best checkpoint is of another network is rejected before the first step") {
    struct OfAnotherNetwork : Directory {
        static void require_best_of(std::span<const LayerInfo>) { throw DataError("of another network"); }
    };
    Training training;
    OfAnotherNetwork directory;
    CHECK(message_of<DataError>([&] { fit(training, batches, {.steps = 3}, CheckpointEvery(training, directory)); }) ==
          "of another network");
    CHECK(training.step() == 0);
}

TEST_CASE("a run that is stopped or that diverges leaves the parameters after its last whole step") {
    struct Stop {
        void on_step(const StepReport& report, Run& run) { run.stop = report.step == 4; }
    };
    Training training;
    Directory directory;
    fit(training, batches, {.steps = 10}, CheckpointEvery(training, directory, {.every = 3}), Stop{});
    CHECK(directory.steps() == Steps{3, 5});

    Training diverging{.diverges_at = 5};
    directory.saved.clear();
    CHECK_THROWS_AS(fit(diverging, batches, {.steps = 10}, CheckpointEvery(diverging, directory, {.every = 3})),
                    DivergedError);
    CHECK(directory.steps() == Steps{3, 5});

    Training at_once{.diverges_at = 0};
    directory.saved.clear();
    CHECK_THROWS_AS(fit(at_once, batches, {.steps = 10}, CheckpointEvery(at_once, directory, {.every = 3})),
                    DivergedError);
    CHECK(directory.steps().empty());
}

TEST_CASE("parameters of an incomplete step are not kept") {
    Training training{.diverges_at = 5};
    Directory directory;
    training.whole = false;
    CHECK_THROWS_AS(fit(training, batches, {.steps = 10}, CheckpointEvery(training, directory, {.every = 0})),
                    DivergedError);
    CHECK(directory.steps().empty());
}

TEST_CASE("a checkpoint that cannot be written ends the run with the directory's error") {
    Training training;
    Directory directory;
    directory.full = true;
    CHECK(message_of<DataError>([&] {
              fit(training, batches, {.steps = 10}, CheckpointEvery(training, directory, {.every = 3}));
          }) == "the disk is full");
    CHECK(training.step() == 3);
}

TEST_CASE("a checkpoint has the training's state, the run's settings and its progress") {
    Training training;
    Directory directory;
    CheckpointOptions options{.every = 2};
    options.info.set("seed", "7");
    double metric = 0.5;
    CheckpointEvery checkpoints(training, directory, options,
                                [&]() -> std::optional<double> { return metric += 0.25; });
    fit(training, batches, {.steps = 4}, checkpoints);
    REQUIRE(directory.saved.size() == 2);
    CHECK(directory.saved[1].state.parameters == std::vector<float>{4});
    CHECK(*directory.saved[0].info.find("seed") == "7");
    CHECK(*directory.saved[0].info.find(images_seen_key) == "96");  // 2 steps of 2 replicas of 3 batches of 8
    CHECK(*directory.saved[1].info.find(images_seen_key) == "192");
    CHECK(directory.saved[0].info.find(losses_key) == nullptr);
    CHECK(directory.metrics == std::vector<std::pair<std::int64_t, double>>{{2, 0.75}, {4, 1.0}});
}

TEST_CASE(
    "a checkpoint is written before its metric is computed, and without a metric it is no candidate for the best") {
    Training training;
    Directory directory;
    std::size_t asked = 0;
    CheckpointEvery checkpoints(training, directory, {.every = 2}, [&]() -> std::optional<double> {
        CHECK(directory.saved.size() == ++asked);
        return {};
    });
    fit(training, batches, {.steps = 4}, checkpoints);
    CHECK(asked == 2);
    CHECK(directory.metrics.empty());
}

TEST_CASE("smoothed losses are restored from a checkpoint with every digit") {
    Training training;
    training.report.samples = 8;
    training.report.weight = 8;
    LossAverages losses;
    for (const double loss : {1.0 / 3, 2.0 / 7, 1e-300, 5e9}) {
        training.report.loss = training.report.parts[0].value = loss;
        losses.update(training.report);
    }
    Directory directory;
    fit(training, batches, {.steps = 1}, CheckpointEvery(training, directory, {.losses = &losses}));
    LossAverages restored;
    restore_losses(directory.saved[0].info, restored);
    REQUIRE(restored.state().size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(restored.state()[i].name == losses.state()[i].name);
        CHECK(restored.state()[i].value == losses.state()[i].value);
    }
}

TEST_CASE("a callback that throws omits no step from the smoothed losses in the final checkpoint") {
    struct FullDisk {
        std::int64_t at;
        void on_step(const StepReport& report, Run&) const {
            require<DataError>(report.step != at, "the disk is full");
        }
    };
    struct Smoothed {
        LossAverages losses{};
        std::int64_t steps = 0;
        void on_step(const StepReport& report, Run&) {
            losses.update(report);
            ++steps;
        }
    };
    const auto last_losses = [](std::int64_t steps, std::int64_t full_at) {
        Training training;
        training.report.samples = 8;
        training.report.weight = 8;
        Directory directory;
        Smoothed smoothed;
        CHECK(message_of<DataError>([&] {
                  fit(training, batches, {.steps = steps}, FullDisk{full_at}, smoothed,
                      CheckpointEvery(training, directory, {.every = 0, .losses = &smoothed.losses}));
              }) == (full_at < 0 ? "(no exception)" : "the disk is full"));
        CHECK(smoothed.steps == training.step());
        REQUIRE(directory.steps() == Steps{3});
        return *directory.saved[0].info.find(losses_key);
    };
    CHECK(last_losses(10, 2) == last_losses(3, -1));
}

TEST_CASE("the first of several exceptions is thrown, and nothing is trained after it") {
    struct Throws {
        const char* what;
        void on_step(const StepReport&, Run&) const { throw DataError(what); }
    };
    Training training;
    CHECK(message_of<DataError>([&] { fit(training, batches, {.steps = 9}, Throws{"first"}, Throws{"second"}); }) ==
          "first");
    CHECK(training.step() == 1);
}

TEST_CASE("steps that were queued when a callback threw are reported, too") {
    struct Seen {
        Steps steps{};
        void on_step(const StepReport& report, Run&) { steps.push_back(report.step); }
    };
    struct Throws {
        void on_step(const StepReport& report, Run&) const { require<DataError>(report.step != 1, "the disk is full"); }
    };
    QueuedTraining training;
    Seen seen;
    CHECK(message_of<DataError>([&] { fit(training, batches, {.steps = 9}, Throws{}, seen); }) == "the disk is full");
    CHECK(training.step() == 4);
    CHECK(seen.steps == Steps{0, 1, 2, 3});
}

TEST_CASE("without smoothed losses in a checkpoint smoothing starts again, and invalid losses are rejected") {
    LossAverages losses;
    restore_losses({}, losses);
    CHECK(losses.parts().empty());
    for (const char* wrong : {"cross_entropy", "cross_entropy=", "a=1 b=x", "=", " "}) {
        CheckpointInfo info;
        info.set(losses_key, wrong);
        CHECK(contains(message_of<DataError>([&] { restore_losses(info, losses); }),
                       "the checkpoint's smoothed_losses '"));
    }
}

TEST_CASE("a negative interval of checkpoints is rejected") {
    Training training;
    Directory directory;
    CHECK(message_of<InvalidArgument>([&] { CheckpointEvery checkpoints(training, directory, {.every = -1}); }) ==
          "a checkpoint must be written every 0 (at the end only) or more steps, not -1");
}
