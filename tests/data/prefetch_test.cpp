// SPDX-License-Identifier: Apache-2.0
//
// The prefetch queue: the same batches for any number of workers, bounded, in order, and it can be ended at any time.
#include <cupola/data/prefetch.hpp>
#include <cupola/models/tutorial_augmentation.hpp>

#include "../test.hpp"

#include <mutex>

#include <cupola/tensor/algorithms.hpp>

#include "child_process.hpp"
#include "few_threads.hpp"
#include "labelled.hpp"
#include "support.hpp"

using namespace cupola_tests;

namespace {

/// A source that records its requests. Each sample of a batch is 1000 * step + replica.
struct Noted {
    struct Notes {
        std::mutex mutex;
        std::vector<std::pair<std::int64_t, int>> filled;  ///< each batch once, as its first piece is filled
        std::vector<std::int64_t> asked;                   ///< by the replicas, kept by the test
        std::atomic<std::int64_t> furthest_ahead = 0, pieces = 0;
    };
    std::int64_t size = 16;
    int count = 1;
    std::int64_t failing_step = -1;
    int failing_replica = 0;
    std::chrono::microseconds pause{0};
    std::shared_ptr<Notes> notes = std::make_shared<Notes>();

    [[nodiscard]] std::int64_t batch_size() const { return size; }
    [[nodiscard]] int replicas() const { return count; }
    [[nodiscard]] Columns columns() const {
        return {{"input", ElementType::float32, {1}}, {"target", ElementType::int32, {1}}};
    }
    void fill(std::int64_t step, int replica, std::int64_t begin, std::int64_t end, const BatchSpan& batch) const {
        if (pause.count() > 0) std::this_thread::sleep_for(pause);
        ++notes->pieces;
        if (begin == 0) {
            const std::scoped_lock lock(notes->mutex);
            notes->filled.emplace_back(step, replica);
            if (!notes->asked.empty()) {
                const std::int64_t ahead = step - notes->asked[static_cast<std::size_t>(replica)];
                notes->furthest_ahead = std::max(notes->furthest_ahead.load(), ahead);
            }
        }
        require<DataError>(step != failing_step || replica != failing_replica || begin < size / 2, "no data for step ",
                           step, " of replica ", replica);
        for (std::int64_t i = begin; i < end; ++i) {
            batch.inputs()[i] = static_cast<float>(1000 * step + replica);
            batch.labels()[i] = replica;
        }
    }
};

bool holds(const BatchView& batch, std::int64_t step, int replica) {
    bool all = batch.size > 0;
    for (std::int64_t i = 0; i < batch.size; ++i) {
        all = all && batch.inputs()[i] == static_cast<float>(1000 * step + replica) && batch.labels()[i] == replica;
    }
    return all;
}

}  // namespace

TEST_CASE(
    "batches are the same bits for 0, 1 and 4 workers, for any threads, and for replicas on threads of their own") {
    const ImageSet set = random_images(200, 12, 12);
    const auto source = [&] {
        return TrainingBatches(set, TutorialAugmentation{.height = 9, .width = 7},
                               {.batch_size = 21, .replicas = 3, .seed = 6});
    };
    constexpr std::int64_t steps = 30;
    const std::size_t size = 21 * 9 * 7 * 3;
    const auto reference = source();
    for (const int workers : {0, 1, 4}) {
        for (const int threads : {1, several_threads}) {
            for (const int devices : {1, 3}) {
                Prefetch batches(source(), {.workers = workers});
                std::atomic<int> wrong = 0;
                const auto device = [&](int first) {
                    HostContext context(first, {.threads = threads});
                    std::vector<float> samples(size);
                    std::vector<std::int32_t> labels(21);
                    for (std::int64_t step = 0; step < steps; ++step) {
                        for (int r = first; r < 3; r += devices) {
                            const BatchView batch = batches(step, r, context);
                            reference.fill(step, r, labelled(reference, samples.data(), labels.data()));
                            const bool equal = batch.size == 21 &&
                                               std::equal(samples.begin(), samples.end(), batch.inputs()) &&
                                               std::equal(labels.begin(), labels.end(), batch.labels());
                            if (!equal) ++wrong;
                        }
                    }
                };
                {
                    std::vector<std::jthread> workers_of_devices;
                    for (int d = 0; d < devices; ++d) workers_of_devices.emplace_back(device, d);
                }
                CAPTURES(workers, threads, devices);
                CHECK(wrong == 0);
            }
        }
    }
}

TEST_CASE("a run may begin at any step and gets the batches of a run that started at step 0") {
    for (const int workers : {0, 2}) {
        SerialContext context;
        Prefetch batches(Noted{.count = 2}, {.workers = workers});
        for (std::int64_t step = 41; step < 50; ++step) {
            for (const int replica : {1, 0}) CHECK(holds(batches(step, replica, context), step, replica));
        }
    }
}

TEST_CASE("a replica's batch is unchanged until the replica requests its next step") {
    for (const int workers : {0, 1, 4}) {
        SerialContext context;
        Prefetch batches(Noted{.count = 2}, {.workers = workers});
        const BatchView held = batches(0, 0, context);
        for (std::int64_t step = 0; step < 20; ++step) CHECK(holds(batches(step, 1, context), step, 1));
        CHECK(holds(held, 0, 0));
        CHECK(batches(0, 0, context).inputs() == held.inputs());  // a second request returns the same batch
        CHECK(holds(batches(1, 0, context), 1, 0));
    }
}

TEST_CASE("workers fill at most two batches per replica, the oldest step first") {
    for (const int workers : {1, 4}) {
        SerialContext context;
        const Noted source{.count = 3};
        source.notes->asked.assign(3, 0);
        Prefetch batches(source, {.workers = workers});
        for (std::int64_t step = 0; step < 40; ++step) {
            for (int replica = 0; replica < 3; ++replica) {
                {
                    const std::scoped_lock lock(source.notes->mutex);
                    source.notes->asked[static_cast<std::size_t>(replica)] = step;
                }
                CHECK(holds(batches(step, replica, context), step, replica));
            }
        }
        CHECK(source.notes->furthest_ahead <= 1);
        const std::scoped_lock lock(source.notes->mutex);
        REQUIRE(source.notes->filled.size() >= 120);
        if (workers == 1) CHECK(std::is_sorted(source.notes->filled.begin(), source.notes->filled.end()));
    }
}

TEST_CASE("an exception of preparing a batch is thrown by the call for that batch, and by no other") {
    for (const int workers : {0, 1, 4}) {
        SerialContext context;
        Prefetch batches(Noted{.count = 2, .failing_step = 3, .failing_replica = 1}, {.workers = workers});
        for (std::int64_t step = 0; step < 6; ++step) {
            CHECK(holds(batches(step, 0, context), step, 0));
            if (step != 3) {
                CHECK(holds(batches(step, 1, context), step, 1));
                continue;
            }
            for (int again = 0; again < 2; ++again) {
                CHECK(message_of<DataError>([&] { batches(step, 1, context); }) == "no data for step 3 of replica 1");
            }
        }
    }
}

TEST_CASE("an exception of a thread of the device's team is thrown by the call") {
    HostContext context(0, {.threads = several_threads});
    Prefetch batches(Noted{.size = 100, .failing_step = 0}, {.workers = 0});
    CHECK(message_of<DataError>([&] { batches(0, 0, context); }) == "no data for step 0 of replica 0");
}

TEST_CASE("the queue can be destroyed at once: before the first batch, between steps, during a batch") {
    for (const int workers : {0, 1, 4}) {
        {
            const Prefetch never_asked(Noted{}, {.workers = workers});
        }
        SerialContext context;
        {
            Prefetch batches(Noted{.count = 2}, {.workers = workers});
            for (std::int64_t step = 0; step < 3; ++step) batches(step, 0, context);
        }
        if (workers == 0) continue;
        constexpr std::int64_t size = 100'000;  // 12,500 pieces of a millisecond each, if not stopped
        const Noted slow{.size = size, .pause = std::chrono::milliseconds(1)};
        {
            auto batches = std::make_unique<Prefetch<Noted>>(slow, PrefetchOptions{.workers = workers});
            std::jthread asking([&, queue = batches.get()] {
                static_cast<void>(message_of<InvalidArgument>([&] { (*queue)(0, 7, context); }));
            });
            asking.join();
        }
        Noted::Notes& notes = *slow.notes;
        CHECK(notes.pieces == 0);  // a replica that there is not starts nothing
    }
}

TEST_CASE("the queue in a process with room for two threads" * doctest::skip()) {
    limit_threads(2);
    CHECK_THROWS_WITH_AS(Prefetch(Noted{}, {.workers = 4}),
                         "only 2 of 4 threads for the preparation of batches could be started: Resource temporarily "
                         "unavailable (error 11)",
                         Error);
}

TEST_CASE("a worker that cannot be started is an error with its number, and those that run are ended" *
          doctest::skip(!threads_can_be_limited)) {
    const ChildResult child = run_in_child("the queue in a process with room for two threads", {});
    CHECK_MESSAGE(child.passed, child.output);
}

TEST_CASE("destruction does not wait for a worker to finish its batch") {
    // The first step's batch is small work; the second's is prepared while the queue is destroyed.
    struct SlowSecond : Noted {
        void fill(std::int64_t step, int replica, std::int64_t begin, std::int64_t end, const BatchSpan& batch) const {
            if (step > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            Noted::fill(step, replica, begin, end, batch);
        }
    };
    constexpr std::int64_t size = 80'000, pieces = size / 8;
    SlowSecond source;
    source.size = size;
    SerialContext context;
    {
        Prefetch batches(source, {.workers = 2});
        batches(0, 0, context);
    }
    CHECK(source.notes->pieces >= pieces);     // the first batch is whole
    CHECK(source.notes->pieces < 2 * pieces);  // the second was left
}

TEST_CASE("a step that is neither the replica's current nor its next is rejected with the numbers") {
    for (const int workers : {0, 2}) {
        SerialContext context;
        Prefetch batches(Noted{.count = 2}, {.workers = workers});
        const auto refusal = [&](std::int64_t step, int replica) {
            return message_of<InvalidArgument>([&] { batches(step, replica, context); });
        };
        CHECK(refusal(-1, 0) == "a step must be at least 0, not -1");
        batches(5, 0, context);
        const std::string advice = " (another training, or one that was set back, needs a Prefetch of its own)";
        CHECK(refusal(7, 0) == "replica 0 requested the batch of step 7; its next one is step 6" + advice);
        CHECK(refusal(4, 0) == "replica 0 requested the batch of step 4; its next one is step 6" + advice);
        CHECK(refusal(4, 1) == "replica 1 requested the batch of step 4; its next one is step 5" + advice);
        CHECK(refusal(5, 2) == "replica 2 is out of range: the number of replicas is 2");
        CHECK(holds(batches(6, 0, context), 6, 0));
        CHECK(holds(batches(5, 1, context), 5, 1));
    }
    CHECK(message_of<InvalidArgument>([] { Prefetch(Noted{}, {.workers = -1}); }) ==
          "the number of prefetch workers must be 0 to 1024, not -1");
}
