// SPDX-License-Identifier: Apache-2.0
//
// A process that can start only a few more threads. A limit on the number of threads (RLIMIT_NPROC) does not hold for
// root, so the stacks of further threads are made as large as a GiB each, in an address space with room for the wanted
// number of them.
#pragma once

#include <pthread.h>
#include <sys/resource.h>

#include "sanitized.hpp"
#include "standard.hpp"

/// A sanitizer ends a process that has no address space left.
inline constexpr bool threads_can_be_limited = !sanitized;

/// From now on this process can start `more` threads, until it ends. For a case that `run_in_child` runs.
inline void limit_threads(int more) {
    constexpr std::size_t stack = std::size_t{1} << 30;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
    std::size_t pages = 0;
    if (std::FILE* file = std::fopen("/proc/self/statm", "re"); file != nullptr) {
        if (std::fscanf(file, "%zu", &pages) != 1) pages = 0;
        std::fclose(file);
    }
    constexpr std::size_t page = 4096;
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = pages * page + (static_cast<std::size_t>(more) * stack) + stack / 2;
    setrlimit(RLIMIT_AS, &limit);
}
