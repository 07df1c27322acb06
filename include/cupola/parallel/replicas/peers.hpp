// SPDX-License-Identifier: Apache-2.0
//
// Peers and BatchResults: what a training takes from its other processes, in a step and between steps, without the type
// of their engine; and the results of all batches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/core/process_number.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/replicas/status.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// What a process has after a step: the hash of its parameters and that of its running statistics, and a device whose
/// parameters differ from those of its first, or -1.
struct ComparedHashes {
    std::uint64_t parameters = 0, running = 0;
    std::int64_t differs = -1;
};

/// The other processes of a training. This class itself is those of a training in one process: there are none, so every
/// exchange is empty. An engine overrides what it exchanges. Unless it is said otherwise, a member is called by one
/// thread, on all processes in the same order.
class Peers {
public:
    Peers() = default;
    Peers(const Peers&) = delete;
    Peers& operator=(const Peers&) = delete;
    virtual ~Peers() = default;

    /// Whether there are other processes that compare() and exchange_texts() reach.
    [[nodiscard]] virtual bool any() const { return false; }

    // While a step is queued.

    /// Before a step is queued.
    virtual void begin_step(std::int64_t) {}
    /// Queues the flags that the step carries to all processes; on the device's thread.
    virtual void queue_flags(int /*device*/) {}
    /// Whether exchange_sums() is to be called wherever the replicas all-reduce statistics.
    [[nodiscard]] virtual bool exchanges_sums() const { return false; }
    /// Completes the sums of all replicas, `size` values each, and the list of those that have written theirs (null for
    /// the others). `error` is this process's, or null. Throws DeviceError if another process has one.
    virtual void exchange_sums(std::int64_t /*step*/, const std::exception_ptr& /*error*/, double* /*sums*/,
                               std::size_t /*size*/, std::span<const double*> /*contributions*/) {}

    // These are for a step that is complete.

    /// Adds the numbers of samples of the other processes' batches, unless the step has exchanged them while it was
    /// queued.
    virtual void read_samples(std::int64_t /*step*/, SampleCounts&) {}
    /// Reads the flags that all processes have set in the step.
    virtual void read_flags(std::int64_t /*step*/) {}
    /// The results of a batch of another process's replica; where an engine exchanges records, in the step whose rows
    /// were averaged last.
    [[nodiscard]] virtual BatchResult result_of(std::int64_t /*step*/, int /*replica*/, int /*part*/) { return {}; }

    // Between steps.

    /// Compares what the processes have after a step: throws ReplicasDiffer unless all have the same, and then `error`,
    /// which all have, if there is one. A collective does so when the step is queued before which all have called this.
    virtual void compare(std::int64_t step, const ComparedHashes& hashes, const std::exception_ptr& error) {
        if (hashes.differs >= 0) {
            throw ReplicasDiffer(text("after step ", step, " the parameters of device ", hashes.differs,
                                      " differ from those of device 0: a device computed a different result"),
                                 step, static_cast<int>(hashes.differs));
        }
        if (error != nullptr) std::rethrow_exception(error);
    }
    /// What is to be compared is not valid any more.
    virtual void forget() {}
    /// As ProcessGroup::gather. Throws InvalidArgument if a collective has no such call.
    virtual void gather(const ExchangeName&, std::byte* /*blocks*/, std::size_t /*bytes*/) {}
    /// Completes one text per replica.
    virtual void exchange_texts(std::int64_t /*step*/, std::span<std::string> /*of_replicas*/) {}
    /// With true, all processes read the reports of steps after they have queued the same steps, until it is called
    /// with false: then each reads them when it wants.
    virtual void read_together(bool) {}
    /// Whether exchange_texts() can be called where a report is read: whether all processes read it together.
    [[nodiscard]] virtual bool reads_together() const { return true; }
};

/// During its lifetime all processes read the reports of steps after they have queued the same steps.
class ReadTogetherScope {
public:
    explicit ReadTogetherScope(Peers& peers) : peers_(peers) { peers.read_together(true); }
    ReadTogetherScope(const ReadTogetherScope&) = delete;
    ReadTogetherScope& operator=(const ReadTogetherScope&) = delete;
    ~ReadTogetherScope() { peers_.read_together(false); }

private:
    Peers& peers_;
};

/// The results of each replica's batches in a step that is complete on every device, whichever process has the replica.
template <class D, class T>
class BatchResults {
public:
    /// Both must outlive the object.
    BatchResults(Replicas<D, T>& replicas, Peers& peers) : replicas_(replicas), peers_(peers) {}

    [[nodiscard]] BatchResult of(std::int64_t step, int replica, int part) {
        if (!replicas_.placement().is_here(replica)) return peers_.result_of(step, replica, part);
        const int device = replicas_.placement().device_of(replica);
        return replicas_.at(device).layout.result(replicas_.at(device).queue->landed(step),
                                                  replicas_.placement().batch_number(replica, part));
    }

    /// The element of a replica's gradient that a device has found not finite in the mean, the last of them; -1 if
    /// there is none.
    [[nodiscard]] std::int64_t not_finite_element(std::int64_t step, int replica) {
        unsigned long long end = 0;
        for (auto& state : replicas_.devices())
            end = std::max(end, *state.layout.not_finite(state.queue->landed(step), replica));
        return static_cast<std::int64_t>(end) - 1;
    }

private:
    Replicas<D, T>& replicas_;
    Peers& peers_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
