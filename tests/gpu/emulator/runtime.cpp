// SPDX-License-Identifier: Apache-2.0
//
// CUDA's runtime without a GPU. A stream is a list of work; a piece of work runs when the host waits or queries, and
// sometimes when it queues more. The next stream is chosen at random and may run far ahead of the others: only events order
// streams. One piece of work runs at a time in the process, on the thread that waits, queries or queues.
#include <atomic>
#include <ctime>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "control.hpp"
#include "kernel.hpp"
#include "pages.hpp"
#include "random.hpp"
#include "stream.hpp"

namespace cupola::emulator { namespace {

struct Stream;
struct Capture;

double seconds() {
    std::timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// How far a piece of work has run.
enum class Ran : std::uint8_t { not_yet, in_part, all };

/// One recording of an event.
struct Record {
    bool done = false;
    double seconds = 0;
};

struct Work {
    std::function<Ran()> run;
    std::string name;
    /// The work of other streams that must be complete before: for each stream, up to that number.
    std::vector<std::pair<std::shared_ptr<Stream>, std::uint64_t>> after;
};

struct Node {
    cudaGraphNodeType type;
    std::string name;
    std::function<bool()> run;
    std::vector<std::size_t> after;
    cudaEvent_t event = nullptr;
    bool is_library = false;
    /// Null for what is not a kernel of the program.
    const void* kernel = nullptr;
    std::uintptr_t workspace = 0;
    std::size_t workspace_bytes = 0;
};

}  // namespace

}  // namespace cupola::emulator

struct CUgraphNode_st : cupola::emulator::Node {};

struct CUgraph_st {
    std::shared_ptr<std::vector<CUgraphNode_st>> nodes = std::make_shared<std::vector<CUgraphNode_st>>();
};

struct CUgraphExec_st {
    std::shared_ptr<const std::vector<CUgraphNode_st>> nodes;
    /// The nodes of the graph that it was made from, by whose addresses its own are named.
    std::shared_ptr<const std::vector<CUgraphNode_st>> origin;
    /// Whether the last launch is complete: two launches of a graph do not overlap.
    std::shared_ptr<bool> done = std::make_shared<bool>(true);
};

struct CUevent_st {
    int device = 0;
    unsigned flags = 0;
    std::shared_ptr<cupola::emulator::Record> latest;
    /// For a recording within a capture, the nodes that it stands for; `latest` is then null.
    std::shared_ptr<cupola::emulator::Capture> capture;
    std::vector<std::size_t> captured;
};

namespace cupola::emulator {

namespace {

struct Capture {
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    Stream* origin;
    std::vector<CUgraphNode_st> nodes;
    std::vector<Stream*> streams;
    bool active = true, invalid = false;
};

struct Stream {
    int device = 0;
    bool blocking = false;  // with regard to the device's default stream
    bool destroyed = false;
    int number = 0;
    std::deque<Work> list;
    std::uint64_t queued = 0, done = 0;
    /// A kernel of the program or of a library; not a copy, a fill, a graph or a wait.
    bool last_is_kernel = false;
    std::uint64_t priority = 0;
    std::shared_ptr<Capture> capture;
    /// The nodes that the next node depends on.
    std::vector<std::size_t> frontier;
};

enum class Kind : std::uint8_t { pageable, pinned, device, managed };

/// The guard on both sides of each allocation, and the value of its bytes; `garbage` is a NaN in every type.
constexpr std::size_t guard_bytes = 256;
constexpr int guard_value = 0xA5, garbage = 0xFF;

struct Allocation {
    std::byte* begin;
    std::size_t bytes;
    Kind kind;
    int device;
    bool guarded;
    /// The bytes of the guard on each side, and the alignment.
    std::size_t guard = guard_bytes;
    /// Of managed memory, the bytes that were brought to each device, and where the last ones end.
    std::map<int, std::size_t> brought{};
    std::size_t brought_until = 0;
};

struct Device {
    cudaError_t failed = cudaSuccess;
    bool has_context = false;
    std::size_t used = 0;
    /// The seconds that its work has taken, and those since it was idle.
    double clock = 0, busy = 0;
    std::shared_ptr<Stream> default_stream;
};

constexpr int max_devices = 16;
std::uint64_t seed_at_start() {
    const char* const text = std::getenv("CUPOLA_EMULATOR_SEED");
    return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

struct State {
    std::recursive_mutex mutex;
    std::atomic<int> wanting = 0;
    std::uint64_t seed = seed_at_start();
    Random random{seed};
    int count = 4, multiprocessors = 2, pace = 3, driver = CUDART_VERSION;
    int major = 9, minor = 0, virtual_architecture = 90;
    std::size_t memory = std::size_t{4} << 30;
    std::uint64_t last_blocks = 0;
    unsigned side_by_side_in = 8;
    int resident_blocks = 0;
    bool cooperative = true, concurrent_managed = true, eager = true, refuses_captures = false, executing = false;
    double patience = 60;
    int failing_device = -1;
    std::int64_t pieces_until_failure = 0;
    cudaError_t failing_error = cudaErrorIllegalAddress;
    std::array<Device, max_devices> device;
    std::vector<std::shared_ptr<Stream>> streams;
    std::vector<cudaEvent_t> events;
    std::vector<std::shared_ptr<Capture>> captures;
    std::map<std::uintptr_t, Allocation> allocations;
    std::int64_t captured = 0, launches = 0, waits = 0, kernels = 0, cooperative_kernels = 0, dependent = 0, pieces = 0;
    int overruns = 0, streams_made = 0;
    /// What the piece of work that runs takes by its device's clock; negative if it is the time that the CPU takes.
    double taken = -1;
    double kernel_seconds = 5e-6;
    std::map<std::int64_t, EngineBehavior> engines, products;
    Clock clock;
    double load_seconds = 0.3;
    std::set<std::string> loaded;
    std::int64_t library_calls = 0, plans = 0;
    std::map<int, std::int64_t> heuristics;
    std::string gpu_name = "Emulated GPU";
    std::set<const void*> ran;  // kernels
    std::map<const void*, Signature> signatures;
    bool records = false;
    std::vector<RecordedWork> recorded;
    Runs runs = Runs::everything;
    std::size_t tracked_page = 0;
    std::string failure;
    std::deque<std::string> messages;  // texts that cudaGetErrorString returned
};

/// Never destroyed: objects of static lifetime may free device memory at the end of the process.
State& state() {
    static State& all = *new State;
    return all;
}

thread_local int current = 0;
thread_local cudaError_t last_error = cudaSuccess;

class Guard {
public:
    Guard() {
        ++state().wanting;
        state().mutex.lock();
        --state().wanting;
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() { state().mutex.unlock(); }
};

/// The state for one expression.
struct Locked {
    Guard guard;
    State* operator->() const { return &state(); }
};
Locked locked() { return {}; }

cudaError_t keep(cudaError_t status) {
    if (status != cudaSuccess) last_error = status;
    return status;
}

void fail(int device, std::string message) {
    State& s = state();
    std::fprintf(stderr, "emulator: %s\n", message.c_str());
    if (s.failure.empty()) s.failure = message;
    if (device >= 0) s.device[static_cast<std::size_t>(device)].failed = cudaErrorLaunchFailure;
}

cudaError_t failed(int device) { return state().device[static_cast<std::size_t>(device)].failed; }

/// What a call returns that has succeeded, but whose device has failed before.
cudaError_t kept_unless_failed(cudaError_t status, int device) {
    return keep(status == cudaSuccess ? failed(device) : status);
}

/// The number of devices that the process sees: CUDA ignores what follows an invalid entry of CUDA_VISIBLE_DEVICES.
int visible_devices() {
    const int all = state().driver < CUDART_VERSION / 1000 * 1000 ? 0 : state().count;
    const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
    if (list == nullptr) return all;
    int count = 0;
    for (;;) {
        char* end = nullptr;
        const long number = std::strtol(list, &end, 10);
        if (end == list || number < 0 || number >= all) return count;
        ++count;
        if (*end != ',') return count;
        list = end + 1;
    }
}

/// A call for the calling thread's device creates its context.
void need_context() { state().device[static_cast<std::size_t>(current)].has_context = true; }
/// Whether the program has code for the devices.
bool has_code() { return state().major * 100 + state().minor * 10 >= 900; }

std::string text_of(const Stream& stream) {
    return (stream.number == 0 ? std::string("the default stream") : "stream " + std::to_string(stream.number)) +
           " of device " + std::to_string(stream.device);
}

/// The stream of a handle; null if there is none.
std::shared_ptr<Stream> find(cudaStream_t handle) {
    State& s = state();
    if (handle == nullptr) {
        auto& stream = s.device[static_cast<std::size_t>(current)].default_stream;
        if (stream == nullptr) {
            stream = std::make_shared<Stream>();
            stream->device = current;
            stream->blocking = true;
            s.streams.push_back(stream);
        }
        return stream;
    }
    for (const auto& stream : s.streams) {
        if (stream.get() == reinterpret_cast<Stream*>(handle) && !stream->destroyed) return stream;
    }
    return nullptr;
}

bool exists(cudaEvent_t event) { return std::ranges::find(state().events, event) != state().events.end(); }

const Allocation* find(const void* address, std::size_t bytes = 0) {
    const auto& all = state().allocations;
    auto found = all.upper_bound(reinterpret_cast<std::uintptr_t>(address));
    if (found == all.begin()) return nullptr;
    const Allocation& allocation = (--found)->second;
    const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - allocation.begin);
    return offset + bytes <= allocation.bytes && offset < std::max<std::size_t>(allocation.bytes, 1) ? &allocation
                                                                                                     : nullptr;
}

// Work.

/// Work that takes so many seconds at the full clock: what it takes now, while the device's clock rises.
double at_clock(Device& device, double work) {
    const Clock& clock = state().clock;
    const double rise = 1 - clock.idle;
    const auto done_by = [&](double time) {  // the integral of the clock
        const double rising = std::min(time, clock.ramp);
        return clock.idle * rising + (clock.ramp > 0 ? rise * rising * rising / (2 * clock.ramp) : 0) +
               std::max(0.0, time - clock.ramp);
    };
    const double end = done_by(device.busy) + work, until_full = done_by(clock.ramp);
    double busy = clock.ramp + end - until_full;
    if (end < until_full) {
        const double slope = rise / clock.ramp;
        busy = (std::sqrt(clock.idle * clock.idle + 2 * slope * end) - clock.idle) / slope;
    }
    double taken = busy - device.busy;
    device.busy = busy;
    if (clock.sag > 0 && std::fmod(device.clock, 2 * clock.sag_period) >= clock.sag_period) taken /= 1 - clock.sag;
    return taken;
}

/// Runs the first piece of work of a stream, or a part of it.
bool run_first(Stream& stream) {
    State& s = state();
    if (failed(stream.device) != cudaSuccess) return false;
    Work& work = stream.list.front();
    for (const auto& [other, number] : work.after) {
        if (other->done < number) return false;
    }
    if (s.failing_device == stream.device && s.pieces_until_failure-- <= 0) {
        s.device[static_cast<std::size_t>(stream.device)].failed = s.failing_error;
        return false;
    }
    const int before = std::exchange(current, stream.device);
    s.executing = true;
    Ran ran = Ran::not_yet;
    s.taken = -1;
    const double began = seconds();
    try {
        ran = work.run();
    } catch (const std::exception& error) {
        fail(stream.device, work.name + " on " + text_of(stream) + " threw: " + error.what());
    }
    s.executing = false;
    Device& device = s.device[static_cast<std::size_t>(current)];
    device.clock += s.taken >= 0 ? at_clock(device, s.taken) : seconds() - began;
    current = before;
    if (ran == Ran::not_yet) return false;
    ++s.pieces;
    if (ran == Ran::all) {
        stream.list.pop_front();
        ++stream.done;
    }
    return true;
}

/// Runs one piece of work of any stream that can continue. False if there is none.
bool run_one() {
    State& s = state();
    if (s.executing) return false;
    constexpr std::size_t pieces_per_order = 8;  // on average: the first stream remains first for a while
    if (s.random.below(pieces_per_order) == 0) {
        for (const auto& stream : s.streams) stream->priority = s.random.next();
    }
    std::vector<std::shared_ptr<Stream>> waiting;
    bool left_over = false;
    for (const auto& stream : s.streams) {
        if (!stream->list.empty()) waiting.push_back(stream);
        left_over = left_over || (stream->destroyed && stream->list.empty());
    }
    if (left_over) std::erase_if(s.streams, [](const auto& one) { return one->destroyed && one->list.empty(); });
    std::ranges::sort(waiting, {}, [](const auto& stream) { return stream->priority; });
    return std::ranges::any_of(waiting, [](const auto& stream) { return run_first(*stream); });
}

void run_some(int most) {
    for (int i = 0; i < most && run_one(); ++i) {
    }
}

std::string stuck() {
    std::string result = "the host waits for ever:";
    for (const auto& stream : state().streams) {
        if (!stream->list.empty()) result += " " + text_of(*stream) + " is at " + stream->list.front().name + ";";
    }
    return result;
}

/// Runs work until done() is true. An error of `device` ends the wait.
template <class Done>
cudaError_t wait_until(int device, const Done& done) {
    State& s = state();
    double since = seconds();
    std::int64_t pieces = -1;
    for (;;) {
        {
            const Guard guard;
            if (failed(device) != cudaSuccess) return failed(device);
            if (done()) return cudaSuccess;
            const bool went_on = run_one();
            if (went_on && s.wanting == 0) continue;
            if (s.pieces != pieces) {
                pieces = s.pieces;
                since = seconds();
            } else if (seconds() - since > s.patience) {
                fail(device, stuck());
                return failed(device);
            }
            if (went_on) pieces = -1;
        }
        if (pieces >= 0) {
            const std::timespec short_while{.tv_sec = 0, .tv_nsec = 20'000};
            nanosleep(&short_while, nullptr);
        } else {
            std::this_thread::yield();
        }
    }
}

// Captures.

void invalidate(Capture& capture) { capture.invalid = true; }

/// Invalidates captures for a call that is not allowed during a capture.
cudaError_t forbidden() {
    for (const auto& capture : state().captures) {
        if (capture->mode == cudaStreamCaptureModeRelaxed) continue;
        if (capture->thread == std::this_thread::get_id()) {
            invalidate(*capture);
            return cudaErrorStreamCaptureUnsupported;
        }
        if (capture->mode == cudaStreamCaptureModeGlobal) return cudaErrorStreamCaptureUnsupported;
    }
    return cudaSuccess;
}

cudaError_t add_node(Stream& stream, cudaGraphNodeType type, std::string name, std::function<bool()> run,
                     cudaEvent_t event = nullptr) {
    Capture& capture = *stream.capture;
    if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
    if (state().refuses_captures) {
        invalidate(capture);
        return cudaErrorStreamCaptureUnsupported;
    }
    CUgraphNode_st node;
    node.type = type;
    node.name = std::move(name);
    node.run = std::move(run);
    node.after = stream.frontier;
    node.event = event;
    stream.frontier = {capture.nodes.size()};
    capture.nodes.push_back(std::move(node));
    return cudaSuccess;
}

void push(const std::shared_ptr<Stream>& stream, std::string name, std::function<Ran()> run) {
    State& s = state();
    Work work{std::move(run), std::move(name), {}};
    if (stream->blocking) {
        for (const auto& other : s.streams) {
            if (other != stream && other->blocking && other->device == stream->device &&
                (stream->number == 0 || other->number == 0) && other->done < other->queued)
                work.after.emplace_back(other, other->queued);
        }
    }
    stream->last_is_kernel = false;
    stream->list.push_back(std::move(work));
    ++stream->queued;
    constexpr std::size_t pieces_per_turn = 4;  // on average
    if (s.eager && s.random.below(pieces_per_turn) == 0) run_one();
}

/// Protects the memory of the devices while a kernel runs; see pages.hpp.
class TrackedMemory {
public:
    /// Adds what the kernel used to `to`, at the end.
    explicit TrackedMemory(RecordedWork& to) : to_(&to) {
        State& s = state();
        if (!s.records || s.tracked_page == 0) {
            to_ = nullptr;
            return;
        }
        std::vector<PageRange> ranges;
        for (const auto& [address, allocation] : s.allocations) {
            if (allocation.kind == Kind::device || allocation.kind == Kind::managed)
                ranges.push_back({allocation.begin, allocation.bytes});
        }
        watch_pages(std::move(ranges), s.tracked_page);
    }
    TrackedMemory(const TrackedMemory&) = delete;
    TrackedMemory& operator=(const TrackedMemory&) = delete;
    ~TrackedMemory() {
        if (to_ == nullptr) return;
        const PageUse use = watched_pages();
        to_->bytes_read = use.read;
        to_->bytes_written = use.written;
    }

private:
    RecordedWork* to_;
};

/// What the call of a library that the thread queues next takes; negative if nothing said so.
thread_local double next_call_seconds = -1;

/// `work` as it runs and is recorded; `kernel` is null for work that is not a kernel of the program. Work that does not run (set_runs)
/// takes the device as long as if it did: `library_seconds` for a call of a library.
std::function<bool()> recorded_run(std::function<bool()> work, std::string name, const void* kernel,
                                   const RecordedWork& cost, double library_seconds = -1) {
    return [work = std::move(work), name = std::move(name), kernel, cost, library_seconds] {
        State& s = state();
        RecordedWork done = cost;
        done.begun = s.device[static_cast<std::size_t>(current)].clock;
        if (s.runs == Runs::everything || (s.runs == Runs::no_libraries && !cost.is_library)) {
            if (kernel == nullptr) {
                if (!work()) return false;
            } else {
                const TrackedMemory tracked(done);
                work();
            }
        } else {
            s.taken = kernel == nullptr ? library_seconds : s.kernel_seconds;
        }
        if (!s.records) return true;
        done.seconds = std::max(0.0, s.taken);
        done.name = kernel == nullptr ? name : kernel_name(kernel);
        s.recorded.push_back(std::move(done));
        return true;
    };
}

cudaError_t add(cudaStream_t handle, cudaGraphNodeType type, std::string name, std::function<bool()> work,
                const void* kernel = nullptr, const RecordedWork& cost = {}, const void* workspace = nullptr,
                std::size_t workspace_bytes = 0, double library_seconds = -1) {
    const std::shared_ptr<Stream> stream = find(handle);
    std::function<bool()> run = recorded_run(std::move(work), name, kernel, cost, library_seconds);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (failed(stream->device) != cudaSuccess) return failed(stream->device);
    if (stream->capture != nullptr) {
        const cudaError_t status = add_node(*stream, type, std::move(name), std::move(run));
        if (status == cudaSuccess) {
            stream->capture->nodes.back().is_library = cost.is_library;
            stream->capture->nodes.back().kernel = kernel;
            stream->capture->nodes.back().workspace = reinterpret_cast<std::uintptr_t>(workspace);
            stream->capture->nodes.back().workspace_bytes = workspace_bytes;
        }
        return status;
    }
    push(stream, std::move(name), [run = std::move(run)] { return run() ? Ran::all : Ran::not_yet; });
    stream->last_is_kernel = type == cudaGraphNodeTypeKernel;
    return cudaSuccess;
}

void record(Record& record) {
    record.done = true;
    state().taken = 0;
    record.seconds = state().device[static_cast<std::size_t>(current)].clock;
}

// One launch of a graph.

class Running {
public:
    Running(std::shared_ptr<const std::vector<CUgraphNode_st>> nodes, std::shared_ptr<bool> before,
            std::shared_ptr<bool> done)
        : nodes_(std::move(nodes)),
          before_(std::move(before)),
          done_(std::move(done)),
          ran_(nodes_->size(), false),
          records_(nodes_->size()) {
        for (std::size_t i = 0; i < nodes_->size(); ++i) {
            const Node& node = (*nodes_)[i];
            if (node.type == cudaGraphNodeTypeEventRecord)
                records_[i] = node.event->latest = std::make_shared<Record>();
            else if (node.type == cudaGraphNodeTypeWaitEvent)
                records_[i] = node.event->latest;
        }
        left_ = nodes_->size();
    }

    /// Runs a random one of the nodes that can run.
    Ran run() {
        if (!*before_) return Ran::not_yet;
        std::vector<std::size_t> ready;
        for (std::size_t i = 0; i < nodes_->size(); ++i) {
            const Node& node = (*nodes_)[i];
            if (!ran_[i] && std::ranges::all_of(node.after, [&](std::size_t other) { return ran_[other]; }))
                ready.push_back(i);
        }
        while (!ready.empty()) {
            std::swap(ready[state().random.below(ready.size())], ready.back());
            const std::size_t i = ready.back();
            ready.pop_back();
            if (!run_node(i)) continue;
            ran_[i] = true;
            if (--left_ == 0) break;
            return Ran::in_part;
        }
        if (left_ != 0) return Ran::not_yet;
        *done_ = true;
        return Ran::all;
    }

private:
    bool run_node(std::size_t i) {
        const Node& node = (*nodes_)[i];
        if (node.type == cudaGraphNodeTypeEventRecord) {
            record(*records_[i]);
            return true;
        }
        if (node.type == cudaGraphNodeTypeWaitEvent) return records_[i] == nullptr || records_[i]->done;
        return node.run == nullptr || node.run();
    }

    std::shared_ptr<const std::vector<CUgraphNode_st>> nodes_;
    std::shared_ptr<bool> before_, done_;
    std::vector<bool> ran_;
    std::vector<std::shared_ptr<Record>> records_;
    std::size_t left_ = 0;
};

// Memory.

cudaError_t allocate(void** memory, std::size_t bytes, Kind kind) {
    State& s = state();
    if (memory == nullptr) return cudaErrorInvalidValue;
    *memory = nullptr;
    need_context();
    if (bytes == 0) return cudaSuccess;
    Device& device = s.device[static_cast<std::size_t>(current)];
    if (kind == Kind::device && bytes > s.memory - std::min(s.memory, device.used)) return cudaErrorMemoryAllocation;
    // With tracking, pages that the program protects belong to one allocation.
    const std::size_t guard = std::max(guard_bytes, s.tracked_page);
    const std::size_t padded = (bytes + guard - 1) / guard * guard;
    auto* const all = static_cast<std::byte*>(std::aligned_alloc(guard, padded + 2 * guard));
    if (all == nullptr) return cudaErrorMemoryAllocation;
    std::memset(all, guard_value, guard);
    std::memset(all + guard, garbage, bytes);
    std::memset(all + guard + bytes, guard_value, padded - bytes + guard);
    std::byte* const begin = all + guard;
    s.allocations[reinterpret_cast<std::uintptr_t>(begin)] = {begin, bytes, kind, current, true, guard, {}, 0};
    if (kind == Kind::device) device.used += bytes;
    *memory = begin;
    return cudaSuccess;
}

bool guards_hold(const Allocation& a) {
    const std::size_t padded = (a.bytes + a.guard - 1) / a.guard * a.guard;
    const auto holds = [](const std::byte* from, const std::byte* to) {
        return std::all_of(from, to, [](std::byte b) { return b == std::byte{guard_value}; });
    };
    return holds(a.begin - a.guard, a.begin) && holds(a.begin + a.bytes, a.begin + padded + a.guard);
}

cudaError_t release(void* memory, Kind kind) {
    State& s = state();
    if (memory == nullptr) return cudaSuccess;
    {
        const Guard guard;
        if (const cudaError_t status = forbidden(); status != cudaSuccess) return status;
        const auto found = s.allocations.find(reinterpret_cast<std::uintptr_t>(memory));
        if (found == s.allocations.end() || !found->second.guarded) return cudaErrorInvalidValue;
        if (kind == Kind::device && found->second.kind == Kind::managed) kind = Kind::managed;
        if (found->second.kind != kind) return cudaErrorInvalidValue;
    }
    // The memory is freed when the work queued before is complete. Work that can never complete is ignored.
    bool any_failed = false;
    for (int device = 0; device < max_devices; ++device) any_failed = any_failed || failed(device) != cudaSuccess;
    if (!any_failed) {
        std::vector<std::pair<std::shared_ptr<Stream>, std::uint64_t>> queued;
        int device = 0;
        {
            const Guard guard;
            device = s.allocations.at(reinterpret_cast<std::uintptr_t>(memory)).device;
            for (const auto& stream : s.streams) {
                if ((stream->device == device || kind == Kind::managed) && stream->done < stream->queued)
                    queued.emplace_back(stream, stream->queued);
            }
        }
        static_cast<void>(wait_until(device, [&] {
            return std::ranges::all_of(queued, [](const auto& each) { return each.first->done >= each.second; });
        }));
    }
    const Guard guard;
    const Allocation allocation = s.allocations.at(reinterpret_cast<std::uintptr_t>(memory));
    if (!guards_hold(allocation)) {
        ++s.overruns;
        fail(-1, "memory of " + std::to_string(allocation.bytes) + " bytes of device " +
                     std::to_string(allocation.device) + " was written outside of");
    }
    s.allocations.erase(reinterpret_cast<std::uintptr_t>(memory));
    if (kind == Kind::device) s.device[static_cast<std::size_t>(allocation.device)].used -= allocation.bytes;
    for (const auto& [device, bytes] : allocation.brought) s.device[static_cast<std::size_t>(device)].used -= bytes;
    std::memset(allocation.begin, garbage, allocation.bytes);
    std::free(allocation.begin - allocation.guard);
    return cudaSuccess;
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t handle, bool waits) {
    std::shared_ptr<Stream> stream;
    std::uint64_t number = 0;
    {
        const Guard guard;
        stream = find(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        if (failed(stream->device) != cudaSuccess) return failed(stream->device);
        if (bytes == 0) return cudaSuccess;
        const Allocation *const to_what = find(to, 0), *const from_what = find(from, 0);
        const auto kind_of = [](const Allocation* a) { return a == nullptr ? Kind::pageable : a->kind; };
        if ((to_what != nullptr && find(to, bytes) == nullptr) ||
            (from_what != nullptr && find(from, bytes) == nullptr))
            return cudaErrorInvalidValue;
        const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
        const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
        if ((to_device && kind_of(to_what) == Kind::pageable) || (from_device && kind_of(from_what) == Kind::pageable))
            return cudaErrorInvalidValue;
        const bool pageable = kind_of(to_what) == Kind::pageable || kind_of(from_what) == Kind::pageable;
        if (stream->capture != nullptr && pageable) {
            invalidate(*stream->capture);
            return cudaErrorStreamCaptureUnsupported;
        }
        if (waits) {
            if (const cudaError_t status = forbidden(); status != cudaSuccess) return status;
        }
        std::function<bool()> run = [=] {
            std::memmove(to, from, bytes);
            return true;
        };
        if (kind_of(from_what) == Kind::pageable) {
            // CUDA reads pageable memory before the call returns, so the bytes are copied now.
            const auto* const begin = static_cast<const std::byte*>(from);
            run = [to, kept = std::vector<std::byte>(begin, begin + bytes)] {
                std::memcpy(to, kept.data(), kept.size());
                return true;
            };
        }
        const auto count = static_cast<std::int64_t>(bytes);
        const cudaError_t status = add(handle, cudaGraphNodeTypeMemcpy, "a copy", std::move(run), nullptr,
                                       {.name = {}, .bytes_read = count, .bytes_written = count});
        if (status != cudaSuccess || stream->capture != nullptr) return status;
        waits = waits || kind_of(to_what) == Kind::pageable;
        number = stream->queued;
    }
    if (!waits) return cudaSuccess;
    return wait_until(stream->device, [&] { return stream->done >= number; });
}

cudaError_t fill(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    const Guard guard;
    if (bytes != 0 && find(to, bytes) == nullptr) return cudaErrorInvalidValue;
    return add(stream, cudaGraphNodeTypeMemset, "a memset",
               [=] {
                   if (bytes != 0) std::memset(to, value, bytes);
                   return true;
               },
               nullptr, {.name = {}, .bytes_written = static_cast<std::int64_t>(bytes)});
}

cudaError_t make_stream(cudaStream_t* handle, unsigned flags) {
    State& s = state();
    const Guard guard;
    if (handle == nullptr || (flags & ~unsigned{cudaStreamNonBlocking}) != 0) return cudaErrorInvalidValue;
    if (failed(current) != cudaSuccess) return failed(current);
    need_context();
    auto stream = std::make_shared<Stream>();
    stream->device = current;
    stream->blocking = (flags & cudaStreamNonBlocking) == 0;
    stream->number = ++s.streams_made;
    stream->priority = s.random.next();
    s.streams.push_back(stream);
    *handle = reinterpret_cast<cudaStream_t>(stream.get());
    return cudaSuccess;
}

const char* name_of(cudaError_t error) {
    switch (error) {
#define CUPOLA_EMULATED_ERROR(name, number, meaning) \
    case name: return #name;
#include "cuda_errors.inc"
#undef CUPOLA_EMULATED_ERROR
    }
    return "unrecognized error code";
}

const char* meaning_of(cudaError_t error) {
    switch (error) {
#define CUPOLA_EMULATED_ERROR(name, number, meaning) \
    case name: return *meaning != '\0' ? meaning : #name;
#include "../../standard.hpp"
#include "cuda_errors.inc"
#undef CUPOLA_EMULATED_ERROR
    }
    return name_of(error);
}

}  // namespace

// The functions of kernel.hpp, stream.hpp and control.hpp.

/// Whether the last work of a stream, or of its capture, is one kernel, of the program or of a library.
static bool follows_kernel(const Stream& stream) {
    if (stream.capture == nullptr) return stream.last_is_kernel;
    if (stream.frontier.size() != 1) return false;
    return stream.capture->nodes[stream.frontier.front()].type == cudaGraphNodeTypeKernel;
}

/// The blocks of a kernel that a multiprocessor holds at a time.
static int resident_blocks(int threads) {
    constexpr int max_threads = 2048, max_blocks = 32;
    const int set = state().resident_blocks;
    return set > 0
               ? set
               : std::min(max_blocks, max_threads / ((threads + lanes_per_warp - 1) / lanes_per_warp * lanes_per_warp));
}

/// The run of a kernel.
static std::function<bool()> kernel_run(const void* kernel, dim3 grid, dim3 block, std::function<void()> body,
                                        bool dependent, bool cooperative) {
    const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
    return [=, body = std::move(body)] {
        State& s = state();
        ++s.kernels;
        s.ran.insert(kernel);
        if (dependent) ++s.dependent;
        if (cooperative) ++s.cooperative_kernels;
        const std::uint64_t before = threads_that_waited();
        std::string what =
            run_kernel(kernel, grid, block, s.random.next(), s.last_blocks, cooperative, s.side_by_side_in, body);
        const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z,
                            ran = s.last_blocks == 0 || cooperative ? blocks : std::min(blocks, s.last_blocks),
                            waited = threads_that_waited() - before;
        if (what.empty() && dependent && waited != ran * threads)
            what = kernel_name(kernel) + " was launched before the end of the kernel before it, for which " +
                   std::to_string(ran * threads - waited) + " of its " + std::to_string(ran * threads) +
                   " threads did not wait";
        if (!what.empty()) fail(current, what + "; CUPOLA_EMULATOR_SEED=" + std::to_string(s.seed));
        s.taken = s.kernel_seconds;
        return true;
    };
}

/// The call of a kernel with copies of these arguments.
static std::function<void()> call_of(const void* kernel, const Signature& signature, const void* const* arguments) {
    struct alignas(64) Line {
        std::byte bytes[64];
    };
    struct Copies {
        std::vector<Line> lines;
        std::vector<const void*> places;
    };
    const auto copies = std::make_shared<Copies>();
    const auto lines_of = [](std::size_t bytes) { return (bytes + sizeof(Line) - 1) / sizeof(Line); };
    std::size_t lines = 0;
    for (std::size_t i = 0; i < signature.count; ++i) lines += lines_of(signature.sizes[i]);
    copies->lines.resize(lines);
    Line* to = copies->lines.data();
    for (std::size_t i = 0; i < signature.count; ++i) {
        std::memcpy(static_cast<void*>(to), arguments[i], signature.sizes[i]);
        copies->places.push_back(to);
        to += lines_of(signature.sizes[i]);
    }
    return [kernel, call = signature.call, copies] { call(kernel, copies->places.data()); };
}

cudaError_t launch(const void* kernel, const Signature& signature, const void* const* arguments, const Launch& how) {
    const auto& [grid, block, shared_bytes, stream, dependent, cooperative] = how;
    constexpr unsigned max_threads = 1024, max_blocks = 65535, max_blocks_of_x = 0x7FFF'FFFF, max_threads_of_z = 64;
    const Guard guard;
    state().signatures.try_emplace(kernel, signature);
    const std::shared_ptr<Stream> queue = find(stream);
    // A kernel must be launched on a stream of the calling thread's device.
    if (queue == nullptr || queue->device != current) return keep(cudaErrorInvalidResourceHandle);
    if (!has_code()) return keep(cudaErrorNoKernelImageForDevice);
    const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
    if (threads == 0 || threads > max_threads || block.z > max_threads_of_z || grid.x == 0 || grid.y == 0 ||
        grid.z == 0 || grid.x > max_blocks_of_x || grid.y > max_blocks || grid.z > max_blocks)
        return keep(cudaErrorInvalidConfiguration);
    if (shared_bytes != 0) return keep(cudaErrorNotSupported);  // no kernel of this project uses dynamic shared memory
    if (dependent && state().major < 9) return keep(cudaErrorNotSupported);
    if (cooperative) {
        if (!state().cooperative) return keep(cudaErrorNotSupported);
        const int held = resident_blocks(static_cast<int>(threads)) * state().multiprocessors;
        if (std::uint64_t{grid.x} * grid.y * grid.z > static_cast<std::uint64_t>(held))
            return keep(cudaErrorCooperativeLaunchTooLarge);
    }
    if (dependent && !follows_kernel(*queue)) {
        fail(current, kernel_name(kernel) + " was launched as one that depends on a kernel, and follows none");
        return keep(failed(current));
    }
    return keep(add(stream, cudaGraphNodeTypeKernel, "a kernel",
                    kernel_run(kernel, grid, block, call_of(kernel, signature, arguments), dependent, cooperative),
                    kernel,
                    {.name = {}, .blocks = static_cast<std::int64_t>(std::uint64_t{grid.x} * grid.y * grid.z)}));
}

void enqueue(cudaStream_t stream, std::function<bool()> work, std::string name, const LibraryCost& cost) {
    const Guard guard;
    static_cast<void>(keep(add(stream, cudaGraphNodeTypeKernel, std::move(name), std::move(work), nullptr,
                               {.name = {},
                                .bytes_read = cost.bytes_read,
                                .bytes_written = cost.bytes_written,
                                .operations = cost.operations,
                                .is_library = true},
                               cost.workspace, cost.workspace_bytes, std::exchange(next_call_seconds, -1))));
}

void misuse(const std::string& message) {
    const Guard guard;
    fail(-1, message);
}

int current_device() { return current; }

double queued_seconds(cudaStream_t stream, double of_device, double of_host) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream, &status);
    return next_call_seconds = status == cudaStreamCaptureStatusNone ? std::max(of_device, of_host) : of_device;
}
void take_seconds(double seconds) { state().taken = seconds; }

namespace {
void set_behavior(std::map<std::int64_t, EngineBehavior>& all, std::int64_t number,
                  std::optional<EngineBehavior> behavior) {
    const Guard guard;
    if (behavior)
        all[number] = *behavior;
    else
        all.erase(number);
}
EngineBehavior behavior_of(const std::map<std::int64_t, EngineBehavior>& all, std::int64_t number, double own) {
    const Guard guard;
    const auto found = all.find(number);
    return found == all.end() ? EngineBehavior{own, false} : found->second;
}
}  // namespace

void set_engine_behavior(std::int64_t engine, std::optional<EngineBehavior> behavior) {
    set_behavior(state().engines, engine, behavior);
}
void set_product_behavior(std::int64_t splits, std::optional<EngineBehavior> behavior) {
    set_behavior(state().products, splits, behavior);
}
EngineBehavior engine_behavior(std::int64_t engine, double own_seconds) {
    return behavior_of(state().engines, engine, own_seconds);
}
EngineBehavior product_behavior(std::int64_t splits) {
    // Two parts are the fastest, three the next.
    constexpr double of_parts[] = {0, 300e-6, 100e-6, 150e-6};
    return behavior_of(state().products, splits, of_parts[splits >= 1 && splits <= 3 ? splits : 1]);
}
void set_kernel_seconds(double seconds) { locked()->kernel_seconds = seconds; }
std::int64_t library_calls() { return locked()->library_calls; }
std::int64_t heuristics_asked(int mode) { return locked()->heuristics[mode]; }
double planning_seconds() {
    constexpr double of_ranking = 10e-3, of_plan = 0.5e-3;
    const Guard guard;
    double result = of_plan * static_cast<double>(state().plans);
    for (const auto& [mode, asked] : state().heuristics) result += of_ranking * static_cast<double>(asked);
    return result;
}
void count_plan() { ++locked()->plans; }
void count_heuristics(int mode) { ++locked()->heuristics[mode]; }
void count_library_call() { ++locked()->library_calls; }
void set_clock(const Clock& clock) {
    const Guard guard;
    state().clock = clock;
    for (Device& device : state().device) device.busy = 0;
}
void let_idle(int device) { locked()->device[static_cast<std::size_t>(device)].busy = 0; }
void set_load_seconds(double seconds, bool again) {
    const Guard guard;
    state().load_seconds = seconds;
    if (again) state().loaded.clear();
}
double load_seconds(std::string_view library, std::int64_t algorithm) {
    const Guard guard;
    const bool first = state().loaded.insert(std::string(library) + ' ' + std::to_string(algorithm)).second;
    return first ? state().load_seconds : 0;
}
void set_gpu_name(std::string name) { locked()->gpu_name = std::move(name); }

void set_devices(int count) { locked()->count = std::min(count, max_devices); }
void set_multiprocessors(int count) { locked()->multiprocessors = count; }
void set_capability(int major, int minor) {
    const Guard guard;
    state().major = major;
    state().minor = minor;
}
void set_virtual_architecture(int architecture) { locked()->virtual_architecture = architecture; }
bool has_context(int device) { return locked()->device[static_cast<std::size_t>(device)].has_context; }
void forget_contexts() {
    const Guard guard;
    for (Device& device : state().device) device.has_context = false;
}
void set_driver(int version) { locked()->driver = version; }
void set_resident_blocks(int count) { locked()->resident_blocks = count; }
void set_concurrent_managed(bool can) { locked()->concurrent_managed = can; }
void set_cooperative(bool can) { locked()->cooperative = can; }
void run_only_last(std::uint64_t blocks) { locked()->last_blocks = blocks; }
void run_side_by_side_in(unsigned grids) { locked()->side_by_side_in = grids; }
void set_memory(std::size_t bytes) { locked()->memory = bytes; }
void set_seed(std::uint64_t seed) {
    const Guard guard;
    state().seed = seed;
    state().random = Random(seed);
}
void set_pace(int pieces) { locked()->pace = pieces; }
void set_eager(bool eager) { locked()->eager = eager; }
void set_patience(double patience) { locked()->patience = patience; }
void refuse_captures(bool refuse) { locked()->refuses_captures = refuse; }
void fail_device(int device, std::int64_t after, cudaError_t error) {
    const Guard guard;
    state().failing_error = error;
    state().pieces_until_failure = after;
    state().failing_device = device;
}
void mend() {
    const Guard guard;
    State& s = state();
    s.failing_device = -1;
    for (Device& device : s.device) device.failed = cudaSuccess;
    for (const auto& stream : s.streams) {
        stream->list.clear();
        stream->done = stream->queued;
    }
    s.failure.clear();
}

std::int64_t captures() { return locked()->captured; }
std::int64_t launches_of_captures() { return locked()->launches; }
std::int64_t waits() { return locked()->waits; }
std::int64_t kernels() { return locked()->kernels; }
std::int64_t cooperative_kernels() { return locked()->cooperative_kernels; }
double device_seconds(int device) { return locked()->device[static_cast<std::size_t>(device)].clock; }
std::int64_t dependent_kernels() { return locked()->dependent; }
std::int64_t pieces() { return locked()->pieces; }
std::vector<std::string> kernels_that_ran() {
    const Guard guard;
    std::vector<std::string> result;
    for (const void* const kernel : state().ran) result.push_back(kernel_name(kernel));
    return result;
}
void record_work() {
    const Guard guard;
    state().records = true;
    state().recorded.clear();
}
std::vector<std::string> recorded_work() {
    std::vector<std::string> names;
    for (RecordedWork& each : recorded_costs()) names.push_back(std::move(each.name));
    return names;
}
std::vector<RecordedWork> recorded_costs() {
    const Guard guard;
    state().records = false;
    return std::exchange(state().recorded, {});
}
void track_memory(std::size_t page) { locked()->tracked_page = page; }
void set_runs(Runs runs) { locked()->runs = runs; }
int overruns() { return locked()->overruns; }
std::size_t memory_in_use() {
    const Guard guard;
    std::size_t result = 0;
    for (const Device& device : state().device) result += device.used;
    return result;
}
std::size_t memory_in_use(int device) { return locked()->device[static_cast<std::size_t>(device)].used; }
std::string failure() { return locked()->failure; }

}  // namespace cupola::emulator

using namespace cupola::emulator;

extern "C" {

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
    const Guard guard;
    *version = state().driver;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
    const Guard guard;
    *count = visible_devices();
    if (state().driver < CUDART_VERSION / 1000 * 1000) return keep(cudaErrorInsufficientDriver);
    return keep(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaGetDevice(int* device) {
    const Guard guard;
    *device = current;
    return kept_unless_failed(cudaSuccess, current);
}
cudaError_t cudaSetDevice(int device) {
    const Guard guard;
    if (device < 0 || device >= visible_devices()) return keep(cudaErrorInvalidDevice);
    current = device;
    need_context();
    return kept_unless_failed(cudaSuccess, current);
}
namespace {
/// The driver's cuDevicePrimaryCtxGetState.
int primary_context_state(int device, unsigned* flags, int* active) {
    const Guard guard;
    constexpr int invalid_device = 101;
    if (device < 0 || device >= visible_devices()) return invalid_device;
    *flags = 0;
    *active = state().device[static_cast<std::size_t>(device)].has_context ? 1 : 0;
    return 0;
}
}  // namespace
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
    const bool known = std::string_view(symbol) == "cuDevicePrimaryCtxGetState";
    *function = known ? reinterpret_cast<void*>(&primary_context_state) : nullptr;
    if (result != nullptr) *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
    const Guard guard;
    if (attributes == nullptr || function == nullptr) return keep(cudaErrorInvalidDeviceFunction);
    if (failed(current) != cudaSuccess) return keep(failed(current));
    if (!has_code()) return keep(cudaErrorNoKernelImageForDevice);
    need_context();
    *attributes = {
        .maxThreadsPerBlock = 1024, .numRegs = 32, .ptxVersion = state().virtual_architecture, .binaryVersion = 90};
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    const Guard guard;
    if (device < 0 || device >= visible_devices()) return keep(cudaErrorInvalidDevice);
    cudaDeviceProp properties;
    if (const cudaError_t status = cudaGetDeviceProperties(&properties, device); status != cudaSuccess) return status;
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: *value = properties.maxThreadsPerBlock; return cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            *value = static_cast<int>(properties.sharedMemPerBlock);
            return cudaSuccess;
        case cudaDevAttrWarpSize: *value = properties.warpSize; return cudaSuccess;
        case cudaDevAttrMultiProcessorCount: *value = properties.multiProcessorCount; return cudaSuccess;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            *value = properties.maxThreadsPerMultiProcessor;
            return cudaSuccess;
        case cudaDevAttrComputeCapabilityMajor: *value = properties.major; return cudaSuccess;
        case cudaDevAttrComputeCapabilityMinor: *value = properties.minor; return cudaSuccess;
        case cudaDevAttrConcurrentManagedAccess: *value = state().concurrent_managed ? 1 : 0; return cudaSuccess;
        case cudaDevAttrCooperativeLaunch: *value = state().cooperative ? 1 : 0; return cudaSuccess;
    }
    return keep(cudaErrorInvalidValue);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    const Guard guard;
    if (device < 0 || device >= visible_devices()) return keep(cudaErrorInvalidDevice);
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "%s", state().gpu_name.c_str());
    properties->totalGlobalMem = state().memory;
    properties->sharedMemPerBlock = std::size_t{48} << 10;
    properties->warpSize = lanes_per_warp;
    properties->maxThreadsPerBlock = 1024;
    properties->major = state().major;
    properties->minor = state().minor;
    properties->multiProcessorCount = state().multiprocessors;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->l2CacheSize = 1 << 20;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
    std::vector<std::shared_ptr<Stream>> streams;
    const int device = current;
    {
        const Guard guard;
        ++state().waits;
        if (const cudaError_t status = forbidden(); status != cudaSuccess) return keep(status);
        for (const auto& stream : state().streams) {
            if (stream->device == device) streams.push_back(stream);
        }
    }
    return keep(wait_until(device, [&] {
        return std::ranges::all_of(streams, [](const auto& stream) { return stream->done >= stream->queued; });
    }));
}

cudaError_t cudaGetLastError() {
    const Guard guard;
    const cudaError_t last = std::exchange(last_error, cudaSuccess);
    return last == cudaSuccess ? failed(current) : last;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) { return name_of(error); }
const char* cudaGetErrorString(cudaError_t error) {
    const Guard guard;
    if (error != cudaErrorLaunchFailure) return meaning_of(error);
    // Never freed: callers keep the pointers.
    auto& messages = state().messages;
    const std::string message = "unspecified launch failure: " + state().failure;
    if (messages.empty() || messages.back() != message) messages.push_back(message);
    return messages.back().c_str();
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
    const Guard guard;
    if (failed(current) != cudaSuccess) return keep(failed(current));
    if (const cudaError_t status = forbidden(); status != cudaSuccess) return keep(status);
    return keep(allocate(memory, bytes, Kind::device));
}
/// The memory has no place until it is brought to one.
cudaError_t cudaMallocManaged(void** memory, size_t bytes, unsigned flags) {
    const Guard guard;
    if (failed(current) != cudaSuccess) return keep(failed(current));
    if (const cudaError_t status = forbidden(); status != cudaSuccess) return keep(status);
    if (flags != cudaMemAttachGlobal || bytes == 0) return keep(cudaErrorInvalidValue);
    return keep(allocate(memory, bytes, Kind::managed));
}
namespace {
/// Null unless these bytes are managed memory, and the place is a device that has it together with others.
Allocation* managed(const void* memory, size_t bytes, cudaMemLocation location) {
    const Allocation* const found = find(memory, bytes);
    const bool known =
        location.type == cudaMemLocationTypeDevice && location.id >= 0 && location.id < visible_devices();
    if (found == nullptr || found->kind != Kind::managed || !known || !state().concurrent_managed) return nullptr;
    return &state().allocations.at(reinterpret_cast<std::uintptr_t>(found->begin));
}
}  // namespace
cudaError_t cudaMemAdvise(const void* memory, size_t bytes, cudaMemoryAdvise, cudaMemLocation location) {
    const Guard guard;
    return keep(managed(memory, bytes, location) == nullptr ? cudaErrorInvalidValue : cudaSuccess);
}
cudaError_t cudaMemPrefetchAsync(const void* memory, size_t bytes, cudaMemLocation location, unsigned flags,
                                 cudaStream_t) {
    const Guard guard;
    Allocation* const found = managed(memory, bytes, location);
    if (found == nullptr || flags != 0) return keep(cudaErrorInvalidValue);
    State& s = state();
    const auto end = static_cast<std::size_t>(static_cast<const std::byte*>(memory) - found->begin) + bytes;
    std::size_t& used = s.device[static_cast<std::size_t>(location.id)].used;
    // A GPU would move other pages out, and would move these again: the emulated ones do neither.
    if (end - bytes < found->brought_until) return keep(cudaErrorNotSupported);
    if (bytes > s.memory - std::min(s.memory, used)) return keep(cudaErrorMemoryAllocation);
    found->brought_until = end;
    found->brought[location.id] += bytes;
    used += bytes;
    return cudaSuccess;
}
cudaError_t cudaFree(void* memory) { return kept_unless_failed(release(memory, Kind::device), current); }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
    const Guard guard;
    if (failed(current) != cudaSuccess) return keep(failed(current));
    if (const cudaError_t status = forbidden(); status != cudaSuccess) return keep(status);
    return keep(allocate(memory, bytes, Kind::pinned));
}
cudaError_t cudaFreeHost(void* memory) { return kept_unless_failed(release(memory, Kind::pinned), current); }
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
    const Guard guard;
    if (memory == nullptr || bytes == 0) return keep(cudaErrorInvalidValue);
    if (find(memory) != nullptr) return keep(cudaErrorHostMemoryAlreadyRegistered);
    state().allocations[reinterpret_cast<std::uintptr_t>(memory)] = {static_cast<std::byte*>(memory), bytes,
                                                                     Kind::pinned, current, false};
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
    const Guard guard;
    const auto found = state().allocations.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == state().allocations.end() || found->second.guarded) return keep(cudaErrorHostMemoryNotRegistered);
    state().allocations.erase(found);
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
    const Guard guard;
    const Allocation* const found = find(memory);
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, const_cast<void*>(memory)};
    if (found == nullptr) return cudaSuccess;
    const cudaMemoryType types[] = {cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice,
                                    cudaMemoryTypeManaged};
    *attributes = {types[static_cast<int>(found->kind)], found->device, const_cast<void*>(memory),
                   found->kind == Kind::device ? nullptr : const_cast<void*>(memory)};
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    const Guard guard;
    need_context();
    *total = state().memory;
    *free = *total - std::min(*total, state().device[static_cast<std::size_t>(current)].used);
    return kept_unless_failed(cudaSuccess, current);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return keep(copy(to, from, bytes, kind, nullptr, true));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return keep(copy(to, from, bytes, kind, stream, false));
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
    {
        const Guard guard;
        if (const cudaError_t status = forbidden(); status != cudaSuccess) return keep(status);
    }
    return keep(fill(to, value, bytes, nullptr));
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
    return keep(fill(to, value, bytes, stream));
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return keep(make_stream(stream, cudaStreamDefault)); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) { return keep(make_stream(stream, flags)); }
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    const Guard guard;
    const std::shared_ptr<Stream> stream = handle == nullptr ? nullptr : find(handle);
    if (stream == nullptr) return keep(cudaErrorInvalidResourceHandle);
    if (stream->capture != nullptr) {
        invalidate(*stream->capture);
        return keep(cudaErrorStreamCaptureUnsupported);
    }
    stream->destroyed = true;  // its queued work still runs
    if (stream->list.empty()) std::erase(state().streams, stream);
    return kept_unless_failed(cudaSuccess, stream->device);
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    std::shared_ptr<Stream> stream;
    std::uint64_t number = 0;
    {
        const Guard guard;
        ++state().waits;
        stream = find(handle);
        if (stream == nullptr) return keep(cudaErrorInvalidResourceHandle);
        if (stream->capture != nullptr) {
            invalidate(*stream->capture);
            return keep(cudaErrorStreamCaptureUnsupported);
        }
        if (const cudaError_t status = forbidden(); status != cudaSuccess) return keep(status);
        number = stream->queued;
    }
    return keep(wait_until(stream->device, [&] { return stream->done >= number; }));
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
    const Guard guard;
    const std::shared_ptr<Stream> stream = find(handle);
    if (stream == nullptr) return keep(cudaErrorInvalidResourceHandle);
    if (stream->capture != nullptr) {
        invalidate(*stream->capture);
        return keep(cudaErrorStreamCaptureUnsupported);
    }
    if (const cudaError_t status = forbidden(); status != cudaSuccess) return keep(status);
    if (stream->done < stream->queued) run_some(state().pace);
    if (failed(stream->device) != cudaSuccess) return keep(failed(stream->device));
    return keep(stream->done < stream->queued ? cudaErrorNotReady : cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
    const Guard guard;
    const std::shared_ptr<Stream> stream = find(handle);
    if (stream == nullptr || !exists(event)) return keep(cudaErrorInvalidResourceHandle);
    if (failed(stream->device) != cudaSuccess) return keep(failed(stream->device));
    if (event->capture != nullptr && event->capture->active) {
        if (event->capture->invalid) return keep(cudaErrorStreamCaptureInvalidated);
        if (stream->capture == nullptr) {
            stream->capture = event->capture;
            stream->capture->streams.push_back(stream.get());
            stream->frontier.clear();
        } else if (stream->capture != event->capture) {
            invalidate(*stream->capture);
            return keep(cudaErrorStreamCaptureMerge);
        }
        for (const std::size_t node : event->captured) {
            if (std::ranges::find(stream->frontier, node) == stream->frontier.end()) stream->frontier.push_back(node);
        }
        return cudaSuccess;
    }
    if (event->capture != nullptr) return keep(cudaErrorCapturedEvent);
    if (stream->capture != nullptr) {
        if ((flags & cudaEventWaitExternal) != 0)
            return keep(add_node(*stream, cudaGraphNodeTypeWaitEvent, "a wait for an event", nullptr, event));
        invalidate(*stream->capture);
        return keep(cudaErrorStreamCaptureIsolation);
    }
    if (event->latest == nullptr) return cudaSuccess;
    push(stream, "a wait for an event", [record = event->latest] { return record->done ? Ran::all : Ran::not_yet; });
    return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
    const Guard guard;
    const std::shared_ptr<Stream> stream = find(handle);
    if (stream == nullptr) return keep(cudaErrorInvalidResourceHandle);
    *device = stream->device;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          size_t shared_bytes) {
    const Guard guard;
    if (blocks == nullptr || kernel == nullptr || threads < 1 || threads > 1024 || shared_bytes != 0)
        return keep(cudaErrorInvalidValue);
    if (!has_code()) return keep(cudaErrorNoKernelImageForDevice);
    *blocks = resident_blocks(threads);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    const Guard guard;
    if (event == nullptr) return keep(cudaErrorInvalidValue);
    if (failed(current) != cudaSuccess) return keep(failed(current));
    need_context();
    *event = new CUevent_st{.device = current, .flags = flags, .latest = nullptr, .capture = nullptr, .captured = {}};
    state().events.push_back(*event);
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const Guard guard;
    if (!exists(event)) return keep(cudaErrorInvalidResourceHandle);
    const int device = event->device;
    std::erase(state().events, event);
    delete event;
    return kept_unless_failed(cudaSuccess, device);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned flags) {
    const Guard guard;
    const std::shared_ptr<Stream> stream = find(handle);
    if (stream == nullptr || !exists(event) || event->device != stream->device)
        return keep(cudaErrorInvalidResourceHandle);
    if (failed(stream->device) != cudaSuccess) return keep(failed(stream->device));
    if (stream->capture != nullptr) {
        if ((flags & cudaEventRecordExternal) != 0) {
            event->capture = nullptr;
            return keep(add_node(*stream, cudaGraphNodeTypeEventRecord, "the record of an event", nullptr, event));
        }
        if (stream->capture->invalid) return keep(cudaErrorStreamCaptureInvalidated);
        event->capture = stream->capture;
        event->captured = stream->frontier;
        event->latest = nullptr;
        return cudaSuccess;
    }
    event->capture = nullptr;
    event->latest = std::make_shared<Record>();
    push(stream, "the record of an event", [made = event->latest] {
        record(*made);
        return Ran::all;
    });
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    const Guard guard;
    if (!exists(event)) return keep(cudaErrorInvalidResourceHandle);
    if (const cudaError_t status = forbidden(); status != cudaSuccess) return keep(status);
    if (event->capture != nullptr) return keep(cudaErrorCapturedEvent);
    if (failed(event->device) != cudaSuccess) return keep(failed(event->device));
    if (event->latest == nullptr || event->latest->done) return cudaSuccess;
    run_some(state().pace);
    if (failed(event->device) != cudaSuccess) return keep(failed(event->device));
    return keep(event->latest->done ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    std::shared_ptr<Record> record;
    int device = 0;
    {
        const Guard guard;
        ++state().waits;
        if (!exists(event)) return keep(cudaErrorInvalidResourceHandle);
        if (const cudaError_t status = forbidden(); status != cudaSuccess) return keep(status);
        if (event->capture != nullptr) return keep(cudaErrorCapturedEvent);
        record = event->latest;
        device = event->device;
    }
    if (record == nullptr) return cudaSuccess;
    return keep(wait_until(device, [&] { return record->done; }));
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    const Guard guard;
    if (!exists(start) || !exists(end)) return keep(cudaErrorInvalidResourceHandle);
    if (start->latest == nullptr || end->latest == nullptr ||
        ((start->flags | end->flags) & cudaEventDisableTiming) != 0)
        return keep(cudaErrorInvalidResourceHandle);
    if (!start->latest->done || !end->latest->done) return keep(cudaErrorNotReady);
    *milliseconds = static_cast<float>((end->latest->seconds - start->latest->seconds) * 1e3);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    const Guard guard;
    const std::shared_ptr<Stream> stream = handle == nullptr ? nullptr : find(handle);
    if (stream == nullptr)
        return keep(handle == nullptr ? cudaErrorStreamCaptureUnsupported : cudaErrorInvalidResourceHandle);
    if (failed(stream->device) != cudaSuccess) return keep(failed(stream->device));
    if (stream->capture != nullptr) return keep(cudaErrorIllegalState);
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream.get();
    capture->streams = {stream.get()};
    stream->capture = capture;
    stream->frontier.clear();
    state().captures.push_back(std::move(capture));
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
    const Guard guard;
    *graph = nullptr;
    const std::shared_ptr<Stream> stream = find(handle);
    if (stream == nullptr) return keep(cudaErrorInvalidResourceHandle);
    const std::shared_ptr<Capture> capture = stream->capture;
    if (capture == nullptr) return keep(cudaErrorIllegalState);
    if (capture->origin != stream.get()) return keep(cudaErrorStreamCaptureUnmatched);
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
        return keep(cudaErrorStreamCaptureWrongThread);
    // All work of the other streams must have been joined to this one.
    std::vector<bool> before(capture->nodes.size(), false);
    for (const std::size_t node : stream->frontier) before[node] = true;
    for (std::size_t i = before.size(); i-- > 0;) {
        if (!before[i]) continue;
        for (const std::size_t node : capture->nodes[i].after) before[node] = true;
    }
    const bool joined = std::ranges::all_of(before, [](bool yes) { return yes; });
    capture->active = false;
    for (Stream* const member : capture->streams) {
        member->capture = nullptr;
        member->frontier.clear();
    }
    std::erase(state().captures, capture);
    if (capture->invalid) return keep(cudaErrorStreamCaptureInvalidated);
    if (!joined) return keep(cudaErrorStreamCaptureUnjoined);
    *graph = new CUgraph_st;
    *(*graph)->nodes = std::move(capture->nodes);
    ++state().captured;
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
    const Guard guard;
    const std::shared_ptr<Stream> stream = find(handle);
    if (stream == nullptr) return keep(cudaErrorInvalidResourceHandle);
    *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
              : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}
/// Two calls of libraries that may run at the same time with scratch memory in common; empty if there are none.
static std::string shared_workspace(const std::vector<CUgraphNode_st>& nodes) {
    // A node comes after those that it depends on.
    std::vector<std::vector<bool>> before(nodes.size(), std::vector<bool>(nodes.size(), false));
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        for (const std::size_t j : nodes[i].after) {
            before[i][j] = true;
            for (std::size_t k = 0; k < j; ++k) before[i][k] = before[i][k] || before[j][k];
        }
        for (std::size_t j = 0; j < i; ++j) {
            const Node &a = nodes[i], &b = nodes[j];
            if (!before[i][j] && a.workspace < b.workspace + b.workspace_bytes &&
                b.workspace < a.workspace + a.workspace_bytes)
                return a.name + " and " + b.name + " have scratch memory in common, and no order";
        }
    }
    return {};
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    const Guard guard;
    if (exec == nullptr || graph == nullptr) return keep(cudaErrorInvalidValue);
    if (const std::string what = shared_workspace(*graph->nodes); !what.empty()) fail(current, what);
    *exec = new CUgraphExec_st;
    (*exec)->nodes = (*exec)->origin = graph->nodes;
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    const Guard guard;
    if (exec == nullptr) return keep(cudaErrorInvalidValue);
    return keep(find(stream) == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
    const Guard guard;
    if (exec == nullptr) return keep(cudaErrorInvalidValue);
    const std::shared_ptr<Stream> stream = find(handle);
    if (stream == nullptr) return keep(cudaErrorInvalidResourceHandle);
    if (failed(stream->device) != cudaSuccess) return keep(failed(stream->device));
    if (stream->capture != nullptr) {
        invalidate(*stream->capture);
        return keep(cudaErrorStreamCaptureUnsupported);
    }
    ++state().launches;
    const std::shared_ptr<bool> before = std::exchange(exec->done, std::make_shared<bool>(false));
    push(stream, "a graph",
         [running = std::make_shared<Running>(exec->nodes, before, exec->done)] { return running->run(); });
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    const Guard guard;
    if (graph == nullptr) return keep(cudaErrorInvalidValue);
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    const Guard guard;
    if (exec == nullptr) return keep(cudaErrorInvalidValue);
    delete exec;
    return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    const Guard guard;
    if (graph == nullptr || count == nullptr) return keep(cudaErrorInvalidValue);
    if (nodes == nullptr) {
        *count = graph->nodes->size();
        return cudaSuccess;
    }
    *count = std::min(*count, graph->nodes->size());
    for (std::size_t i = 0; i < *count; ++i) nodes[i] = &(*graph->nodes)[i];
    return cudaSuccess;
}
cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    const Guard guard;
    if (graph == nullptr || count == nullptr) return keep(cudaErrorInvalidValue);
    std::size_t found = 0;
    for (CUgraphNode_st& node : *graph->nodes) {
        if (!node.after.empty()) continue;
        if (nodes != nullptr && found < *count) nodes[found] = &node;
        ++found;
    }
    *count = nodes == nullptr ? found : std::min(*count, found);
    return cudaSuccess;
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* parameters) {
    const Guard guard;
    if (exec == nullptr || node == nullptr || parameters == nullptr || parameters->kernelParams == nullptr)
        return keep(cudaErrorInvalidValue);
    const auto known = state().signatures.find(parameters->func);
    const auto place = std::ranges::find_if(*exec->origin, [&](const CUgraphNode_st& each) { return &each == node; });
    if (place == exec->origin->end() || known == state().signatures.end() || place->kernel == nullptr)
        return keep(cudaErrorInvalidValue);
    // Launches that are queued keep the nodes that they were queued with.
    auto nodes = std::make_shared<std::vector<CUgraphNode_st>>(*exec->nodes);
    CUgraphNode_st& replaced = (*nodes)[static_cast<std::size_t>(place - exec->origin->begin())];
    replaced.kernel = parameters->func;
    replaced.run =
        recorded_run(kernel_run(parameters->func, parameters->gridDim, parameters->blockDim,
                                call_of(parameters->func, known->second, parameters->kernelParams), false, false),
                     "a kernel", parameters->func, {});
    exec->nodes = std::move(nodes);
    return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
    if (node == nullptr) return keep(cudaErrorInvalidValue);
    *type = node->type;
    return cudaSuccess;
}

}  // extern "C"
