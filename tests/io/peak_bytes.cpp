// SPDX-License-Identifier: Apache-2.0
//
// Replaces this program's operator new, to know how much memory is in use at one time; not under a sanitizer, which
// does that itself.
#include "file_support.hpp"

#if !IO_TESTS_SANITIZED

#include <atomic>
#include <new>

#include <malloc.h>

namespace {

std::atomic<std::size_t> in_use{0}, peak{0};

void* taken(void* memory) {
    if (memory == nullptr) return nullptr;
    const std::size_t now = in_use += malloc_usable_size(memory);
    std::size_t before = peak;
    while (now > before && !peak.compare_exchange_weak(before, now)) {
    }
    return memory;
}

void give_back(void* memory) {
    if (memory == nullptr) return;
    in_use -= malloc_usable_size(memory);
    std::free(memory);
}

void* or_throw(void* memory) {
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

void* operator new(std::size_t size) { return or_throw(taken(std::malloc(size))); }
void* operator new[](std::size_t size) { return or_throw(taken(std::malloc(size))); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return taken(std::malloc(size)); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return taken(std::malloc(size)); }
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { give_back(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { give_back(memory); }

std::size_t io_tests::peak_bytes(const std::function<void()>& f) {
    const std::size_t before = in_use;
    peak = before;
    f();
    return peak - before;
}

#else

std::size_t io_tests::peak_bytes(const std::function<void()>& f) {
    f();
    return 0;
}

#endif
