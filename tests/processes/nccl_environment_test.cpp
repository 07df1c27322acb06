// SPDX-License-Identifier: Apache-2.0
//
// The agreement of processes that are left, by environments of one process in threads. nccl_group_test.cpp has real processes.
#include <cupola/processes/nccl_environment.hpp>

#include "../test.hpp"

#include <unistd.h>

#include "../throws_with.hpp"

namespace {

std::string fresh_name() {
    static int count = 0;
    return text("test-", getpid(), '-', ++count);
}

struct Agreed {
    std::vector<int> left;
    std::string why;
};

/// What each of `all` agrees on; a null does not exist, and one of `silent` does not answer.
std::vector<Agreed> agreed(const std::vector<std::unique_ptr<NcclEnvironment>>& all, double seconds, int silent = -1) {
    std::vector<Agreed> results(all.size());
    std::vector<std::jthread> threads;
    for (std::size_t p = 0; p < all.size(); ++p) {
        if (all[p] == nullptr || static_cast<int>(p) == silent) continue;
        threads.emplace_back([&, p] {
            results[p].left = all[p]->agree(
                seconds, [] {}, results[p].why);
        });
    }
    threads.clear();
    return results;
}

std::vector<std::unique_ptr<NcclEnvironment>> environments(int count) {
    const std::string name = fresh_name();
    std::vector<std::unique_ptr<NcclEnvironment>> all;
    for (int p = 0; p < count; ++p)
        all.push_back(
            std::make_unique<NcclEnvironment>(NcclEnvironmentOptions{.name = name, .processes = count, .process = p}));
    return all;
}

}  // namespace

TEST_CASE("an environment needs a name and a number of its own") {
    CHECK(
        contains(message_of<InvalidArgument>([] { NcclEnvironment({.name = "", .processes = 2}); }), "1 to 64 bytes"));
    CHECK(contains(message_of<InvalidArgument>([] { NcclEnvironment({.name = "x", .processes = 2, .process = 2}); }),
                   "process 2 of 2"));
    const std::string name = fresh_name();
    const NcclEnvironment first({.name = name, .processes = 2});
    CHECK(contains(message_of<DeviceError>([&] { NcclEnvironment({.name = name, .processes = 2}); }),
                   "process 0 of the training " + name + " cannot be found by the others"));
}

TEST_CASE("those that are left agree on who they are, and on the last step that all of them have kept") {
    for (const std::size_t lost : {0u, 1u, 2u}) {
        CAPTURE(lost);
        auto all = environments(3);
        for (std::size_t p = 0; p < 3; ++p) {
            all[p]->keep({.step = 4});
            // One of them has completed the step in which another one failed.
            if (p == (lost + 1) % 3) all[p]->keep({.step = 5});
        }
        all[lost].reset();
        std::vector<int> left;
        for (int p = 0; p < 3; ++p) {
            if (p != static_cast<int>(lost)) left.push_back(p);
        }
        const std::vector<Agreed> results = agreed(all, 10);
        for (std::size_t p = 0; p < 3; ++p) {
            if (p == lost) continue;
            CHECK(results[p].left == left);
            CHECK(results[p].why.empty());
            REQUIRE(all[p]->kept() != nullptr);
            CHECK(all[p]->kept()->step == 4);
        }
    }
}

TEST_CASE("one that has kept nothing makes all begin again") {
    auto all = environments(3);
    all[0]->keep({.step = 1});
    all[2].reset();
    CHECK(agreed(all, 10)[1].left == std::vector<int>{0, 1});
    CHECK(all[0]->kept() == nullptr);
}

TEST_CASE("the minority does not go on, nor half without the first; half with the first does") {
    for (const int first : {0, 2}) {
        auto all = environments(4);
        for (const int p : {2 - first, 3 - first}) all[static_cast<std::size_t>(p)].reset();
        for (const int p : {first, first + 1}) {
            const Agreed result = agreed(all, 10)[static_cast<std::size_t>(p)];
            CHECK(result.left == (first == 0 ? std::vector<int>{0, 1} : std::vector<int>{}));
            CHECK(contains(result.why, first == 0 ? "" : "of 4 processes 2 are left"));
        }
    }
}

TEST_CASE("a process that exists and does not answer, as a stopped one, ends the others' wait at its deadline") {
    auto all = environments(4);
    all[3].reset();
    const std::vector<Agreed> results = agreed(all, 0.3, 1);
    for (const std::size_t p : {0u, 2u}) {
        CHECK(results[p].left.empty());
        CHECK(results[p].why == "a process that still exists has not answered within 0.3 s");
    }
}

TEST_CASE("communicators that are given are taken once, and the numbers are those of the processes that are left") {
    int ended = 0;
    int made = 0;
    const auto end = [&](const std::vector<void*>& each) {
        CHECK(each == std::vector<void*>{&made});
        ++ended;
    };
    {
        NcclEnvironment here({.name = fresh_name(), .processes = 4, .process = 2});
        CHECK(here.take_communicators().empty());
        here.store_communicators({&made}, end, {0, 2, 3});
        CHECK(here.count() == 3);
        CHECK(here.number() == 1);
        CHECK(here.started() == 4);
        here.store_communicators({&made}, end, {0, 1});
        CHECK(ended == 1);
        CHECK(here.count() == 2);
        CHECK(std::vector<int>(here.lost().begin(), here.lost().end()) == std::vector<int>{1, 3});
        CHECK(here.take_communicators() == std::vector<void*>{&made});
        CHECK(here.take_communicators().empty());
        here.store_communicators({&made}, end, {0, 1});
    }
    CHECK(ended == 2);
}

TEST_CASE("a process that does not agree yet is called by one that does, once per loss") {
    auto all = environments(3);
    all[2].reset();
    CHECK_FALSE(all[1]->agreement_requested());
    std::vector<int> left;
    std::string why;
    std::jthread first([&] {
        left = all[0]->agree(
            10, [] {}, why);
    });
    while (!all[1]->agreement_requested()) usleep(1000);
    std::string none;
    CHECK(all[1]->agree(
              10, [] {}, none) == std::vector<int>{0, 1});
    first.join();
    CHECK(left == std::vector<int>{0, 1});
    for (const std::size_t p : {0u, 1u}) {
        all[p]->store_communicators({}, [](const std::vector<void*>&) {}, {0, 1});
        CHECK_FALSE(all[p]->agreement_requested());
    }
}

TEST_CASE("a process that is not on this machine, or whose training has another name, is named") {
    NcclEnvironment first({.name = fresh_name(), .processes = 2});
    const NcclEnvironment other({.name = fresh_name(), .processes = 2, .process = 1});
    CHECK(contains(message_of<DeviceError>([&] { first.require_all_found(0); }), "process 1 of the training "));
    CHECK(contains(
        message_of<DeviceError>([&] { other.require_all_found(0); }),
        "cannot be found by process 1: the processes of an NcclEnvironment have the same name and user, and run on one "
        "machine"));
    const auto all = environments(2);
    for (const auto& each : all) each->require_all_found(0);
}
