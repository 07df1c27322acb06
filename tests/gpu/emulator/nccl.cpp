// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for NCCL: ranks in threads of one process or in several processes of this machine, all-reduce over the
// emulated streams. The ranks share a file, which all of them map and whose name is the id of the communicator:
//
//   - each call of a collective is recorded there and compared with those of the other ranks: a difference, with which NCCL
//     would hang or add unrelated values, is an error with a message;
//   - the stream of a rank copies its elements there; when all ranks have done so, each stream adds all of them, in the
//     order of the ranks. The collectives of a rank run in the order of their calls, on any stream.
//
// Only non-blocking communicators are supported: Cupola uses no others. Each group of calls, and each call outside a group, costs the
// host 50 us, because NCCL starts a thread for it: they are counted, and the first collective of a group takes its stream at least as long.
#include <atomic>
#include <csignal>
#include <filesystem>
#include <mutex>

#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../standard.hpp"
#include "nccl_behavior.hpp"
#include "numbers.hpp"
#include "stream.hpp"

namespace cupola::emulator { namespace {

constexpr int max_ranks = 16;
constexpr std::size_t max_elements = std::size_t{1} << 23;  // of one collective; unused parts of the file are holes
constexpr std::uint64_t noted_calls = 256;                  // no rank is this far ahead of another
constexpr double seconds_per_group = 50e-6;                 // of the host

template <class... Parts>
std::string joined(const Parts&... parts) {
    std::string result;
    const auto add = [&](const auto& part) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>)
            result += std::to_string(part);
        else
            result += part;
    };
    (add(parts), ...);
    return result;
}

/// The operation of an all-gather, among those of all-reduces.
constexpr std::int32_t all_gather = -1;

/// The arguments with which a rank called a collective.
struct Signature {
    std::uint64_t count;
    std::int32_t type, operation;
    char buffer[48];

    [[nodiscard]] bool operator==(const Signature& other) const {
        return count == other.count && type == other.type && operation == other.operation &&
               std::strcmp(buffer, other.buffer) == 0;
    }
    [[nodiscard]] bool gathers() const { return operation == all_gather; }
    [[nodiscard]] std::size_t bytes() const {
        return count * (gathers() ? 1 : type == ncclBfloat16 ? sizeof(std::uint16_t) : sizeof(float));
    }
    [[nodiscard]] std::string said() const {
        return joined(gathers() ? "an all-gather of " : "an all-reduce of ", count,
                      count == 1 ? " element" : " elements", " of type ", type,
                      *buffer != '\0' ? joined(" from ", std::string(buffer)) : std::string());
    }
};

/// The shared state of a rank, initially all zeros.
struct alignas(128) SharedRank {
    std::atomic<std::int32_t> taken, started, finalized, aborted;
    std::atomic<std::int32_t> dead;  // 1 silently, 2 noticed
    std::atomic<std::uint64_t> called, staged;
    Signature calls[noted_calls];
};
struct Shared {
    std::atomic<std::int32_t> ranks;
    std::atomic<std::int32_t> misused;  // 1 while the message is written, 2 when it is there
    char misuse[512];
    SharedRank rank[max_ranks];

    /// Two buffers are used in turn: a rank begins collective n + 2 only when all ranks have begun n + 1, and so have
    /// completed n.
    [[nodiscard]] float* staging(int of, std::uint64_t number) {
        const auto place = static_cast<std::size_t>(2 * of) + number % 2;
        return reinterpret_cast<float*>(reinterpret_cast<std::byte*>(this) + staging_begin) + place * max_elements;
    }
    static constexpr std::size_t staging_begin = (std::size_t{1} << 20);
    [[nodiscard]] static std::size_t bytes(int ranks) {
        return staging_begin + sizeof(float) * 2 * static_cast<std::size_t>(ranks) * max_elements;
    }
};
static_assert(sizeof(Shared) <= Shared::staging_begin);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a lock would be of one process alone");

struct Settings {
    std::mutex lock;
    NcclBehavior behavior;
    std::uint64_t generation = 0;
    NcclCallCounts counts;
    std::string misuse;
    std::vector<std::string> ids;
    std::vector<std::shared_ptr<ncclComm>> communicators;
    std::atomic<int> hanging = 0;

    ~Settings() = delete;  // streams may still run while the process ends
};
Settings& settings() {
    static Settings* const made = [] {
        std::atexit([] {
            for (const std::string& id : settings().ids) unlink(id.c_str());
        });
        return new Settings;
    }();
    return *made;
}
NcclBehavior behavior() {
    const std::lock_guard guard(settings().lock);
    return settings().behavior;
}
void count(int NcclCallCounts::*kind) {
    const std::lock_guard guard(settings().lock);
    ++(settings().counts.*kind);
}

}  // namespace

}  // namespace cupola::emulator

/// The communicator of one rank.
struct ncclComm : std::enable_shared_from_this<ncclComm> {
    std::string id, name;  // `name` stays after the file was removed
    int ranks = 0, rank = 0, device = 0;
    cupola::emulator::Shared* shared = nullptr;
    std::atomic<bool> in_call = false;
    std::string last_error;
    // The call that is in progress, the number of queries after which it takes effect, and what it waits for after them.
    std::function<void()> pending;
    std::function<bool()> may_end;
    int answers = 0;
    bool finalizing = false;
    // Held while work of the communicator runs, and while it is ended.
    std::mutex working;
    std::atomic<bool> ended = false, shrunk = false;
    std::uint64_t done = 0;

    ~ncclComm() {
        if (shared != nullptr) munmap(shared, cupola::emulator::Shared::bytes(ranks));
    }
    [[nodiscard]] cupola::emulator::SharedRank& mine() { return shared->rank[rank]; }
};

namespace cupola::emulator {

namespace {

/// Records the message of a wrong call for the test and for ncclGetLastError, and with `for_all` for the other ranks.
ncclResult_t misuse(ncclComm* comm, ncclResult_t result, const std::string& what, bool for_all = false) {
    const std::string message = comm == nullptr ? what : joined("rank ", comm->rank, ": ", what);
    {
        const std::lock_guard guard(settings().lock);
        if (settings().misuse.empty()) settings().misuse = message;
    }
    if (comm != nullptr) {
        comm->last_error = message;
        std::int32_t none = 0;
        if (for_all && comm->shared->misused.compare_exchange_strong(none, 1)) {
            std::strncpy(comm->shared->misuse, message.c_str(), sizeof comm->shared->misuse - 1);
            comm->shared->misused = 2;
        }
    }
    return result;
}

/// During its lifetime, a call of NCCL with this communicator by another thread is an error.
class OneCaller {
public:
    explicit OneCaller(ncclComm* comm) : comm_(comm), alone_(!comm->in_call.exchange(true)) {}
    OneCaller(const OneCaller&) = delete;
    OneCaller& operator=(const OneCaller&) = delete;
    ~OneCaller() {
        if (alone_) comm_->in_call = false;
    }
    [[nodiscard]] bool alone() const { return alone_; }

private:
    ncclComm* comm_;
    bool alone_;
};

/// The communicators of this process are never freed, so the use of an ended one is detected.
bool usable(ncclComm* comm, const char* call, ncclResult_t& result) {
    bool known = false;
    {
        const std::lock_guard guard(settings().lock);
        for (const auto& each : settings().communicators) known = known || each.get() == comm;
    }
    if (!known) {
        result = misuse(nullptr, ncclInvalidArgument, joined(call, " was called with what is no communicator"));
        return false;
    }
    if (comm->ended)
        result = misuse(comm, ncclInvalidArgument, joined(call, " was called after the communicator's end"));
    return !comm->ended;
}

bool all(ncclComm& comm, std::atomic<std::int32_t> SharedRank::*flag) {
    for (int rank = 0; rank < comm.ranks; ++rank) {
        if (comm.shared->rank[rank].*flag == 0) return false;
    }
    return true;
}

/// Executes the pending call if it is due, and returns the result of ncclCommGetAsyncError.
ncclResult_t state_of(ncclComm& comm) {
    if (comm.shared->misused == 2) {
        comm.last_error = comm.shared->misuse;
        return ncclInvalidUsage;
    }
    for (int rank = 0; rank < comm.ranks; ++rank) {
        if (rank == comm.rank || comm.shared->rank[rank].dead != 2) continue;
        comm.last_error = joined("rank ", rank, " has closed its connections");
        return ncclRemoteError;
    }
    if (comm.pending) {
        if (comm.answers == NcclBehavior::for_ever) return ncclInProgress;
        if (comm.answers > 0) {
            --comm.answers;
            return ncclInProgress;
        }
        if (comm.may_end && !comm.may_end()) return ncclInProgress;
        comm.may_end = nullptr;
        std::exchange(comm.pending, nullptr)();
        return state_of(comm);
    }
    if (!all(comm, &SharedRank::started)) return ncclInProgress;
    if (!comm.id.empty()) unlink(std::exchange(comm.id, {}).c_str());
    if (comm.finalizing) {
        if (!all(comm, &SharedRank::finalized)) return ncclInProgress;
        for (int rank = 0; rank < comm.ranks; ++rank) {
            const std::uint64_t theirs = comm.shared->rank[rank].called, ours = comm.mine().called;
            if (theirs == ours) continue;
            misuse(&comm, ncclInvalidUsage,
                   joined(ours, " collectives were called until the end, and ", theirs, " by rank ", rank), true);
            return ncclInvalidUsage;
        }
        const std::lock_guard guard(comm.working);
        if (comm.done < comm.mine().called) return ncclInProgress;
    }
    return ncclSuccess;
}

/// A call with a communicator, and what it waits for before it takes effect. `effect` is given the time that its group costs the host, or 0
/// for all but the first call of the group.
struct Call {
    std::function<void(double of_host)> effect;
    std::function<bool()> may_end{};
};

/// The calls of a group, which take effect at its end.
struct Group {
    int depth = 0, called = 0;
    std::vector<std::pair<ncclComm*, Call>> calls;
    std::vector<ncclComm*> starts, aborts;
};
thread_local Group group;

/// A call of a communicator, which may be the one in whose middle the process dies.
void called_in_group() {
    if (group.depth > 0 && ++group.called == behavior().dies_in_group_at) std::raise(SIGKILL);
}

/// Launches the calls of a group, those of each communicator together.
ncclResult_t launch(std::vector<std::pair<ncclComm*, Call>> calls) {
    if (calls.empty()) return ncclSuccess;
    {
        const std::lock_guard guard(settings().lock);
        ++settings().counts.groups;
        settings().counts.host_seconds += seconds_per_group;
    }
    double of_host = seconds_per_group;
    ncclResult_t result = ncclSuccess;
    for (std::size_t i = 0; i < calls.size(); ++i) {
        ncclComm* const comm = calls[i].first;
        if (comm == nullptr) continue;
        std::vector<std::function<void()>> effects;
        std::function<bool()> may_end;
        for (std::size_t k = i; k < calls.size(); ++k) {
            if (calls[k].first != comm) continue;
            calls[k].first = nullptr;
            effects.push_back([effect = std::move(calls[k].second.effect), seconds = std::exchange(of_host, 0.0)] {
                effect(seconds);
            });
            if (calls[k].second.may_end) may_end = std::move(calls[k].second.may_end);
        }
        comm->answers = behavior().in_progress;
        if (comm->answers == 0 && may_end) comm->answers = 1;
        const auto run = [effects = std::move(effects)] {
            for (const auto& effect : effects) effect();
        };
        if (comm->answers == 0) {
            run();
            continue;
        }
        comm->pending = run;
        comm->may_end = std::move(may_end);
        result = ncclInProgress;
    }
    return result;
}

ncclResult_t launch_or_group(ncclComm* comm, Call call) {
    std::vector<std::pair<ncclComm*, Call>> alone;
    (group.depth == 0 ? alone : group.calls).emplace_back(comm, std::move(call));
    return launch(std::move(alone));
}

/// Whether a call is allowed: the one before must no longer be in progress.
bool may_call(ncclComm* comm, const char* call, ncclResult_t& result) {
    if (!usable(comm, call, result)) return false;
    const ncclResult_t state = comm->pending ? ncclInProgress : state_of(*comm);
    if (state == ncclInProgress)
        result = misuse(comm, ncclInvalidArgument, joined(call, " was called before NCCL had settled the last call"));
    else
        result = state;
    return result == ncclSuccess;
}

/// Copies the staged bytes of all ranks.
void copy_staged(ncclComm& comm, const Signature& call, std::uint64_t number, std::byte* to) {
    for (int rank = 0; rank < comm.ranks; ++rank)
        std::memcpy(to + static_cast<std::size_t>(rank) * call.bytes(), comm.shared->staging(rank, number),
                    call.bytes());
}

/// Adds the staged elements of all ranks.
void sum_staged(ncclComm& comm, const Signature& call, std::uint64_t number, float* to, bool ring_order) {
    const auto ranks = static_cast<std::size_t>(comm.ranks);
    if (call.type == ncclBfloat16) {
        // Rounded after each addition.
        for (std::size_t i = 0; i < call.count; ++i) {
            const std::size_t first = ring_order ? i * ranks / call.count : 0;
            const auto at = [&](std::size_t k) {
                const float* const staged = comm.shared->staging(static_cast<int>((first + k) % ranks), number);
                return load(staged, ElementKind::bfloat16, static_cast<std::int64_t>(i));
            };
            std::uint16_t sum = 0;
            store(&sum, ElementKind::bfloat16, 0, at(0));
            for (std::size_t k = 1; k < ranks; ++k)
                store(&sum, ElementKind::bfloat16, 0, load(&sum, ElementKind::bfloat16, 0) + at(k));
            std::atomic_ref<std::uint16_t>(reinterpret_cast<std::uint16_t*>(to)[i])
                .store(sum, std::memory_order_relaxed);
        }
        return;
    }
    std::vector<const float*> from;
    for (int rank = 0; rank < comm.ranks; ++rank) from.push_back(comm.shared->staging(rank, number));
    for (std::size_t i = 0; i < call.count; ++i) {
        const std::size_t first = ring_order ? i * ranks / call.count : 0;
        float sum = from[first][i];
        for (std::size_t k = 1; k < ranks; ++k) sum += from[(first + k) % ranks][i];
        // Atomic, because a test may read `to` at the same time.
        std::atomic_ref<float>(to[i]).store(sum, std::memory_order_relaxed);
    }
}

/// The part of one rank in a collective; its stream repeats the call until all ranks have arrived.
bool try_collective(ncclComm& comm, const Signature& call, std::uint64_t number, const void* from, void* to,
                    int& vain_tries, bool ring_order) {
    const std::lock_guard guard(comm.working);
    if (comm.ended || comm.shrunk) return true;  // aborted: `to` contains no sum
    if (comm.mine().dead != 0 || comm.done < number) return false;
    if (comm.done > number) {
        misuse(&comm, ncclInvalidUsage, joined("collective ", number, " was done twice: it was captured in a graph"),
               true);
        return true;
    }
    if (comm.mine().staged == number) {
        std::memcpy(comm.shared->staging(comm.rank, number), from, call.bytes());
        comm.mine().staged = number + 1;
    }
    for (int rank = 0; rank < comm.ranks; ++rank) {
        if (comm.shared->rank[rank].staged <= number) return false;
    }
    if (comm.shared->misused != 0) return false;
    if (vain_tries-- > 0) return false;
    if (call.gathers())
        copy_staged(comm, call, number, static_cast<std::byte*>(to));
    else
        sum_staged(comm, call, number, static_cast<float*>(to), ring_order);
    ++comm.done;
    return true;
}

/// Records a call of a collective and compares it with the calls of that number by the other ranks.
bool same_for_all(ncclComm& comm, const Signature& call, std::uint64_t number) {
    comm.mine().calls[number % noted_calls] = call;
    comm.mine().called = number + 1;
    for (int rank = 0; rank < comm.ranks; ++rank) {
        const SharedRank& other = comm.shared->rank[rank];
        const std::uint64_t called = other.called;
        if (called <= number || called > number + noted_calls / 2) continue;
        const Signature& theirs = other.calls[number % noted_calls];
        if (theirs == call) continue;
        misuse(&comm, ncclInvalidUsage,
               joined("collective ", number, " is ", call.said(), ", and that of rank ", rank, " is ", theirs.said()),
               true);
        return false;
    }
    return true;
}

void end(ncclComm& comm) {
    const std::lock_guard guard(comm.working);
    comm.ended = true;
    comm.pending = nullptr;
    comm.may_end = nullptr;
    comm.mine().aborted = 1;
}

/// Ends communicators in any state; returns as the behavior specifies.
void abort_all(const std::vector<ncclComm*>& comms) {
    NcclAbort how;
    double seconds = 0;
    std::uint64_t generation;
    {
        const std::lock_guard guard(settings().lock);
        how = settings().behavior.abort;
        seconds = settings().behavior.abort_seconds;
        generation = settings().generation;
    }
    const auto released = [&] {
        const std::lock_guard guard(settings().lock);
        return settings().generation != generation;
    };
    const auto others_gone = [&](ncclComm& comm) {
        for (int rank = 0; rank < comm.ranks; ++rank) {
            const SharedRank& other = comm.shared->rank[rank];
            if (other.started != 0 && other.aborted == 0 && other.dead == 0 && other.finalized == 0) return false;
        }
        return true;
    };
    ++settings().hanging;
    if (how == NcclAbort::hangs) {
        while (!released()) usleep(200);
    }
    if (how == NcclAbort::slow) usleep(static_cast<useconds_t>(seconds * 1e6));
    for (ncclComm* comm : comms) end(*comm);
    if (how == NcclAbort::waits_for_all_ranks) {
        for (ncclComm* comm : comms) {
            while (!others_gone(*comm) && !released()) usleep(200);
        }
    }
    --settings().hanging;
}

Shared* mapped(const std::string& path, int ranks) {
    const std::size_t bytes = Shared::bytes(ranks);
    const int handle = open(path.c_str(), O_RDWR | O_CLOEXEC);
    // The process that created the id has ended: no other rank will be found.
    const bool alone = handle < 0;
    if (!alone && ftruncate(handle, static_cast<off_t>(bytes)) != 0) return close(handle), nullptr;
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              (alone ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED) | MAP_NORESERVE, handle, 0);
    if (!alone) close(handle);
    return memory == MAP_FAILED ? nullptr : static_cast<Shared*>(memory);
}

}  // namespace

NcclBehaves::NcclBehaves(NcclBehavior behavior) {
    const std::lock_guard guard(settings().lock);
    settings().behavior = std::move(behavior);
    ++settings().generation;
}
NcclBehaves::~NcclBehaves() {
    {
        const std::lock_guard guard(settings().lock);
        settings().behavior = {};
        ++settings().generation;
    }
    while (settings().hanging > 0) usleep(200);
}

void nccl_rank_dies(int rank, NcclDeath death) {
    const std::lock_guard guard(settings().lock);
    for (const auto& comm : settings().communicators) {
        if (comm->rank == rank && !comm->ended) comm->mine().dead = death == NcclDeath::noticed ? 2 : 1;
    }
}
int nccl_aborts_that_hang() { return settings().hanging; }
int nccl_open_communicators() {
    const std::lock_guard guard(settings().lock);
    int open = 0;
    for (const auto& comm : settings().communicators) {
        open += comm->ended ? 0 : 1;
    }
    return open;
}
NcclCallCounts nccl_call_counts() {
    const std::lock_guard guard(settings().lock);
    return settings().counts;
}
std::string take_nccl_misuse() {
    const std::lock_guard guard(settings().lock);
    return std::exchange(settings().misuse, {});
}

}  // namespace cupola::emulator

extern "C" {

using namespace cupola::emulator;

ncclResult_t ncclGetVersion(int* version) {
    if (version == nullptr) return misuse(nullptr, ncclInvalidArgument, "ncclGetVersion without a place for it");
    const int of_library = behavior().version;
    *version = of_library == 0 ? NCCL_VERSION_CODE : of_library;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    count(&NcclCallCounts::unique_ids);
    *id = {};
    const std::string path = (std::filesystem::temp_directory_path() / joined("nccl-", getpid(), "-XXXXXX")).string();
    if (path.size() >= sizeof id->internal) return misuse(nullptr, ncclSystemError, joined(path, " is too long"));
    std::memcpy(id->internal, path.c_str(), path.size());
    const int handle = mkstemp(id->internal);
    if (handle < 0) return misuse(nullptr, ncclSystemError, joined(path, " cannot be made"));
    close(handle);
    const std::lock_guard guard(settings().lock);
    settings().ids.emplace_back(id->internal);
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess: return "no error";
        case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
        case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
        case ncclInternalError: return "internal error";
        case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
        case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
        case ncclRemoteError: return "remote process exited or there was a network error";
        case ncclInProgress: return "NCCL operation in progress";
    }
    return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) { return comm == nullptr ? "" : comm->last_error.c_str(); }

ncclResult_t ncclGroupStart() { return ++group.depth, ncclSuccess; }

ncclResult_t ncclGroupEnd() {
    if (group.depth == 0) return misuse(nullptr, ncclInvalidUsage, "ncclGroupEnd was called outside a group");
    if (--group.depth > 0) return ncclSuccess;
    group.called = 0;
    for (ncclComm* comm : std::exchange(group.starts, {})) comm->mine().started = 1;
    const ncclResult_t result = launch(std::exchange(group.calls, {}));
    if (const std::vector<ncclComm*> aborts = std::exchange(group.aborts, {}); !aborts.empty()) abort_all(aborts);
    return result;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    count(&NcclCallCounts::inits);
    // A communicator that is made of an id is there at once, and in progress; one that cannot be made is null.
    if (made != nullptr) *made = nullptr;
    if (made == nullptr || ranks < 1 || ranks > max_ranks || rank < 0 || rank >= ranks)
        return misuse(nullptr, ncclInvalidArgument, joined("rank ", rank, " of ", ranks, " ranks"));
    if (config == nullptr || config->magic != 0xcafebeef || config->size != sizeof *config || config->blocking != 0)
        return misuse(nullptr, ncclInvalidArgument, "a communicator that is not configured as non-blocking");
    id.internal[sizeof id.internal - 1] = '\0';
    const auto comm = std::make_shared<ncclComm>();
    comm->id = comm->name = id.internal;
    comm->ranks = ranks;
    comm->rank = rank;
    comm->device = current_device();
    comm->shared = mapped(comm->id, ranks);
    if (comm->shared == nullptr) return misuse(nullptr, ncclSystemError, joined(comm->id, " cannot be mapped"));
    {
        const std::lock_guard guard(settings().lock);
        for (const auto& other : settings().communicators) {
            if (other->ended || other->id != comm->id || other->device != comm->device) continue;
            settings().misuse = joined("ranks ", other->rank, " and ", rank, " are on the same device ", comm->device);
            return ncclInvalidUsage;
        }
        settings().communicators.push_back(comm);
    }
    called_in_group();
    *made = comm.get();
    std::int32_t none = 0;
    if (!comm->shared->ranks.compare_exchange_strong(none, ranks) && none != ranks)
        return misuse(comm.get(), ncclInvalidUsage, joined("of ", ranks, " ranks, where another said ", none), true);
    if (comm->mine().taken.exchange(1) != 0)
        return misuse(comm.get(), ncclInvalidUsage, "another has started as this rank", true);
    // Connected to the others at the group's end.
    if (group.depth > 0)
        group.starts.push_back(comm.get());
    else
        comm->mine().started = 1;
    return launch_or_group(comm.get(), {[](double) {}});
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
    ncclResult_t result = ncclSuccess;
    if (!usable(comm, "ncclCommGetAsyncError", result)) return result;
    const OneCaller caller(comm);
    if (!caller.alone()) return misuse(comm, ncclInvalidUsage, "two threads call NCCL at once", true);
    *state = state_of(*comm);
    return ncclSuccess;
}

namespace {

/// A call of `name` with these arguments.
ncclResult_t call_collective(const char* name, const void* from, void* to, size_t elements, ncclDataType_t type,
                             std::int32_t operation, ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = ncclSuccess;
    if (!usable(comm, name, result)) return result;
    const OneCaller caller(comm);
    if (!caller.alone()) return misuse(comm, ncclInvalidUsage, "two threads call NCCL at once", true);
    if (!may_call(comm, name, result)) return result;
    const bool gathers = operation == all_gather;
    const bool known =
        gathers ? type == ncclInt8 : operation == ncclSum && (type == ncclFloat32 || type == ncclBfloat16);
    if (!known || elements > max_elements || (elements > 0 && (from == nullptr || to == nullptr)))
        return misuse(comm, ncclInvalidArgument,
                      joined("this stand-in adds at most ", max_elements,
                             " floats, or as many of bfloat16, and gathers as many bytes"));
    if (comm->finalizing)
        return misuse(comm, ncclInvalidUsage, joined(name, " was called after ncclCommFinalize"), true);
    int device = -1;
    if (cudaStreamGetDevice(stream, &device) != cudaSuccess || device != comm->device)
        return misuse(comm, ncclInvalidUsage,
                      joined("a stream of device ", device, ", and the communicator's device is ", comm->device), true);
    const NcclBehavior how = behavior();
    Signature call{.count = elements, .type = type, .operation = operation, .buffer = {}};
    if (how.name_of_buffer) std::strncpy(call.buffer, how.name_of_buffer(to).c_str(), sizeof call.buffer - 1);
    const std::uint64_t number = comm->mine().called;
    if (!same_for_all(*comm, call, number)) return ncclInvalidUsage;
    const auto put_on_stream = [keep = comm->shared_from_this(), how, call, number, from, to, stream](double of_host) {
        enqueue(
            stream,
            [keep, call, number, from, to, vain_tries = how.vain_tries, ring_order = how.ring_order,
             seconds = queued_seconds(stream, 0, of_host)]() mutable {
                if (!try_collective(*keep, call, number, from, to, vain_tries, ring_order)) return false;
                if (seconds > 0) take_seconds(seconds);
                return true;
            },
            joined(call.gathers() ? "all-gather " : "all-reduce ", number, " of rank ", keep->rank));
    };
    return launch_or_group(comm, {.effect = put_on_stream});
}

}  // namespace

ncclResult_t ncclAllReduce(const void* from, void* to, size_t elements, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
    count(&NcclCallCounts::all_reduces);
    return call_collective("ncclAllReduce", from, to, elements, type, operation, comm, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t elements, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return call_collective("ncclAllGather", from, to, elements, type, all_gather, comm, stream);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    count(&NcclCallCounts::finalizes);
    ncclResult_t result = ncclSuccess;
    if (!usable(comm, "ncclCommFinalize", result)) return result;
    const OneCaller caller(comm);
    if (!caller.alone()) return misuse(comm, ncclInvalidUsage, "two threads call NCCL at once", true);
    if (!may_call(comm, "ncclCommFinalize", result)) return result;
    if (std::exchange(comm->finalizing, true))
        return misuse(comm, ncclInvalidUsage, "ncclCommFinalize was called twice", true);
    comm->mine().finalized = 1;
    static_cast<void>(launch_or_group(comm, {[](double) {}}));
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    count(&NcclCallCounts::destroys);
    ncclResult_t result = ncclSuccess;
    if (!usable(comm, "ncclCommDestroy", result)) return result;
    if (!comm->finalizing || state_of(*comm) != ncclSuccess)
        result = misuse(comm, ncclInvalidUsage, "ncclCommDestroy was called before ncclCommFinalize was settled");
    end(*comm);
    return result;
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count_excluded, ncclComm_t* made, ncclConfig_t* config,
                            int flags) {
    count(&NcclCallCounts::shrinks);
    ncclResult_t result = ncclSuccess;
    if (!usable(comm, "ncclCommShrink", result)) return result;
    const OneCaller caller(comm);
    if (!caller.alone()) return misuse(comm, ncclInvalidUsage, "two threads call NCCL at once", true);
    // Also with NCCL_SHRINK_ABORT: the flag of the abort is cleared before NCCL looks at the state.
    if (!may_call(comm, "ncclCommShrink", result)) return result;
    if (made == nullptr || flags != NCCL_SHRINK_ABORT || config == nullptr || config->blocking != 0 ||
        count_excluded < 1)
        return misuse(comm, ncclInvalidArgument,
                      "ncclCommShrink of a communicator that failed, non-blocking, excludes ranks");
    const auto shrunk = std::make_shared<ncclComm>();
    shrunk->name = comm->name + "-without";
    shrunk->ranks = comm->ranks - count_excluded;
    shrunk->rank = comm->rank;
    shrunk->device = comm->device;
    for (int i = 0; i < count_excluded; ++i) {
        if (excluded[i] == comm->rank) return misuse(comm, ncclInvalidArgument, "a rank excludes itself");
        shrunk->name += joined("-", excluded[i]);
        shrunk->rank -= excluded[i] < comm->rank ? 1 : 0;
    }
    if (current_device() != comm->device) return misuse(comm, ncclInvalidUsage, "ncclCommShrink on another device");
    shrunk->id = shrunk->name;
    close(open(shrunk->name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    shrunk->shared = mapped(shrunk->name, shrunk->ranks);
    if (shrunk->shared == nullptr) return misuse(comm, ncclSystemError, joined(shrunk->name, " cannot be mapped"));
    {
        // What is queued on the former communicator ends.
        const std::lock_guard guard(comm->working);
        comm->shrunk = true;
    }
    {
        const std::lock_guard guard(settings().lock);
        settings().communicators.push_back(shrunk);
        settings().ids.push_back(shrunk->name);
    }
    *made = nullptr;
    std::int32_t none = 0;
    if (!shrunk->shared->ranks.compare_exchange_strong(none, shrunk->ranks) && none != shrunk->ranks)
        return misuse(shrunk.get(), ncclInvalidUsage, "other ranks exclude other ranks", true);
    if (shrunk->mine().taken.exchange(1) != 0)
        return misuse(shrunk.get(), ncclInvalidUsage, "another has started as this rank", true);
    if (group.depth > 0)
        group.starts.push_back(shrunk.get());
    else
        shrunk->mine().started = 1;
    // The parent is in progress until the new communicator has been made, and `*made` is null until then.
    return launch_or_group(comm, {.effect = [made, shrunk](double) { *made = shrunk.get(); },
                                  .may_end = [shrunk] { return all(*shrunk, &SharedRank::started); }});
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    count(&NcclCallCounts::aborts);
    ncclResult_t result = ncclSuccess;
    if (!usable(comm, "ncclCommAbort", result)) return result;
    const OneCaller caller(comm);
    if (!caller.alone()) return misuse(comm, ncclInvalidUsage, "two threads call NCCL at once", true);
    if (group.depth > 0) {
        called_in_group();
        count(&NcclCallCounts::grouped_aborts);
        group.aborts.push_back(comm);
        return ncclSuccess;
    }
    abort_all({comm});
    return ncclSuccess;
}

}  // extern "C"
