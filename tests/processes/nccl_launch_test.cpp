// SPDX-License-Identifier: Apache-2.0
//
// What NcclAllReduce takes from a launcher's variables in the process itself.
#include <cupola/processes/nccl_launch.hpp>

#include "../test.hpp"

#include "throws_with.hpp"

namespace {

/// The variables of an environment, until the end of the object.
class Launched {
public:
    explicit Launched(std::vector<std::pair<const char*, const char*>> variables) : variables_(std::move(variables)) {
        for (const auto& [name, value] : variables_) setenv(name, value, 1);
    }
    Launched(const Launched&) = delete;
    Launched& operator=(const Launched&) = delete;
    ~Launched() {
        for (const auto& [name, value] : variables_) unsetenv(name);
    }

private:
    std::vector<std::pair<const char*, const char*>> variables_;
};

}  // namespace

TEST_CASE("without a launcher NcclAllReduce is of one process and uses the first GPUs") {
    CHECK(NcclAllReduce::launcher().empty());
    CHECK(NcclAllReduce::first_gpu(2, 8) == 0);
    const NcclAllReduce policy = NcclAllReduce{}.as_launched();
    CHECK(policy.processes == 1);
    CHECK(policy.process == 0);
    CHECK(policy.address.empty());
}

TEST_CASE("NcclAllReduce is of the processes that a launcher has started, and each has its GPUs") {
    const Launched launched(
        {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "first"}, {"MASTER_PORT", "29500"}});
    CHECK(NcclAllReduce::launcher() == "process 5 of 8, from RANK and WORLD_SIZE");
    const NcclAllReduce policy = NcclAllReduce{.max_groups = 3}.as_launched();
    CHECK(policy.processes == 8);
    CHECK(policy.process == 5);
    CHECK(policy.address == "first:29500");
    CHECK(policy.max_groups == 3);
    CHECK(NcclAllReduce{.id_file = "run.id"}.as_launched().address.empty());

    CHECK(NcclAllReduce::first_gpu(2, 4) == 2);
    CHECK(NcclAllReduce::first_gpu(2, 2) == 0);  // the launcher has given this process its own
    CHECK(message_of<InvalidArgument>([] { static_cast<void>(NcclAllReduce::first_gpu(2, 3)); }) ==
          "the environment variable LOCAL_RANK is 1, so this process uses the GPUs 2 to 3, and it sees 3 GPUs: start "
          "fewer processes per machine, or let each use fewer devices");
}
