// SPDX-License-Identifier: Apache-2.0
//
// Which memory a kernel reads and writes: while it runs, the memory of the devices is protected, and the first access to each
// page is noted in the handler of the signal that it raises. So a page counts once, however often it is used, as the traffic of
// a cache that holds all of a kernel's data would.
#pragma once

#include "../../standard.hpp"

namespace cupola::emulator {

struct PageRange {
    std::byte* begin;
    std::size_t bytes;
};

struct PageUse {
    /// Bytes of the pages that were read before they were written, and of those that were written. An instruction that does both
    /// counts as a write.
    std::int64_t read = 0, written = 0;
};

/// Gives the calling thread the stack on which accesses are noted: each thread of the process that runs blocks of kernels calls it.
void use_signal_stack();

/// Begins to note the accesses of kernels; one thread of the process at a time. Each range begins at a multiple of `page`,
/// a multiple of the system's page, and all of its last page belongs to it. Ends the process where the system does not say
/// whether an access is a write.
void watch_pages(std::vector<PageRange> ranges, std::size_t page);
/// Ends it.
[[nodiscard]] PageUse watched_pages();

}  // namespace cupola::emulator
