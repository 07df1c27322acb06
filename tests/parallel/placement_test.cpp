// SPDX-License-Identifier: Apache-2.0
//
// Where replicas run, who prepares their batches and on which processors changes no bit.
#include <cupola/parallel/data_parallel.hpp>

#include "../test.hpp"

#include <sched.h>
#include <cupola/models/tutorial_augmentation.hpp>

#include "tutorial.hpp"

namespace {

using Training = tutorial::AnyTraining;
constexpr std::int64_t steps = sanitized ? 10 : 50;

struct Placed {
    int devices = 1;
    int workers = 0;
};

/// The parameters of four replicas after `steps` steps.
std::vector<float> trained(const Placed& placed) {
    Prefetch batches(
        TrainingBatches(tutorial::sample().train, TutorialAugmentation{}, {.batch_size = 8, .replicas = 4, .seed = 2}),
        {.workers = placed.workers});
    Training training({.replicas = 4,
                       .devices = placed.devices,
                       .batch_size = 8,
                       .seed = 2,
                       .optimizer = {.learning_rate = 0.1, .momentum = 0.9}});
    fit(training, batches, {.steps = steps});
    std::vector<float> parameters = training.parameters();
    for (int device = 1; device < placed.devices; ++device) CHECK(training.parameters(device) == parameters);
    return parameters;
}

/// Computed once: what every other placement is compared with.
const std::vector<float>& reference() {
    static const std::vector<float> parameters = trained({});
    return parameters;
}

std::string hash_text(const std::vector<float>& values) {
    HostContext context(0, {.threads = 1});
    char digits[32];
    std::snprintf(digits, sizeof digits, "hash %016llx", static_cast<unsigned long long>(hash_of(context, values)));
    return digits;
}

}  // namespace

TEST_CASE("four replicas on one, two and four devices end with the same bits") {
    CHECK(trained({.devices = 2}) == reference());
    CHECK(trained({.devices = 4}) == reference());
}

TEST_CASE("no, one and four prefetch workers end with the same bits") {
    CHECK(trained({.workers = 1}) == reference());
    CHECK(trained({.devices = 2, .workers = 4}) == reference());
}

TEST_CASE("the processors that the process may use change no bit") {
    cpu_set_t before, one;
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &before)) {
            CPU_SET(cpu, &one);
            break;
        }
    }
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    const std::vector<float> result = trained({.devices = 2});  // its threads inherit the one processor
    REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
    CHECK(result == reference());
}

TEST_CASE("prints the hash of a run for the test of fresh processes") {
    std::printf("%s\n", hash_text(reference()).c_str());
    CHECK_FALSE(reference().empty());
}

TEST_CASE("a fresh process ends with the same bits") {
    const std::string command = "/proc/" + std::to_string(getpid()) +
                                "/exe --test-case='prints the hash of a run*' --source-file='*placement_test.cpp'";
    std::FILE* output = popen(command.c_str(), "re");
    REQUIRE(output != nullptr);
    std::string all;
    char line[256];
    while (std::fgets(line, sizeof line, output) != nullptr) all += line;
    CHECK(pclose(output) == 0);
    CHECK(all.find(hash_text(reference())) != std::string::npos);
}
