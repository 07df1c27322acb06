// SPDX-License-Identifier: Apache-2.0
#include "counting.hpp"
#include "../standard.hpp"

#include <atomic>
#include <cerrno>
#include <new>

#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
extern const char __executable_start;
extern const char etext;
}

namespace {

std::atomic<bool> counting{false};
std::atomic<std::size_t> ours{0}, others{0}, others_largest{0}, others_bytes{0};

/// Where libstdc++'s code lies: what it allocates (an exception) it allocates for its caller, and in a step oneDNN is
/// none.
const char *library_begin = nullptr, *library_end = nullptr;

int find_library(dl_phdr_info* object, std::size_t, void*) {
    if (std::strstr(object->dlpi_name, "libstdc++") == nullptr) return 0;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const ElfW(Phdr)& segment = object->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
        library_begin = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
        library_end = library_begin + segment.p_memsz;
    }
    return 1;
}

void count(const void* caller, std::size_t bytes) {
    if (!counting.load(std::memory_order_relaxed)) return;
    const char* const place = static_cast<const char*>(caller);
    if ((place >= &__executable_start && place < &etext) || (place >= library_begin && place < library_end)) {
        ++ours;
        return;
    }
    ++others;
    others_bytes += bytes;
    std::size_t largest = others_largest;
    while (bytes > largest && !others_largest.compare_exchange_weak(largest, bytes)) {
    }
}

void* allocated(void* memory) {
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

void start_counting() {
    dl_iterate_phdr(find_library, nullptr);
    ours = others = others_largest = others_bytes = 0;
    counting = true;
}

AllocationCount stop_counting() {
    counting = false;
    return {ours, others, others_largest, others_bytes};
}

#define CUPOLA_TEST_COUNT(bytes) count(__builtin_return_address(0), bytes)

extern "C" {
void* malloc(std::size_t bytes) {
    CUPOLA_TEST_COUNT(bytes);
    return __libc_malloc(bytes);
}
void* calloc(std::size_t n, std::size_t bytes) {
    CUPOLA_TEST_COUNT(n * bytes);
    return __libc_calloc(n, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
    CUPOLA_TEST_COUNT(bytes);
    return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
    CUPOLA_TEST_COUNT(bytes);
    return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
    CUPOLA_TEST_COUNT(bytes);
    return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) {
    CUPOLA_TEST_COUNT(bytes);
    *result = __libc_memalign(alignment, bytes);
    return *result == nullptr ? ENOMEM : 0;
}
void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) {
    CUPOLA_TEST_COUNT(bytes);
    return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
}

// libstdc++'s own operator new would call malloc from its own code and hide the caller.
void* operator new(std::size_t bytes) {
    CUPOLA_TEST_COUNT(bytes);
    return allocated(__libc_malloc(bytes));
}
void* operator new[](std::size_t bytes) {
    CUPOLA_TEST_COUNT(bytes);
    return allocated(__libc_malloc(bytes));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    CUPOLA_TEST_COUNT(bytes);
    return allocated(__libc_memalign(static_cast<std::size_t>(alignment), bytes));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
