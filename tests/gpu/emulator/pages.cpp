// SPDX-License-Identifier: Apache-2.0
#include "pages.hpp"
#include "../../standard.hpp"

#include <csignal>

#include <sys/mman.h>
#include <ucontext.h>

namespace cupola::emulator {

namespace {

enum : std::uint8_t { unused = 0, was_read = 1, was_written = 2 };

struct Watched {
    PageRange range;
    std::vector<std::uint8_t> use;
};

struct Watch {
    std::vector<Watched> ranges;
    std::size_t page = 0;
    struct sigaction before {};
};

Watch& watch() {
    static Watch& all = *new Watch;
    return all;
}

[[noreturn]] void give_up(const char* why) {
    std::fprintf(stderr, "emulator: the memory that a kernel uses cannot be watched: %s\n", why);
    std::_Exit(EXIT_FAILURE);
}

void protect(std::byte* begin, std::size_t bytes, int protection) {
    if (mprotect(begin, bytes, protection) != 0) give_up("mprotect failed; larger pages need fewer regions");
}

std::size_t whole(std::size_t bytes) { return (bytes + watch().page - 1) / watch().page * watch().page; }

/// Called by the signal; allocates nothing.
void note(int, siginfo_t* info, void* at) {
#if defined(__x86_64__) && defined(REG_ERR)
    constexpr greg_t write_access = 2;
    const bool writes = (static_cast<ucontext_t*>(at)->uc_mcontext.gregs[REG_ERR] & write_access) != 0;
#else
    static_cast<void>(at);
    const bool writes = false;
    give_up("this system's signals do not say whether an access is a write");
#endif
    Watch& all = watch();
    auto* const address = static_cast<std::byte*>(info->si_addr);
    for (Watched& each : all.ranges) {
        if (address < each.range.begin || address >= each.range.begin + whole(each.range.bytes)) continue;
        const auto number = static_cast<std::size_t>(address - each.range.begin) / all.page;
        each.use[number] = static_cast<std::uint8_t>(each.use[number] | (writes ? was_written : was_read));
        protect(each.range.begin + number * all.page, all.page, writes ? PROT_READ | PROT_WRITE : PROT_READ);
        return;
    }
    sigaction(SIGSEGV, &all.before, nullptr);  // an access to no memory: it is repeated, and ends the process
}

}  // namespace

/// A kernel's thread has a small stack of its own. Not of the function: see shared_memory.hpp.
static thread_local std::vector<std::byte> signal_stack;

void use_signal_stack() {
    if (signal_stack.empty()) {
        signal_stack.resize(std::size_t{1} << 16);
        stack_t other{};
        other.ss_sp = signal_stack.data();
        other.ss_size = signal_stack.size();
        if (sigaltstack(&other, nullptr) != 0) give_up("sigaltstack failed");
    }
}

void watch_pages(std::vector<PageRange> ranges, std::size_t page) {
    use_signal_stack();
    Watch& all = watch();
    all.page = page;
    all.ranges.clear();
    for (const PageRange& range : ranges)
        all.ranges.push_back({range, std::vector<std::uint8_t>(whole(range.bytes) / page, unused)});
    struct sigaction action {};
    action.sa_sigaction = &note;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    if (sigaction(SIGSEGV, &action, &all.before) != 0) give_up("sigaction failed");
    for (const Watched& each : all.ranges) protect(each.range.begin, whole(each.range.bytes), PROT_NONE);
}

PageUse watched_pages() {
    Watch& all = watch();
    PageUse result;
    const auto bytes = static_cast<std::int64_t>(all.page);
    for (const Watched& each : all.ranges) {
        protect(each.range.begin, whole(each.range.bytes), PROT_READ | PROT_WRITE);
        for (const std::uint8_t use : each.use) {
            result.read += (use & was_read) != 0 ? bytes : 0;
            result.written += (use & was_written) != 0 ? bytes : 0;
        }
    }
    all.ranges.clear();
    sigaction(SIGSEGV, &all.before, nullptr);
    return result;
}

}  // namespace cupola::emulator
