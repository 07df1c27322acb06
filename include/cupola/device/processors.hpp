// SPDX-License-Identifier: Apache-2.0
//
// The processors that this process may use: the default of every number of threads.
//
//   const int threads = usable_processors().count();
//
// Variables that bind OpenMP's threads (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY), which module files of clusters
// set, bind the main thread to one processor when the program starts, and every thread that it starts inherits that.
// They say which processors the process has; the threads of a training are bound by their device, or not at all. A
// thread that a bound one starts would inherit that too: DeviceThreads gives its threads the processors from before.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <sched.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/device/impl/control_groups.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct Processors {
    /// The processors that the process may run on: those of its affinity mask (taskset, mpirun), or of OpenMP's places
    /// if its threads are bound.
    int allowed = 1;
    /// The processor time that the control groups of the process leave it (a container's `--cpus`, a pod's limit), in
    /// processors; 0 without a limit.
    double quota = 0;

    /// How many threads can run at the same time: a fraction of a processor does not count, and there is at least one.
    [[nodiscard]] int count() const {
        return quota > 0 && quota < allowed ? std::max(1, static_cast<int>(quota)) : allowed;
    }
    /// For a line of a log: ", a quota of 1.5 of 8 processors", or empty where the quota leaves all of them.
    [[nodiscard, gnu::cold]] std::string quota_note() const;
};

/// The processors that this process may use at the time of the call.
[[nodiscard, gnu::cold]] Processors usable_processors();

/// The bytes of the caches of level 2 or 3 of threads that have a core each; `usual` if they are not reported.
[[nodiscard, gnu::cold]] inline double cache_bytes(int level, int threads, double usual) {
    const std::string cpu = "/sys/devices/system/cpu/cpu0/", cache = text(cpu, "cache/index", level);
    // The number of processors in "0-15": the siblings of a core have neighbouring numbers, or are not counted.
    const auto count = [](const std::string& list) { return impl::number_in_file(list.c_str(), "0-", 0) + 1; };
    const auto kibibytes = static_cast<double>(impl::number_in_file((cache + "/size").c_str(), "", 0));
    const auto cores = static_cast<int>(count(cache + "/shared_cpu_list") / count(cpu + "topology/core_cpus_list"));
    return kibibytes > 0 ? (threads + std::max(cores, 1) - 1) / std::max(cores, 1) * 1024 * kibibytes : usual;
}

namespace impl {

// OpenMP's functions (OpenMP 5.0, sections 3.2.22 and on), null in a program that is not linked to its runtime: one
// that trains on GPUs, or only reads data. Declared here because <omp.h> does not declare them weak.
extern "C" {
[[gnu::weak]] int openmp_proc_bind() asm("omp_get_proc_bind");
[[gnu::weak]] int openmp_places() asm("omp_get_num_places");
[[gnu::weak]] int openmp_processors_of_place(int place) asm("omp_get_place_num_procs");
[[gnu::weak]] void openmp_numbers_of_place(int place, int* numbers) asm("omp_get_place_proc_ids");
}

/// A set of processors, and whether OpenMP or bind_thread() has bound the calling thread to a part of it.
struct ProcessorSet {
    cpu_set_t set;
    bool bound = false;
};

/// The processors of this process: those that the calling thread may use, or might before it was bound. An empty set
/// if the system does not report them.
[[nodiscard, gnu::cold]] ProcessorSet processor_set();

/// Binds the calling thread to `set`. A thread that it starts from now on inherits that, unless it calls
/// use_processors() with what processor_set() returns here.
[[gnu::cold]] void bind_thread(const cpu_set_t& set);

/// If the thread that has started the calling one is bound to fewer processors than `processors`, its processor_set(),
/// lets the calling thread run on all of these. Called at its start by a thread that computes beside others.
[[gnu::cold]] void use_processors(const ProcessorSet& processors);

/// The same where only OpenMP can have bound the thread that has started the calling one.
[[gnu::cold]] inline void leave_place() { use_processors(processor_set()); }

/// Those of the calling thread before bind_thread() has bound it to fewer; a thread that it starts has none.
struct UnboundProcessors {
    static inline thread_local bool known = false;
    static inline thread_local cpu_set_t set;
};

inline ProcessorSet processor_set() {
    ProcessorSet result;
    CPU_ZERO(&result.set);
    const bool linked = openmp_proc_bind != nullptr && openmp_places != nullptr &&
                        openmp_processors_of_place != nullptr && openmp_numbers_of_place != nullptr;
    std::vector<int> numbers;
    const int places = linked && openmp_proc_bind() != 0 ? openmp_places() : 0;  // 0 is omp_proc_bind_false
    for (int place = 0; place < places; ++place) {
        numbers.resize(static_cast<std::size_t>(std::max(0, openmp_processors_of_place(place))));
        openmp_numbers_of_place(place, numbers.data());
        for (const int number : numbers) {
            if (number >= 0 && number < CPU_SETSIZE) CPU_SET(static_cast<std::size_t>(number), &result.set);
        }
    }
    result.bound = CPU_COUNT(&result.set) > 0;
    if (result.bound) return result;
    if (UnboundProcessors::known) return {.set = UnboundProcessors::set, .bound = true};
    if (sched_getaffinity(0, sizeof result.set, &result.set) != 0) CPU_ZERO(&result.set);
    return result;
}

inline void bind_thread(const cpu_set_t& set) {
    if (!UnboundProcessors::known) {
        UnboundProcessors::known = sched_getaffinity(0, sizeof UnboundProcessors::set, &UnboundProcessors::set) == 0;
    }
    sched_setaffinity(0, sizeof set, &set);  // a hint: if it is not allowed, the thread stays where it was
}

inline void use_processors(const ProcessorSet& processors) {
    if (processors.bound) sched_setaffinity(0, sizeof processors.set, &processors.set);
}

}  // namespace impl

inline std::string Processors::quota_note() const {
    if (count() == allowed) return {};
    return text(", a quota of ", quota, " of ", allowed, " processors");
}

inline Processors usable_processors() {
    const impl::ProcessorSet processors = impl::processor_set();
    const int allowed = CPU_COUNT(&processors.set);
    // On a machine with more processors than the set can hold, the system does not report them.
    const auto all = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    return {.allowed = allowed > 0 ? allowed : std::max(1, all), .quota = impl::processors_of_groups()};
}

}}  // namespace cupola::CUPOLA_ABI
