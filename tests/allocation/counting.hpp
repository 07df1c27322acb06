// SPDX-License-Identifier: Apache-2.0
//
// Counts what is allocated, by whom: counting.cpp replaces the process's malloc and mmap. "Ours" is what code in this
// program's own text asks for, which for a header-only library is the library, and what libstdc++ does; the rest are
// libdnnl, libgomp and libc.
#pragma once

#include <cstddef>

struct AllocationCount {
    std::size_t ours = 0, others = 0, others_largest = 0, others_bytes = 0;
};

/// From here until `stop_counting`, in every thread.
void start_counting();
[[nodiscard]] AllocationCount stop_counting();
