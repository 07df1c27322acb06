// SPDX-License-Identifier: Apache-2.0
//
// After the first step nothing is allocated by us in any thread, and the process takes no more memory than was printed.
#include "../test.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cupola/models/tutorial_augmentation.hpp>

#include "counting.hpp"
#include "tutorial.hpp"

TEST_CASE("the counter sees Cupola's allocations, in any thread") {
    start_counting();
    std::thread([] {
        std::vector<int> numbers(1000, 1);
        CHECK(numbers.back() == 1);
    }).join();
    CHECK(stop_counting().ours >= 1);

    start_counting();
    CHECK_THROWS_AS(throw 1, int);  // libstdc++ allocates for us
    CHECK(stop_counting().ours >= 1);
}

TEST_CASE("after the first step Cupola allocates nothing, and oneDNN with AVX-512 at most 4 KiB at a time") {
    struct Setting {
        int devices, threads, workers;
    };
    for (const Setting& s : {Setting{1, 2, 0}, Setting{2, 1, 0}, Setting{2, 1, 2}}) {
        CAPTURES(s.devices, s.workers);
        Prefetch batches(TrainingBatches(tutorial::sample().train, TutorialAugmentation{},
                                         {.batch_size = 32, .replicas = 2, .seed = 1}),
                         {.workers = s.workers});
        tutorial::Training<> training({.replicas = 2,
                                       .devices = s.devices,
                                       .device = {.threads = s.threads},
                                       .batch_size = 32,
                                       .optimizer = {.learning_rate = 0.01, .momentum = 0.9},
                                       .check_every = 2});
        training.step(batches);
        start_counting();
        for (int i = 0; i < 6; ++i) training.step(batches);
        const AllocationCount count = stop_counting();
        std::printf(
            "allocations in 6 steps on %d devices with %d workers: ours %zu; others' %zu, %zu bytes, the largest %zu (%s)\n",
            s.devices, s.workers, count.ours, count.others, count.others_bytes, count.others_largest,
            Host::library_isa().c_str());
        CHECK(count.ours == 0);
        if (Host::library_isa().starts_with("avx512")) CHECK(count.others_largest <= 4096);
    }
}

namespace {

/// The largest resident memory of a fresh process that trains a few steps at this batch size, and what it had printed.
struct Footprint {
    double peak = 0, planned = 0;
    explicit Footprint(std::int64_t batch) {
        int pipes[2];
        REQUIRE(pipe(pipes) == 0);
        const pid_t child = fork();
        if (child == 0) {
            dup2(pipes[1], 3);
            setenv("CUPOLA_TEST_FOOTPRINT", std::to_string(batch).c_str(), 1);
            execl("/proc/self/exe", "footprint", "--test-case=trains for its footprint", nullptr);
            _exit(127);
        }
        close(pipes[1]);
        std::size_t numbers[2] = {};
        REQUIRE(read(pipes[0], numbers, sizeof numbers) == sizeof numbers);
        close(pipes[0]);
        int status = 0;
        rusage usage{};
        wait4(child, &status, 0, &usage);
        REQUIRE(status == 0);
        peak = static_cast<double>(numbers[0]);
        planned = static_cast<double>(numbers[1]);
    }
};

std::size_t peak_bytes() { return impl::number_in_file("/proc/self/status", "VmHWM:", 0) * 1024; }

}  // namespace

TEST_CASE("trains for its footprint") {
    const char* const batch_text = std::getenv("CUPOLA_TEST_FOOTPRINT");
    if (batch_text == nullptr) return;  // only the test below sets it, for a process of its own
    const std::int64_t batch = std::atoll(batch_text);
    std::vector<float> images(static_cast<std::size_t>(batch) * 24 * 24 * 3, 0.5F);
    std::vector<std::int32_t> labels(static_cast<std::size_t>(batch), 3);
    tutorial::Training<> training({.replicas = 2, .devices = 2, .batch_size = batch});
    const BatchView views[] = {{images.data(), labels.data(), batch, Shape{24, 24, 3}},
                               {images.data(), labels.data(), batch, Shape{24, 24, 3}}};
    for (int i = 0; i < 3; ++i) training.step(views);
    const std::size_t numbers[2] = {peak_bytes(), training.memory().total() + images.size() * sizeof(float)};
    if (write(3, numbers, sizeof numbers) != sizeof numbers) _exit(1);
}

TEST_CASE("peak memory is the printed plan plus a constant, within a tenth") {
    // The program, the libraries' code, oneDNN's generated code and the stacks: measured as what a batch of 1 leaves
    // over.
    const Footprint smallest(1);
    const double constant = smallest.peak - smallest.planned;
    std::printf("batch 1: peak %.1f MB, plan %.1f MB, so %.1f MB beside the plan\n", smallest.peak / 1e6,
                smallest.planned / 1e6, constant / 1e6);
    CHECK(constant > 0);
    CHECK(constant < 150e6);
    for (const std::int64_t batch : {128, 256}) {
        CAPTURE(batch);
        const Footprint footprint(batch);
        std::printf("batch %lld: peak %.1f MB, plan %.1f MB\n", static_cast<long long>(batch), footprint.peak / 1e6,
                    footprint.planned / 1e6);
        CHECK(footprint.peak == doctest::Approx(footprint.planned + constant).epsilon(0.1));
    }
}
