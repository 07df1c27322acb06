// SPDX-License-Identifier: Apache-2.0
//
// Counts allocations by their origin: counting.cpp replaces the process's malloc and mmap. "Ours" are requests from code
// in this program's own text, which for a header-only library includes the library, and from libstdc++; the rest are
// requests from libdnnl, libgomp and libc.
#pragma once

#include <cstddef>

struct AllocationCount {
    std::size_t ours = 0, others = 0, others_largest = 0, others_bytes = 0;
};

/// From here until `stop_counting`, in every thread.
void start_counting();
[[nodiscard]] AllocationCount stop_counting();
