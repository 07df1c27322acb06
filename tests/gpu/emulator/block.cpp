// SPDX-License-Identifier: Apache-2.0
//
// The threads of a block as fibres: see kernel.hpp. A fibre is a stack that several threads use one after another; a thread
// that never waits costs one function call. Only one thread of the process at a time uses this file: runtime.cpp holds its lock.
//
// Blocks that run side by side, those of a cooperative grid and some of other grids, have a thread of the process each, and thereby
// their own shared memory. One of them runs at a time: until none of its block's threads can continue without another block, or for as
// many steps as chance allows.
#include "kernel.hpp"

#include <atomic>
#include <semaphore>
#include <thread>

#include <cxxabi.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#include "../../standard.hpp"
#include "pages.hpp"
#include "random.hpp"
#include "shared_memory.hpp"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

#ifdef __x86_64__
// Saves the registers that a function must preserve, switches to the other stack and restores the registers saved there.
extern "C" void cupola_emulator_switch(void** from, void* to);
asm(R"(
.text
.type cupola_emulator_switch, @function
cupola_emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size cupola_emulator_switch, . - cupola_emulator_switch
)");
#endif

namespace cupola::emulator {

namespace {

/// A point in a stack at which execution was suspended and can be resumed.
struct Context {
#ifdef __x86_64__
    void* top = nullptr;
#else
    ucontext_t saved;
#endif
#ifdef __SANITIZE_ADDRESS__
    const void* bottom = nullptr;
    std::size_t size = 0;
#endif
};

void go(Context& from, Context& to) {
#ifdef __SANITIZE_ADDRESS__
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, to.bottom, to.size);
#endif
#ifdef __x86_64__
    cupola_emulator_switch(&from.top, to.top);
#else
    swapcontext(&from.saved, &to.saved);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

enum class Waits : std::uint8_t { no, at_barrier, in_warp, in_loop, ended };

struct Fiber;

/// One cache line per thread, because the data of all threads of a block exceeds the L1 cache.
struct alignas(64) Thread {
    uint3 index{};
    Waits waits = Waits::no;
    WarpOperation operation{};
    Fiber* fiber = nullptr;  // null before the thread starts
    Place place{};
    // The operation of the warp that the thread waits at:
    unsigned mask = 0;
    int source = 0;
    std::uint64_t value = 0;  // the thread's operand, then its result
};
static_assert(sizeof(Thread) == 64);

struct Fiber {
    static constexpr std::size_t stack_bytes = std::size_t{256} << 10;

    explicit Fiber(std::size_t number) : end(stack_bytes - number % different_ends * bytes_between_ends) {
        // The lowest page is protected, so that an overflow of the stack ends the program; not that of all fibres of a grid of
        // many blocks, as a process has at most 65,530 regions of memory.
        constexpr int max_guards = 16384;
        static std::atomic<int> guards = 0;
        memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) std::abort();
        if (guards++ < max_guards) mprotect(memory, guard_bytes, PROT_NONE);
#ifdef __SANITIZE_ADDRESS__
        context.bottom = static_cast<char*>(memory) + guard_bytes;
        context.size = end - guard_bytes;
#endif
    }
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;
    ~Fiber() { munmap(memory, stack_bytes); }

    void begin_at(void (*entry)()) {
#ifdef __SANITIZE_ADDRESS__
        __asan_unpoison_memory_region(context.bottom, context.size);  // its thread was abandoned in a kernel
#endif
#ifdef __x86_64__
        auto** const last = reinterpret_cast<void**>(static_cast<char*>(memory) + end);
        // The stack as `entry` expects it after a call: 8 bytes past a multiple of 16. The six saved registers lie below.
        last[-1] = nullptr;
        last[-2] = reinterpret_cast<void*>(entry);
        std::fill(last - 8, last - 2, nullptr);
        context.top = last - 8;
#else
        getcontext(&context.saved);
        context.saved.uc_stack.ss_sp = static_cast<char*>(memory) + guard_bytes;
        context.saved.uc_stack.ss_size = end - guard_bytes;
        context.saved.uc_link = nullptr;
        makecontext(&context.saved, entry, 0);
#endif
    }

    static constexpr std::size_t guard_bytes = 4096;
    /// Stacks end at different offsets in a page: with equal offsets they would share one set of the cache and evict each other.
    static constexpr std::size_t different_ends = 128, bytes_between_ends = 9 * 64;

    std::size_t end;
    void* memory;
    Context context;  // the point to return to between two threads
    int thread = -1;
};

std::string text_of(uint3 index) {
    return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) + ")";
}
std::string text_of(Place place) {
    const std::string file = place.file;
    return file.substr(file.rfind('/') + 1) + ":" + std::to_string(place.line);
}

[[gnu::noinline]] bool same_text(const char* a, const char* b) { return std::string_view(a) == b; }
/// Compares the pointers first: they are nearly always equal, and this runs whenever a thread waits.
inline bool same(Place a, Place b) { return a.line == b.line && (a.file == b.file || same_text(a.file, b.file)); }

/// What a block does that runs beside others.
class OtherBlocks {
public:
    /// Lets the other blocks run. Returns false if the kernel has failed, and this block must end.
    virtual bool run() = 0;

protected:
    ~OtherBlocks() = default;
};

class Block {
public:
    /// Runs `body` in all threads of a block; `others` are those that run beside it, or null. In a `cooperative` grid it may wait for
    /// them. It lets them run `pauses` times while its threads could continue. Returns the message of a failure; empty if all threads
    /// ended.
    std::string run(dim3 extent, const std::function<void()>& body, Random& random, OtherBlocks* others = nullptr,
                    bool cooperative = false, int pauses = 0) {
        body_ = &body;
        random_ = &random;
        others_ = others;
        cooperative_ = cooperative;
        pauses_ = pauses;
        choose_pause();
        in_loop_.clear();
        rounds_in_loops_ = 0;
        failure_.clear();
        const unsigned count = extent.x * extent.y * extent.z;
        threads_.resize(count);
        contexts_.resize(count);
        ready_.clear();
        waiting_in_warp_.assign((count + lanes_per_warp - 1) / lanes_per_warp, 0);
        runs_ahead_ = random.below(2) == 0;
        Thread* thread = threads_.data();
        for (unsigned z = 0; z < extent.z; ++z) {
            for (unsigned y = 0; y < extent.y; ++y) {
                for (unsigned x = 0; x < extent.x; ++x, ++thread) {
                    thread->index = {x, y, z};
                    thread->waits = Waits::no;
                    thread->fiber = nullptr;
                }
            }
        }
        ended_ = at_barrier_ = 0;
        make_all_ready();
        leave(main_);
        if (!failure_.empty()) idle_.clear();  // some were abandoned in a kernel: all start anew
        if (idle_.empty()) {
            for (const auto& fiber : fibers_) {
                fiber->begin_at(&Block::enter);
                idle_.push_back(fiber.get());
            }
        }
        return std::move(failure_);
    }

    void wait_at_barrier(Place place) {
        Thread& mine = threads_[static_cast<std::size_t>(current_)];
        mine.place = place;
        mine.waits = Waits::at_barrier;
        same_barrier_ = at_barrier_ == 0 || (same_barrier_ && same(place, last_place_));
        last_place_ = place;
        if (++at_barrier_ == threads_.size()) {
            if (!same_barrier_) fail(different_barriers(mine));
            at_barrier_ = 0;
            rounds_in_loops_ = 0;
            make_all_ready();
        }
        suspend();
    }

    std::uint64_t exchange(WarpOperation operation, unsigned mask, std::uint64_t value, int source, Place place) {
        Thread& mine = threads_[static_cast<std::size_t>(current_)];
        mine.place = place;
        mine.operation = operation;
        mine.mask = mask;
        mine.source = source;
        mine.value = value;
        if ((mask >> lane() & 1U) == 0) not_in_its_mask(mine);
        mine.waits = Waits::in_warp;
        // With fewer threads waiting, not all threads of the mask can have arrived.
        if (++waiting_in_warp_[warp_of(mine)] >= static_cast<unsigned>(std::popcount(present(mine))) && all_there(mine))
            finish(mine);
        suspend();
        return threads_[static_cast<std::size_t>(current_)].value;
    }

    /// The thread continues when the others of its block wait or sleep too, and the other blocks have run. These sometimes run
    /// before any other thread of the block does.
    void sleep(Place place) {
        Thread& mine = threads_[static_cast<std::size_t>(current_)];
        if (others_ != nullptr && random_->below(2) == 0 && !others_->run()) fail("another block failed");
        mine.place = place;
        mine.waits = Waits::in_loop;
        in_loop_.push_back(current_);
        suspend();
    }

    /// Lets the other blocks run if that is due; after `steps` more of the block's steps.
    void pause(int steps) {
        if (pauses_ == 0 || (steps_until_pause_ -= steps) > 0) return;
        --pauses_;
        choose_pause();
        const int me = current_;
        if (!others_->run()) fail("another block failed");
        threadIdx = threads_[static_cast<std::size_t>(me)].index;
    }

    /// Where other blocks may depend on this one, a pause is likely.
    void pause_at_write() {
        constexpr int as_steps = 1024;
        if (pauses_ > 0 && random_->below(2) == 0) pause(as_steps);
    }

    [[nodiscard]] int lane() const { return current_ % lanes_per_warp; }

    /// Does not return to the caller, whose temporary objects are not destroyed; the message is therefore passed complete.
    [[noreturn]] void fail(std::string&& what) {
        failure_ = std::move(what);
        go(contexts_[static_cast<std::size_t>(current_)], main_);
        std::abort();
    }

private:
    static void enter();

    void work() {
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
        for (;;) {
            Fiber& mine = *running_;
            current_ = mine.thread;
            Thread& thread = threads_[static_cast<std::size_t>(current_)];
            thread.fiber = &mine;
            threadIdx = thread.index;
            std::string thrown;
            try {
                (*body_)();
            } catch (const std::exception& error) {
                thrown = "thread " + text_of(thread.index) + ": it threw: " + error.what();
            }
            if (!thrown.empty()) fail(std::move(thrown));
            threads_[static_cast<std::size_t>(mine.thread)].waits = Waits::ended;
            ++ended_;
            rounds_in_loops_ = 0;
            const int next = take();
            if (next >= 0 && threads_[static_cast<std::size_t>(next)].fiber == nullptr) {
                mine.thread = next;
                running_ = &mine;
                continue;
            }
            idle_.push_back(&mine);
            go(mine.context, next < 0 ? main_ : context_of(next));
        }
    }

    [[noreturn]] [[gnu::cold]] void not_in_its_mask(const Thread& mine) {
        std::string what =
            "thread " + text_of(mine.index) + " is not in the mask that it names at " + text_of(mine.place);
        fail(std::move(what));
    }
    /// A thread that can continue; -1 if there is none. It is a random one, or the one that became ready last: one warp then
    /// runs as far as it can while the others stand still, which random choices alone would rarely produce.
    [[nodiscard]] int take() {
        if (ready_.empty() && !wake_from_loops()) {
            if (ended_ != threads_.size() && failure_.empty()) diagnose();
            return -1;
        }
        if (!runs_ahead_) std::swap(ready_[random_->below(ready_.size())], ready_.back());
        const int next = ready_.back();
        ready_.pop_back();
        fetch_the_following();
        return next;
    }
    /// Lets the other blocks run, and then the threads that sleep in a loop continue. False if none sleeps.
    bool wake_from_loops() {
        if (in_loop_.empty()) return false;
        // Blocks run in turns, so a block has waited that often for blocks that do nothing but wait.
        constexpr int max_rounds = 1000;
        const Thread& first = threads_[static_cast<std::size_t>(in_loop_.front())];
        if (++rounds_in_loops_ > max_rounds) {
            failure_ = "thread " + text_of(first.index) + " waits in the loop of " + text_of(first.place) +
                       " for what no thread writes" +
                       (!cooperative_ ? "; the grid is not cooperative, so its blocks need not run side by side" : "");
            return false;
        }
        if (cooperative_ && !others_->run()) {
            failure_ = "another block failed";
            return false;
        }
        ready_.swap(in_loop_);
        return true;
    }
    /// Loading the other stack takes most of the time of a switch, so it is prefetched one switch earlier.
    void fetch_the_following() const {
#ifdef __x86_64__
        if (ready_.empty()) return;
        const auto next =
            static_cast<std::size_t>(runs_ahead_ ? ready_.back() : ready_[Random(*random_).below(ready_.size())]);
        __builtin_prefetch(&threads_[next], 1);
        if (const char* const top = static_cast<const char*>(contexts_[next].top); top != nullptr) {
            __builtin_prefetch(top, 1);
            __builtin_prefetch(top + 64, 1);
        }
#endif
    }
    /// The point at which that thread continues or starts.
    [[nodiscard]] Context& context_of(int next) {
        Thread& thread = threads_[static_cast<std::size_t>(next)];
        current_ = next;
        threadIdx = thread.index;
        if (thread.fiber != nullptr) {
            thread.waits = Waits::no;
            return contexts_[static_cast<std::size_t>(next)];
        }
        if (idle_.empty()) {
            fibers_.push_back(std::make_unique<Fiber>(fibers_.size()));
            fibers_.back()->begin_at(&Block::enter);
            idle_.push_back(fibers_.back().get());
        }
        running_ = idle_.back();
        idle_.pop_back();
        running_->thread = next;
        return running_->context;
    }
    void leave(Context& from) {
#ifdef __SANITIZE_ADDRESS__
        pthread_attr_t attributes;
        void* bottom = nullptr;
        pthread_getattr_np(pthread_self(), &attributes);
        pthread_attr_getstack(&attributes, &bottom, &from.size);
        pthread_attr_destroy(&attributes);
        from.bottom = bottom;
#endif
        const int next = take();
        go(from, next < 0 ? main_ : context_of(next));
    }
    /// Soon or late in the block.
    void choose_pause() {
        steps_until_pause_ = 1 + static_cast<int>(random_->below(std::size_t{1} << random_->below(12)));
    }
    /// Suspends the current thread, or lets it continue, at random.
    void suspend() {
        pause(1);
        const int me = current_;
        const int next = take();
        if (next == me) {
            threads_[static_cast<std::size_t>(me)].waits = Waits::no;
            threadIdx = threads_[static_cast<std::size_t>(me)].index;  // another block may have run
            return;
        }
        go(contexts_[static_cast<std::size_t>(me)], next < 0 ? main_ : context_of(next));
    }

    /// Starts at a random thread, in ascending or descending order. Each thread counts as waiting until it continues.
    void make_all_ready() {
        const int count = static_cast<int>(threads_.size()), first = static_cast<int>(random_->below(threads_.size()));
        const bool upwards = random_->below(2) == 0;
        ready_.resize(threads_.size());
        int* to = ready_.data();
        if (upwards) {
            for (int thread = first; thread < count; ++thread) *to++ = thread;
            for (int thread = 0; thread < first; ++thread) *to++ = thread;
        } else {
            for (int thread = first; thread >= 0; --thread) *to++ = thread;
            for (int thread = count - 1; thread > first; --thread) *to++ = thread;
        }
    }

    [[nodiscard]] std::size_t warp_of(const Thread& thread) const {
        return static_cast<std::size_t>(&thread - threads_.data()) / lanes_per_warp;
    }
    /// The lanes of the mask of `of` that exist in the block.
    [[nodiscard]] std::uint32_t present(const Thread& of) const {
        const std::size_t left = threads_.size() - warp_of(of) * lanes_per_warp;
        return left >= lanes_per_warp ? of.mask : of.mask & ((std::uint32_t{1} << left) - 1);
    }

    /// Calls visit(index) for each thread of the mask of `of`, until a call returns false. Lanes that do not exist in the
    /// block are skipped.
    template <class Visit>
    bool every_lane(const Thread& of, Visit&& visit) {
        const std::size_t first = warp_of(of) * lanes_per_warp;
        for (std::uint32_t lanes = present(of); lanes != 0; lanes &= lanes - 1) {
            if (!visit(first + static_cast<std::size_t>(std::countr_zero(lanes)))) return false;
        }
        return true;
    }
    /// The same without a condition.
    template <class Visit>
    void for_each_lane(const Thread& of, Visit&& visit) {
        every_lane(of, [&](std::size_t i) {
            visit(i);
            return true;
        });
    }
    [[nodiscard]] static bool same_operation(const Thread& a, const Thread& b) {
        return b.waits == Waits::in_warp && a.mask == b.mask && a.operation == b.operation && same(a.place, b.place);
    }
    [[nodiscard]] bool all_there(const Thread& mine) {
        return every_lane(mine, [&](std::size_t i) { return same_operation(mine, threads_[i]); });
    }
    void finish(const Thread& mine) {
        const std::size_t first = warp_of(mine) * lanes_per_warp;
        std::uint64_t votes = 0;
        std::array<std::uint64_t, lanes_per_warp> values;
        for_each_lane(mine, [&](std::size_t i) {
            values[i - first] = threads_[i].value;
            if (threads_[i].value != 0) votes |= std::uint64_t{1} << (i - first);
        });
        for_each_lane(mine, [&](std::size_t i) {
            Thread& thread = threads_[i];
            if (thread.operation == WarpOperation::shuffle) {
                if ((present(thread) >> thread.source & 1U) == 0) {
                    std::string what = "thread " + text_of(thread.index) + " reads lane " +
                                       std::to_string(thread.source) + ", which takes no part, at " +
                                       text_of(thread.place);
                    fail(std::move(what));
                }
                thread.value = values[static_cast<std::size_t>(thread.source)];
            } else {
                thread.value = votes;
            }
        });
        for_each_lane(mine, [&](std::size_t i) {
            threads_[i].waits = Waits::no;
            ready_.push_back(static_cast<int>(i));
        });
        waiting_in_warp_[warp_of(mine)] -= static_cast<unsigned>(std::popcount(present(mine)));
    }

    /// The message where all threads wait at a barrier, but not at the same one.
    [[nodiscard]] std::string different_barriers(const Thread& mine) const {
        const auto other = std::ranges::find_if(threads_, [&](const Thread& t) { return !same(t.place, mine.place); });
        return "thread " + text_of(mine.index) + " waits at the barrier of " + text_of(mine.place) + ", and thread " +
               text_of(other->index) + " at that of " + text_of(other->place);
    }

    /// Reports a deadlock: no thread can continue, and some have not ended.
    void diagnose() {
        const auto state = [&](const Thread& thread) {
            std::string result = "thread " + text_of(thread.index);
            switch (thread.waits) {
                case Waits::ended: return result + " has ended";
                case Waits::at_barrier: return result + " waits at the barrier of " + text_of(thread.place);
                case Waits::in_loop: return result + " waits in the loop of " + text_of(thread.place);
                default: return result + " waits for its warp at " + text_of(thread.place);
            }
        };
        for (const Thread& thread : threads_) {
            if (thread.waits != Waits::in_warp) continue;
            std::string missing;
            for_each_lane(thread, [&](std::size_t i) {
                if (missing.empty() && !same_operation(thread, threads_[i])) missing = state(threads_[i]);
            });
            if (missing.empty()) continue;
            failure_ = "a warp diverges: " + state(thread) + " for all lanes of its mask, and " + missing;
            return;
        }
        for (const Thread& thread : threads_) {
            if (thread.waits != Waits::at_barrier) continue;
            for (const Thread& other : threads_) {
                if (other.waits == Waits::at_barrier) continue;
                failure_ = "not all threads reach a barrier: " + state(thread) + " with " +
                           std::to_string(at_barrier_) + " of " + std::to_string(threads_.size()) + ", and " +
                           state(other);
                return;
            }
        }
    }

    std::vector<Thread> threads_;
    std::vector<Context> contexts_;          // of the waiting threads
    std::vector<unsigned> waiting_in_warp_;  // the number of waiting lanes per warp
    std::vector<int> ready_;
    std::vector<int> in_loop_;  // those that sleep
    int rounds_in_loops_ = 0;
    OtherBlocks* others_ = nullptr;
    bool cooperative_ = false;
    int pauses_ = 0, steps_until_pause_ = 0;
    bool runs_ahead_ = false;
    std::size_t ended_ = 0, at_barrier_ = 0;
    /// Whether all threads at a barrier wait at the same one, and the place of the last of them.
    bool same_barrier_ = true;
    Place last_place_{};
    int current_ = -1;
    Fiber* running_ = nullptr;
    Context main_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<Fiber*> idle_;
    const std::function<void()>* body_ = nullptr;
    Random* random_ = nullptr;
    std::string failure_;
};

Block the_block;
/// The one that runs.
Block* running_block = &the_block;

void Block::enter() { running_block->work(); }

/// A grid that runs.
struct Grid {
    const void* kernel;
    dim3 extent, block;
    const std::function<void()>* body;
    bool cooperative;
    /// Per block that runs side by side with others.
    int pauses;

    [[nodiscard]] uint3 index_of(std::uint64_t number) const {
        return {static_cast<unsigned>(number % extent.x), static_cast<unsigned>(number / extent.x % extent.y),
                static_cast<unsigned>(number / extent.x / extent.y)};
    }
};

/// A thread of the process that runs one block after another. It waits unless resume() is called, which
/// returns when the block has ended or waits for other blocks.
class BlockThread final : public OtherBlocks {
public:
    BlockThread() : thread_([this] { work(); }) {}
    BlockThread(const BlockThread&) = delete;
    BlockThread& operator=(const BlockThread&) = delete;

    void begin(const Grid& grid, std::uint64_t number, Random& random) {
        grid_ = &grid;
        index_ = grid.index_of(number);
        random_ = &random;
        ended_ = ends_early_ = false;
        failure_.clear();
    }
    /// Lets the block run, or makes it end.
    void resume(bool ends_early = false) {
        ends_early_ = ends_early;
        blockIdx = index_;
        running_block = &block_;
        goes_on_.release();
        returns_.acquire();
        running_block = &the_block;
    }
    bool run() override {
        if (ends_early_) return false;
        returns_.release();
        goes_on_.acquire();
        return !ends_early_;
    }
    [[nodiscard]] bool ended() const { return ended_; }
    [[nodiscard]] uint3 index() const { return index_; }
    [[nodiscard]] const std::string& failure() const { return failure_; }

private:
    void work() {
        use_signal_stack();
        for (;;) {
            goes_on_.acquire();
            if (!ends_early_) run_block();
            ended_ = true;
            returns_.release();
        }
    }
    void run_block() {
        poison_shared_memory(grid_->kernel);
        failure_ = block_.run(grid_->block, *grid_->body, *random_, this, grid_->cooperative, grid_->pauses);
    }

    Block block_;
    const Grid* grid_ = nullptr;
    uint3 index_{};
    Random* random_ = nullptr;
    bool ended_ = false, ends_early_ = false;
    std::string failure_;
    std::binary_semaphore goes_on_{0}, returns_{0};
    std::thread thread_;  // the last, because it uses the others
};

/// The first `count` threads for blocks, which are never ended: a thread and the stacks of its block are expensive.
const std::vector<BlockThread*>& block_threads(std::size_t count) {
    static std::vector<BlockThread*>& all = *new std::vector<BlockThread*>;
    static pid_t process = getpid();
    // A child of fork() has none of them.
    if (std::exchange(process, getpid()) != getpid()) all.clear();
    while (all.size() < count) all.push_back(new BlockThread);
    return all;
}

/// Runs blocks of the grid by turns, in a random order per turn. A turn may end early where no block waits for another one.
std::string run_side_by_side(const Grid& grid, std::span<const std::uint64_t> numbers, Random& random) {
    const std::vector<BlockThread*>& threads = block_threads(numbers.size());
    std::vector<BlockThread*> blocks(threads.begin(), threads.begin() + std::ssize(numbers));
    for (std::size_t i = 0; i < numbers.size(); ++i) blocks[i]->begin(grid, numbers[i], random);
    while (!blocks.empty()) {
        for (std::size_t i = blocks.size(); i > 1; --i) std::swap(blocks[i - 1], blocks[random.below(i)]);
        for (BlockThread* const each : blocks) {
            each->resume();
            if (!each->ended() || each->failure().empty()) {
                if (!grid.cooperative && random.below(2) == 0) break;
                continue;
            }
            for (BlockThread* const other : blocks) {
                if (!other->ended()) other->resume(true);
            }
            return "block " + text_of(each->index()) + ": " + each->failure();
        }
        std::erase_if(blocks, [](const BlockThread* each) { return each->ended(); });
    }
    return {};
}

}  // namespace

void barrier(Place place) { running_block->wait_at_barrier(place); }
std::uint64_t exchange(WarpOperation operation, unsigned mask, std::uint64_t value, int source, Place place) {
    return running_block->exchange(operation, mask, value, source, place);
}
int lane() { return running_block->lane(); }
void sleep(Place place) { running_block->sleep(place); }
void others_may_run() { running_block->pause_at_write(); }

static std::uint64_t waited = 0;
void wait_for_earlier_kernels() { ++waited; }
std::uint64_t threads_that_waited() { return waited; }

std::string kernel_name(const void* kernel) {
    Dl_info found{};
    if (dladdr(kernel, &found) == 0 || found.dli_sname == nullptr) return "a kernel without a symbol";
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &status), &std::free);
    return std::string("the kernel ") + (status == 0 ? name.get() : found.dli_sname);
}

std::string run_kernel(const void* kernel, dim3 extent, dim3 block, std::uint64_t seed, std::uint64_t last_blocks,
                       bool cooperative, unsigned one_in, const std::function<void()>& body) {
    Random random(seed);
    gridDim = extent;
    blockDim = block;
    const bool pauses = one_in > 0 && random.below(one_in) == 0;
    const Grid grid{kernel, extent, block, &body, cooperative, pauses ? 4 : 0};
    const std::uint64_t count = std::uint64_t{extent.x} * extent.y * extent.z;
    // The blocks run in a random order.
    const std::uint64_t first = cooperative || last_blocks == 0 || last_blocks > count ? 0 : count - last_blocks;
    std::vector<std::uint64_t> order(count - first);
    std::iota(order.begin(), order.end(), first);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    // Some that follow each other run side by side: of all grids all would take too long.
    std::size_t beside = cooperative ? order.size() : 0, first_beside = 0;
    if (!cooperative && order.size() > 1 && pauses) {
        constexpr std::size_t most = 4;
        beside = 2 + random.below(std::min(most, order.size()) - 1);
        first_beside = random.below(order.size() - beside + 1);
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
        std::string failure;
        if (beside > 0 && i == first_beside) {
            failure = run_side_by_side(grid, std::span(order).subspan(i, beside), random);
            i += beside - 1;
        } else {
            blockIdx = grid.index_of(order[i]);
            poison_shared_memory(kernel);
            failure = the_block.run(block, body, random);
            if (!failure.empty()) failure = "block " + text_of(blockIdx) + ": " + failure;
        }
        if (!failure.empty()) return kernel_name(kernel) + ", " + failure;
    }
    return {};
}

}  // namespace cupola::emulator
