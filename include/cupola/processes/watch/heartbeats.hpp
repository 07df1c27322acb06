// SPDX-License-Identifier: Apache-2.0
//
// Heartbeats: determine which ranks are alive. Each rank increments its own counter while it works or waits, and a rank
// whose wait takes too long checks which counters have not changed. NCCL's error codes do not name ranks.
//
// The counters of the ranks of one process are in its memory; those of several processes on one machine are in a file
// that all of them map. The counters of ranks on other machines are not visible and stay 0; messages about such ranks
// mention that possibility.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class Heartbeats {
public:
    /// One counter per rank, each on its own cache lines. Without a path, the counters are private to this process;
    /// otherwise they are in the file at `path`, which is created if needed. Ranks may open it in any order, since a
    /// new file contains zeros.
    explicit Heartbeats(int ranks, const std::string& path = {}) : ranks_(ranks) {
        require(ranks > 0, "heartbeats of ", ranks, " ranks");
        int handle = -1;
        if (!path.empty()) {
            handle = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
            if (handle < 0) refuse(path, "could not be opened");
        }
        map(path, handle);
    }
    Heartbeats(const Heartbeats&) = delete;
    Heartbeats& operator=(const Heartbeats&) = delete;
    ~Heartbeats() { munmap(beats_, bytes()); }

    /// Called before the first heartbeat: switches to the file at `path`, which another process has created. Does
    /// nothing if there is no such file, as on another machine.
    void share(const std::string& path) {
        const int handle = open(path.c_str(), O_RDWR | O_CLOEXEC);
        if (handle < 0) return;
        Beat* const own = beats_;
        map(path, handle);
        munmap(own, bytes());
    }

    [[nodiscard]] int ranks() const { return ranks_; }
    /// Called by the rank itself whenever it makes progress, and in each poll of a wait.
    void beat(int rank) { at(rank).fetch_add(1, std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t count(int rank) const { return at(rank).load(std::memory_order_relaxed); }

private:
    struct alignas(128) Beat {
        std::atomic<std::uint64_t> count;
    };
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a lock would be of one process alone");

    /// Maps the counters. Closes the handle.
    void map(const std::string& path, int handle) {
        if (handle >= 0) {
            struct stat found {};
            // The file is only enlarged, never truncated: another rank may have mapped it.
            if (fstat(handle, &found) != 0 || (static_cast<std::size_t>(found.st_size) < bytes() &&
                                               ftruncate(handle, static_cast<off_t>(bytes())) != 0)) {
                const int error = errno;
                close(handle);
                errno = error;
                refuse(path, "could not be made large enough");
            }
        }
        const int flags = handle < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
        void* const memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, flags, handle, 0);
        const int error = errno;
        if (handle >= 0) close(handle);
        errno = error;
        if (memory == MAP_FAILED) refuse(path, "could not be mapped");
        beats_ = static_cast<Beat*>(memory);
    }

    [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(ranks_) * sizeof(Beat); }
    [[nodiscard]] std::atomic<std::uint64_t>& at(int rank) const { return beats_[rank].count; }
    [[noreturn, gnu::cold]] static void refuse(const std::string& path, const char* what) {
        throw DeviceError(
            text("the file of heartbeats ", path, ' ', what, ": ", std::generic_category().message(errno)));
    }

    int ranks_;
    Beat* beats_ = nullptr;
};

/// One rank's view of the others during a wait: the time at which it last saw progress of each.
class HeartbeatWatch {
public:
    HeartbeatWatch(const Heartbeats& beats, double now)
        : beats_(&beats), seen_(static_cast<std::size_t>(beats.ranks())) {
        restart(now);
    }
    /// Begins the next wait.
    void restart(double now) {
        for (int rank = 0; rank < beats_->ranks(); ++rank)
            seen_[static_cast<std::size_t>(rank)] = {beats_->count(rank), now};
    }
    void update(double now) {
        for (int rank = 0; rank < beats_->ranks(); ++rank) {
            Seen& seen = seen_[static_cast<std::size_t>(rank)];
            const std::uint64_t count = beats_->count(rank);
            if (count != seen.count) seen = {count, now};
        }
    }
    /// The ranks that have shown no progress for `seconds`.
    [[nodiscard]] std::vector<int> stopped(double now, double seconds) const {
        std::vector<int> result;
        for (int rank = 0; rank < beats_->ranks(); ++rank) {
            if (now - seen_[static_cast<std::size_t>(rank)].at >= seconds) result.push_back(rank);
        }
        return result;
    }
    /// Whether any heartbeat of a rank has ever been seen, by this watch or before.
    [[nodiscard]] bool ever_seen(int rank) const { return seen_[static_cast<std::size_t>(rank)].count > 0; }

private:
    struct Seen {
        std::uint64_t count = 0;
        double at = 0;
    };
    const Heartbeats* beats_;
    std::vector<Seen> seen_;
};

/// "rank 3" or "ranks 0, 1 and 3".
[[nodiscard, gnu::cold]] inline std::string ranks_text(std::span<const int> ranks) {
    std::string result(ranks.size() == 1 ? "rank " : "ranks ");
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (i > 0) result += i + 1 == ranks.size() ? " and " : ", ";
        result += text(ranks[i]);
    }
    return result;
}

/// A text that names the ranks without progress for `seconds`: "the heartbeats of ranks 1 and 3 have stopped", or says
/// that there are none.
[[nodiscard, gnu::cold]] inline std::string stopped_text(const HeartbeatWatch& watch, double now, double seconds) {
    std::vector<int> stopped, unseen;
    for (const int rank : watch.stopped(now, seconds)) (watch.ever_seen(rank) ? stopped : unseen).push_back(rank);
    if (stopped.empty() && unseen.empty()) {
        return "the heartbeats of all ranks continue: one rank is late, or waits for another collective";
    }
    std::string result;
    if (!stopped.empty()) {
        result += text(stopped.size() == 1 ? "the heartbeat of " : "the heartbeats of ", ranks_text(stopped),
                       stopped.size() == 1 ? " has stopped" : " have stopped");
    }
    if (!unseen.empty()) {
        result +=
            text(stopped.empty() ? "" : "; ", "no heartbeat of ", ranks_text(unseen),
                 " was ever seen: ", unseen.size() == 1 ? "it has not started, or is" : "they have not started, or are",
                 " on another machine");
    }
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
