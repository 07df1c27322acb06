// SPDX-License-Identifier: Apache-2.0
//
// The processors and the memory that a process may use: affinity, OpenMP's binding of threads, and control groups of
// both versions, in folders that look like /proc and /sys/fs/cgroup.
//
// Covers: cupola/device/impl/control_groups.hpp
#include "../test.hpp"

#include <sched.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/device/host.hpp>
#include <cupola/device/processors.hpp>

#include "../child_process.hpp"

namespace {

constexpr std::size_t unlimited = ~std::size_t{0};

/// Folders like /proc and /sys/fs/cgroup, in which a test writes what the system would show.
class FakeSystem : NotCopied {
public:
    FakeSystem()
        : root_(std::filesystem::temp_directory_path() / text("cupola-groups-", getpid(), '-', ++count_)),
          folders{.proc = (root_ / "proc").string(), .control_groups = (root_ / "groups").string()} {
        std::filesystem::remove_all(root_);
    }
    ~FakeSystem() { std::filesystem::remove_all(root_); }

    /// What /proc/self has: "cgroup" and "mountinfo".
    void process(const std::string& groups, const std::string& mounts) const {
        write(root_ / "proc/self/cgroup", groups);
        write(root_ / "proc/self/mountinfo", mounts);
    }
    void group(const std::string& file, const std::string& content) const { write(root_ / "groups" / file, content); }

private:
    static void write(const std::filesystem::path& path, const std::string& content) {
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << content;
    }
    static inline int count_ = 0;
    std::filesystem::path root_;

public:
    impl::SystemFolders folders;
};

constexpr const char* version_2 =
    "25 1 0:22 / /proc rw - proc proc rw\n"
    "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
constexpr const char* version_1 =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

}  // namespace

TEST_CASE("a process without control groups has no limit") {
    const FakeSystem system;
    CHECK(impl::memory_of_groups(system.folders) == unlimited);
    CHECK(impl::processors_of_groups(system.folders) == 0);
    system.process("0::/\n", version_2);
    system.group("memory.max", "max\n");
    system.group("cpu.max", "max 100000\n");
    CHECK(impl::memory_of_groups(system.folders) == unlimited);
    CHECK(impl::processors_of_groups(system.folders) == 0);
    // Nor has one whose list of groups is of another form than Linux's.
    system.process("\nx\n:::\n0::\n0::job\n", version_2);
    CHECK(impl::memory_of_groups(system.folders) == unlimited);
    CHECK(impl::processors_of_groups(system.folders) == 0);
}

TEST_CASE("version 2: the smallest limit from the process's own group upwards holds") {
    const FakeSystem system;
    system.process("0::/user/job/step\n", version_2);
    system.group("user/job/step/memory.max", "max\n");
    system.group("user/job/step/cpu.max", "400000 100000\n");
    system.group("user/job/memory.max", "1000000\n");
    system.group("user/job/memory.current", "700000\n");
    system.group("user/job/memory.stat", "anon 500000\ninactive_file 150000\nactive_file 50000\n");
    system.group("user/job/cpu.max", "250000 100000\n");
    system.group("user/memory.max", "900000\n");
    system.group("user/memory.current", "100000\n");
    system.group("user/cpu.max", "max 100000\n");
    system.group("other/memory.max", "5\n");
    CHECK(impl::memory_of_groups(system.folders) == 500'000);
    CHECK(impl::processors_of_groups(system.folders) == 2.5);
    system.group("user/memory.current", "899999\n");
    CHECK(impl::memory_of_groups(system.folders) == 1);
    system.group("user/memory.current", "2000000\n");  // more than the limit, which was lowered
    CHECK(impl::memory_of_groups(system.folders) == 0);
}

TEST_CASE("version 1: each controller has its hierarchy and its group") {
    const FakeSystem system;
    system.process("4:memory:/jobs/a\n3:cpuset:/other\n1:cpu,cpuacct:/quota/b\n", version_1);
    system.group("memory/jobs/a/memory.limit_in_bytes", "9223372036854771712\n");
    system.group("memory/jobs/a/memory.usage_in_bytes", "4096\n");
    system.group("memory/jobs/memory.limit_in_bytes", "300000000\n");
    system.group("memory/jobs/memory.usage_in_bytes", "120000000\n");
    system.group("memory/jobs/memory.stat", "active_file 7\ntotal_inactive_file 19000000\ntotal_active_file 1000000\n");
    system.group("cpu,cpuacct/quota/b/cpu.cfs_quota_us", "-1\n");
    system.group("cpu,cpuacct/quota/b/cpu.cfs_period_us", "100000\n");
    system.group("cpu,cpuacct/quota/cpu.cfs_quota_us", "75000\n");
    system.group("cpu,cpuacct/quota/cpu.cfs_period_us", "50000\n");
    CHECK(impl::memory_of_groups(system.folders) == 200'000'000);
    CHECK(impl::processors_of_groups(system.folders) == 1.5);
    // The kernel knows of a limit above the group that a container sees as the first one.
    system.group("memory/jobs/a/memory.stat", "hierarchical_memory_limit 50004096\n");
    CHECK(impl::memory_of_groups(system.folders) == 50'000'000);
}

TEST_CASE("a container whose own group is mounted as the first one has the limits that it shows") {
    const FakeSystem system;
    system.process("4:memory:/docker/ab12/inner\n1:cpu:/docker/ab12\n",
                   "32 31 0:29 /docker/ab12 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
                   "35 31 0:32 /docker/ab12 /sys/fs/cgroup/memory ro master:15 - cgroup cgroup rw,memory\n");
    system.group("cpu/cpu.cfs_quota_us", "100000\n");
    system.group("cpu/cpu.cfs_period_us", "100000\n");
    system.group("memory/memory.limit_in_bytes", "1000\n");
    system.group("memory/inner/memory.limit_in_bytes", "600\n");
    system.group("memory/inner/memory.usage_in_bytes", "100\n");
    CHECK(impl::processors_of_groups(system.folders) == 1);
    CHECK(impl::memory_of_groups(system.folders) == 500);
    // Moved out of the groups that the container shows, it has at least the limits of the first of them.
    system.process("4:memory:/../other\n", version_1);
    CHECK(impl::memory_of_groups(system.folders) == 1000);
    // Where the mounts are not known, they are where they usually are.
    system.process("4:memory:/inner\n", "");
    CHECK(impl::memory_of_groups(system.folders) == 500);
}

TEST_CASE("a mixture of both versions has the limits of each controller where it is") {
    const FakeSystem system;
    system.process("5:memory:/job\n0::/job\n",
                   std::string(version_1) + "40 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    system.group("memory/job/memory.limit_in_bytes", "4000\n");
    system.group("unified/job/cpu.max", "300000 200000\n");
    CHECK(impl::memory_of_groups(system.folders) == 4000);
    CHECK(impl::processors_of_groups(system.folders) == 1.5);
}

TEST_CASE("a quota is rounded down to whole processors, and is at least one") {
    CHECK(Processors{.allowed = 8}.count() == 8);
    CHECK(Processors{.allowed = 8, .quota = 2.9}.count() == 2);
    CHECK(Processors{.allowed = 8, .quota = 0.3}.count() == 1);
    CHECK(Processors{.allowed = 2, .quota = 16}.count() == 2);
    CHECK(Processors{.allowed = 8, .quota = 2.5}.quota_note() == ", a quota of 2.5 of 8 processors");
    CHECK(Processors{.allowed = 2, .quota = 2.5}.quota_note().empty());
}

namespace {

cpu_set_t mask() {
    cpu_set_t set;
    REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
    return set;
}

/// The processors of the first thread of each of `devices` devices of one thread.
std::vector<cpu_set_t> masks_of(int devices) {
    std::vector<cpu_set_t> masks(static_cast<std::size_t>(devices));
    for (int device = 0; device < devices; ++device) {
        std::thread([&] {
            const HostContext context(device, {.threads = 1});
            context.own_thread(devices);
            masks[static_cast<std::size_t>(device)] = mask();
        }).join();
    }
    return masks;
}

}  // namespace

TEST_CASE("child: devices of a process whose OpenMP threads are bound" * doctest::skip()) {
    const int all = usable_processors().allowed;
    MESSAGE("processors: ", all);
    const std::vector<cpu_set_t> two = masks_of(2);
    cpu_set_t common;
    CPU_AND(&common, &two[0], &two[1]);
    if (all > 1) CHECK(CPU_COUNT(&common) == 0);
    CHECK(CPU_COUNT(&two[0]) == std::max(1, all / 2));
    // A device that does not need all processors is not bound to the first ones, which another process may use.
    CHECK(CPU_COUNT(&masks_of(1)[0]) == all);
    CHECK(CPU_COUNT(&masks_of(all + 1)[0]) == all);
    std::thread([&] {
        impl::leave_place();
        const cpu_set_t left = mask();
        CHECK(CPU_COUNT(&left) == all);
    }).join();
}

TEST_CASE(
    "devices have processors of their own where variables bind OpenMP's threads, and these do not count as fewer") {
    const std::string processors = "processors: " + std::to_string(usable_processors().allowed);
    for (const char* const variable : {"OMP_PROC_BIND=true", "OMP_PROC_BIND=close", "OMP_PLACES=threads"}) {
        const std::string setting(variable);
        const std::size_t middle = setting.find('=');
        const ChildResult child = run_in_child("child: devices of a process whose OpenMP threads are bound",
                                               {{setting.substr(0, middle), setting.substr(middle + 1)}});
        CHECK_MESSAGE(child.passed, setting, '\n', child.output);
        CHECK(child.output.find(processors) != std::string::npos);
    }
}

TEST_CASE("the caches of a level are those of the threads' cores, and of a usual size where the system reports none") {
    const double one = cache_bytes(2, 1, 1 << 20);
    CHECK(one >= 1024);
    CHECK(cache_bytes(2, 4, 1 << 20) >= one);
    CHECK(cache_bytes(2, 4, 1 << 20) <= 4 * one);
    CHECK(cache_bytes(99, 3, 1000) == 1000);  // no processor has this level
}
