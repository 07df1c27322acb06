// SPDX-License-Identifier: Apache-2.0
//
// ExchangeWatchdog: ends a process whose wait for other processes exceeds a deadline. It watches from a separate
// thread, because a call of a communication library may never return. At the deadline it writes what was waited for,
// and which processes are missing, to standard error and to a file `process-<number>.fault` in the run's folder, and
// exits by _exit(), because the library's own exit handler would wait for the missing processes too.
//
// The loss of a process on the same machine is noticed earlier, because it no longer exists.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/core/process_number.hpp>
#include <cupola/core/thread.hpp>
#include <cupola/processes/watch/process_id.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class ExchangeWatchdog {
public:
    /// The exit status of a process that a watchdog ends: EX_TEMPFAIL of sysexits.h.
    static constexpr int exit_status = 75;

    /// For process `number` of `count`. Messages and the file name processes by `numbers_at_start`, or by the same
    /// numbers if that is empty. Writes no file if `folder` is empty. Throws InvalidArgument for a deadline that is not
    /// greater than 0, and Error if no thread can be created.
    [[gnu::cold]] ExchangeWatchdog(int number, int count, double deadline_seconds, std::string folder,
                                   std::span<const int> numbers_at_start = {})
        : number_(number),
          numbers_at_start_(numbers_at_start.begin(), numbers_at_start.end()),
          deadline_(deadline_seconds),
          folder_(std::move(folder)),
          missing_(static_cast<std::size_t>(count)),
          last_heartbeat_(missing_.size()),
          ids_(missing_.size()) {
        require(is_finite(deadline_seconds) && deadline_seconds > 0 && deadline_seconds <= 1e9,
                "the deadline of an exchange must be more than 0 s and at "
                "most 1e9 s, not ",
                deadline_seconds, " s");
        thread_ = Thread({.what = "the deadline of exchanges"}, [this] { watch(); });
    }
    ExchangeWatchdog(const ExchangeWatchdog&) = delete;
    ExchangeWatchdog& operator=(const ExchangeWatchdog&) = delete;
    ~ExchangeWatchdog() {
        {
            const std::scoped_lock lock(mutex_);
            ends_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

    /// The PIDs of the processes, 0 for those of other machines and PID namespaces. A missing process that no longer
    /// exists is not waited for.
    void set_process_ids(const std::vector<std::int64_t>& ids) {
        const std::scoped_lock lock(mutex_);
        for (std::size_t p = 0; p < ids_.size(); ++p) ids_[p] = ids[p];
    }

    /// The watchdog sets `exit_flag` to 1 before it ends the process. `exited()` returns the number at the start of
    /// another process that has exited by itself and is not waited for, or a negative number; it is called on the
    /// watchdog's thread.
    void watch_exits(std::atomic<std::int32_t>* exit_flag, std::function<int()> exited) {
        const std::scoped_lock lock(mutex_);
        exit_flag_ = exit_flag;
        exited_ = std::move(exited);
    }

    /// Begins a wait in which no process is missing yet. With `since`, continues a wait that began at that time.
    void begin(const ExchangeName& name, double since = -1) {
        const std::scoped_lock lock(mutex_);
        name_ = name;
        since_ = since >= 0 ? since : monotonic_seconds();
        names_missing_ = false;
        std::fill(missing_.begin(), missing_.end(), 0);
        std::fill(last_heartbeat_.begin(), last_heartbeat_.end(), never);
        waits_ = true;
    }
    /// Begins a wait that needs all processes and does not report whose part has arrived. The processes that sent a
    /// heartbeat recently are not reported as missing.
    void begin_with_all(const ExchangeName& name) {
        begin(name);
        const std::scoped_lock lock(mutex_);
        for (std::size_t p = 0; p < missing_.size(); ++p) missing_[p] = static_cast<int>(p) == number_ ? 0 : 1;
        names_missing_ = true;
    }
    /// Called when a heartbeat of a process has arrived, which is in the same wait. Processes send
    /// heartbeats_per_deadline of them per deadline.
    void record_heartbeat(int process) {
        const std::scoped_lock lock(mutex_);
        last_heartbeat_[static_cast<std::size_t>(process)] = monotonic_seconds();
    }
    static constexpr double heartbeats_per_deadline = 8;
    /// `parts` further messages from or to a process are outstanding; -1 when one has completed.
    void count_missing(int process, int parts) {
        const std::scoped_lock lock(mutex_);
        missing_[static_cast<std::size_t>(process)] += parts;
        names_missing_ = true;
    }
    void end() {
        const std::scoped_lock lock(mutex_);
        waits_ = false;
    }
    /// Why a thread that polls must not wait any longer, and the processes that are lost, or else late.
    struct Fault {
        std::string what, missing;

        [[nodiscard]] bool empty() const { return what.empty(); }
    };
    /// For threads that poll, independent of the waits above: the reason why a thread that has waited since `since` for
    /// any of the other processes must not wait any longer; empty if it may. `waits_for(process)`: whether it waits for
    /// this one; it refers to nothing if that is not known.
    [[nodiscard]] Fault fault_of_poll(double since, FunctionRef<bool(int)> waits_for) {
        const std::scoped_lock lock(mutex_);
        for (std::size_t p = 0; p < ids_.size(); ++p) {
            if (is_lost(p)) return {loss_of(p), list_of([&](std::size_t other) { return is_lost(other); })};
        }
        if (monotonic_seconds() - since <= deadline_) return {};
        if (!waits_for) return {overdue(), unknown};
        return {overdue(), list_of([&](std::size_t p) { return waits_for(static_cast<int>(p)); })};
    }
    /// Ends the process for that reason.
    [[noreturn, gnu::cold]] void end_poll(const ExchangeName& name, const Fault& fault) {
        const std::scoped_lock lock(mutex_);
        leave(name, fault.what, fault.missing);
    }
    /// The time at which the last wait began, by monotonic_seconds().
    [[nodiscard]] double since() const { return since_; }
    /// Ends the process as at the deadline, for the reason `why`. The message also contains what was waited for.
    [[noreturn, gnu::cold]] void end_process(const std::string& why) {
        const std::scoped_lock lock(mutex_);
        leave(name_, text("cannot go on: ", why), {});
    }

    // Sums may be waited for at the same time as an exchange. A deadline of the sums is then reported as that of the
    // exchange, which knows the missing processes.

    /// Called when the first of several sums begins. Each sum that completes restarts the deadline.
    void begin_sums(const ExchangeName& name) {
        const std::scoped_lock lock(mutex_);
        sums_name_ = name;
        sums_since_ = monotonic_seconds();
        sums_wait_ = true;
    }
    void progress_sums() {
        const std::scoped_lock lock(mutex_);
        sums_since_ = monotonic_seconds();
    }
    void end_sums() {
        const std::scoped_lock lock(mutex_);
        sums_wait_ = false;
    }

    /// The reason why this process cannot write its file; empty if it can. A file of an earlier run is not changed.
    [[nodiscard, gnu::cold]] std::string problem() const {
        if (folder_.empty()) return {};
        const std::string path = folder_ + '/' + file_name(name_of(number_));
        const bool is_new = access(path.c_str(), F_OK) != 0;
        const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
        if (file < 0) return text("process ", name_of(number_), " cannot write ", path, ": ", std::strerror(errno));
        close(file);
        if (is_new) unlink(path.c_str());
        return {};
    }

    /// The file name for a process.
    [[nodiscard]] static std::string file_name(int process) { return text("process-", process, ".fault"); }

    /// Writes a line to standard error and, unless `folder` is empty, to the process's file there, and ends the
    /// process, at the latest after `longest_leave`, even if a file system does not respond or a full pipe is not read.
    [[noreturn, gnu::cold]] static void leave(int process, const std::string& folder, const std::string& line) {
        try {
            Thread({.what = "the end of the process"}, [] {
                std::this_thread::sleep_for(longest_leave);
                _exit(exit_status);
            }).detach();
        } catch (const Error&) {
            // Without the thread there is no upper bound on the time.
        }
        const std::string message = line + '\n';
        // The file first: a launcher that has ended no longer reads standard error and may be about to kill this
        // process.
        std::signal(SIGPIPE, SIG_IGN);
        int file = -1;
        if (!folder.empty()) {
            const std::string path = folder + '/' + file_name(process);
            file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
            if (file >= 0) write_to(file, message);
        }
        write_to(STDERR_FILENO, message);
        if (file >= 0) fsync(file);
        std::this_thread::sleep_for(pause_for_others);
        _exit(exit_status);
    }

private:
    static constexpr auto period = std::chrono::milliseconds(50);
    /// The time before a process that does not exist ends the wait: its last message may still be in transit.
    static constexpr double last_part_seconds = 0.2;
    /// The pause between writing the file and the exit. For each process that exits, mpirun of Open MPI proceeds to the
    /// next signal, and the third one is SIGKILL; by then all processes have written their files.
    static constexpr auto pause_for_others = std::chrono::milliseconds(500);
    /// Together with one period, less than the one second in which a process is guaranteed to be gone.
    static constexpr auto longest_leave = std::chrono::milliseconds(900);
    /// The number of missed heartbeats after which a process counts as silent.
    static constexpr double missed_heartbeats = 3, never = -1e300;
    static constexpr const char* unknown = "it is not known which are missing";

    void watch() {
        std::unique_lock lock(mutex_);
        while (!changed_.wait_for(lock, period, [&] { return ends_; })) {
            const double now = monotonic_seconds();
            if (waits_ && now - since_ > deadline_) leave(name_, overdue(), missing());
            if (sums_wait_ && now - sums_since_ > deadline_) leave(waits_ ? name_ : sums_name_, overdue(), missing());
            if (!waits_ || now - since_ <= last_part_seconds) continue;
            for (std::size_t p = 0; p < missing_.size(); ++p) {
                if (missing_[p] > 0 && is_lost(p)) leave(name_, loss_of(p), missing());
            }
            if (const int p = exited_ ? exited_() : -1; p >= 0)
                leave(name_, text("has lost process ", p, ", which has ended by itself"), missing());
        }
    }

    template <class Number>
    [[nodiscard]] int name_of(Number process) const {
        return numbers_at_start_.empty() ? static_cast<int>(process)
                                         : numbers_at_start_[static_cast<std::size_t>(process)];
    }
    [[nodiscard]] std::string overdue() const { return text("has waited ", deadline_, " s for others"); }
    template <class Number>
    [[nodiscard]] std::string loss_of(Number process) const {
        return text("has lost process ", name_of(process), ", which does not exist any more");
    }
    [[nodiscard]] std::string missing() const {
        if (!waits_ || !names_missing_) return unknown;
        const double silent_since = monotonic_seconds() - missed_heartbeats / heartbeats_per_deadline * deadline_;
        return list_of([&](std::size_t p) { return missing_[p] > 0 && last_heartbeat_[p] < silent_since; });
    }
    [[nodiscard]] bool is_lost(std::size_t process) const {
        return static_cast<int>(process) != number_ && ids_[process] != 0 && !process_exists(ids_[process]);
    }
    /// Those of the other processes that are missing.
    template <class IsMissing>
    [[nodiscard]] std::string list_of(IsMissing is_missing) const {
        std::string list;
        for (std::size_t p = 0; p < ids_.size(); ++p) {
            if (static_cast<int>(p) != number_ && is_missing(p)) list += text(list.empty() ? "" : ", ", name_of(p));
        }
        return list.empty() ? "none is missing" : "missing: process " + list;
    }

    /// `missing` may be empty.
    [[noreturn, gnu::cold]] void leave(const ExchangeName& name, const std::string& what,
                                       const std::string& missing) const {
        if (exit_flag_ != nullptr) *exit_flag_ = 1;
        std::string message = text("process ", name_of(number_), ' ', what, ", in ", name.operation);
        if (name.step >= 0) message += text(" of step ", name.step);
        if (!missing.empty()) message += "; " + missing;
        leave(name_of(number_), folder_, message);
    }
    static void write_to(int file, const std::string& message) {
        std::string_view rest = message;
        while (!rest.empty()) {
            const ssize_t written = write(file, rest.data(), rest.size());
            if (written <= 0) return;
            rest.remove_prefix(static_cast<std::size_t>(written));
        }
    }

    int number_;
    std::vector<int> numbers_at_start_;
    double deadline_;
    std::string folder_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool ends_ = false, waits_ = false, names_missing_ = false, sums_wait_ = false;
    std::atomic<std::int32_t>* exit_flag_ = nullptr;
    std::function<int()> exited_;
    ExchangeName name_, sums_name_;
    double since_ = 0, sums_since_ = 0;
    /// The number of outstanding messages per process.
    FixedArray<int> missing_;
    /// The time of each process's last heartbeat in this wait, or `never`.
    FixedArray<double> last_heartbeat_;
    FixedArray<std::int64_t> ids_;
    Thread thread_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
