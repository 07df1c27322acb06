// SPDX-License-Identifier: Apache-2.0
//
// NcclGroup: the ranks of one process of a training with NcclAllReduce, from the exchange of NCCL's id to the end. The
// training queues a sum, records an event after it, and later waits for the event.
//
// Several processes exchange NCCL's id by the file `id_file` or by TCP. Their heartbeats are in a file: either
// `id_file`.heartbeats, or a file that process 0 creates and names by TCP, which processes on other machines do not
// find. Process 0 removes the files after all have started, and each process removes the files that it created if the
// start fails. Files remain only if a process is killed during the start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/processes/nccl/communicator_id.hpp>
#include <cupola/processes/nccl/nccl_calls.hpp>
#include <cupola/processes/nccl/nccl_communicator.hpp>
#include <cupola/processes/nccl_launch.hpp>
#include <cupola/processes/watch/heartbeats.hpp>
#include <cupola/processes/watch/launcher_variables.hpp>
#include <cupola/processes/watch/tcp_rendezvous.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Constructed, started and finished by one thread. In between, the thread of each device calls queue() and wait() for
/// its device. All of them throw DeviceError; after the first error, the others throw the same one.
template <class Calls = NcclCalls>
class NcclGroup {
public:
    /// `first_replica_of_device` names the ranks in errors; `gpus` are the devices' ordinals, or 0, 1, ... if empty.
    NcclGroup(const NcclAllReduce& policy, int devices, const std::vector<int>& first_replica_of_device,
              const std::vector<int>& gpus = {}, Calls calls = {})
        : policy_(checked(policy, devices)),
          first_rank_(policy_.process * devices),
          calls_(calls),
          are_survivors_(policy_.environment != nullptr && policy_.processes > 1 &&
                         !policy_.environment->lost().empty()),
          heartbeats_path_(heartbeats_path()),
          heartbeats_(policy_.processes * devices, heartbeats_path_),
          communicators_(policy_.processes * devices, ranks_of(first_replica_of_device, gpus, devices), heartbeats_,
                         limits_of(policy_), std::move(calls)) {}

    NcclGroup(const NcclGroup&) = delete;
    NcclGroup& operator=(const NcclGroup&) = delete;
    ~NcclGroup() {
        if (are_survivors_) unlink(heartbeats_path_.c_str());
    }

    /// Makes this process's communicators; returns when all ranks of all processes have started. Process 0 warns if the
    /// version of the loaded NCCL library differs from the header's.
    void start() {
        if (policy_.environment != nullptr) {
            if (const std::vector<void*> made = policy_.environment->take_communicators(); !made.empty()) {
                return communicators_.adopt(made);
            }
        }
        require_nccl_version(calls_, policy_.process == 0);
        try {
            const CommunicatorId id = exchanged_id();
            // A process that the others cannot find would count as lost. After a rendezvous all processes have their
            // environments.
            if (policy_.environment != nullptr)
                policy_.environment->require_all_found(had_rendezvous_ ? 0 : policy_.start_seconds);
            communicators_.start(id);
        } catch (...) {
            remove_files();
            throw;
        }
        if (policy_.process == 0) remove_files();
    }

    [[nodiscard]] int ranks() const { return heartbeats_.ranks(); }

    /// Queues a group of calls of the step's sum: those that `calls(group)` makes with an NcclCommunicators::Group.
    template <class MakeCalls>
    void queue(int device, cudaStream_t stream, std::int64_t step, MakeCalls calls) {
        queue(device, stream, NcclWork{the_sum, step}, calls);
    }
    /// The same of other work.
    template <class MakeCalls>
    void queue(int device, cudaStream_t stream, const NcclWork& work, MakeCalls calls) {
        communicators_.queue(index_of(device), stream, work, calls);
    }

    /// Waits for an event that was recorded after the sum of a step.
    void wait(int device, cudaEvent_t event, std::int64_t step) { wait(device, event, NcclWork{the_sum, step}); }
    /// The same of other work.
    void wait(int device, cudaEvent_t event, const NcclWork& work) {
        communicators_.wait(index_of(device), event, work);
    }

    /// Whether that event is complete. Throws like a wait() that began at `since`, a time of now().
    [[nodiscard]] bool poll(int device, cudaEvent_t event, std::int64_t step, double since) {
        return communicators_.poll(index_of(device), event, {the_sum, step}, since);
    }
    [[nodiscard]] double now() { return communicators_.now(); }

    /// Aborts all sums, because this device will not take part in them. Does not throw.
    void break_off(int device, std::int64_t step, const std::string& why) {
        communicators_.break_off(index_of(device), {the_sum, step}, why);
    }

    /// After a failure: waits for an event that was recorded after aborted sums, so that their memory may be freed.
    /// Ends the process if this takes longer than abort_seconds.
    void wait_for_broken_off(int device, cudaEvent_t event) {
        communicators_.wait_for_broken_off(index_of(device), event);
    }

    /// Whether a rank of this process has failed: the communicators are aborted, and no further sum completes.
    [[nodiscard]] bool failed() const { return communicators_.failed(); }

    /// Destroys the communicators, together with all other ranks. The destructor does the same and ignores errors.
    void finish() { communicators_.finish(); }

private:
    static constexpr std::string_view the_sum = "the sum of the gradients";

    [[nodiscard]] static NcclAllReduce checked(const NcclAllReduce& policy, int devices) {
        NcclAllReduce started = policy.as_launched();
        started.check(devices);
        return started;
    }
    [[nodiscard]] static NcclLimits limits_of(const NcclAllReduce& policy) {
        return {.start_seconds = policy.start_seconds,
                .step_seconds = policy.step_seconds,
                .heartbeat_seconds = policy.heartbeat_seconds,
                .abort_seconds = policy.abort_seconds,
                .folder = policy.folder,
                .process = policy.process,
                .environment = policy.environment};
    }
    [[nodiscard]] std::vector<NcclRank> ranks_of(const std::vector<int>& first_replica_of_device,
                                                 const std::vector<int>& gpus, int devices) const {
        const auto count = static_cast<std::size_t>(devices);
        require(first_replica_of_device.size() == count, "ranks of ", devices, " devices, and replicas of ",
                first_replica_of_device.size());
        require(gpus.empty() || gpus.size() == count, "ranks of ", devices, " devices, and numbers of ", gpus.size());
        for (std::size_t d = 1; d < gpus.size(); ++d) {
            for (std::size_t other = 0; other < d; ++other)
                require(gpus[d] != gpus[other], "NCCL allows a GPU only one rank of a process, and the devices ", other,
                        " and ", d, " share GPU ", gpus[d],
                        " (devices_per_gpu): use ConcatMean, or as many GPUs as devices");
        }
        std::vector<NcclRank> ranks;
        for (std::size_t d = 0; d < count; ++d)
            ranks.push_back({first_rank_ + static_cast<int>(d), gpus.empty() ? static_cast<int>(d) : gpus[d],
                             first_replica_of_device[d]});
        return ranks;
    }
    [[nodiscard]] static std::size_t index_of(int device) { return static_cast<std::size_t>(device); }

    /// The path of the heartbeat file; empty if there are no other processes, or no id_file.
    [[nodiscard]] std::string heartbeats_path() const {
        if (are_survivors_) return policy_.environment->heartbeats();
        return policy_.processes == 1 || policy_.id_file.empty() ? std::string() : policy_.id_file + ".heartbeats";
    }
    [[nodiscard]] CommunicatorId exchanged_id() {
        // The environment variable then belongs to the processes of another training.
        if (policy_.processes == 1) return communicators_.make_id();
        if (!policy_.address.empty() && !communicator_id_of_environment()) return id_by_rendezvous();
        const CommunicatorId id =
            agree_on_id(communicators_, first_rank_, policy_.id_file, policy_.start_seconds, calls_);
        has_exchanged_id_ = true;
        return id;
    }
    /// By TCP: process 0 sends the others the id and the name of the heartbeat file.
    [[nodiscard, gnu::cold]] CommunicatorId id_by_rendezvous() {
        TcpRendezvous rendezvous({.address = policy_.address,
                                  .process = {policy_.processes, policy_.process},
                                  .job = launched_job(),
                                  .seconds = policy_.start_seconds});
        had_rendezvous_ = true;
        if (policy_.process == 0) {
            const CommunicatorId id = communicators_.make_id();
            made_file_ = "/dev/shm/cupola-heartbeats-XXXXXX";
            const int handle = mkstemp(made_file_.data());
            if (handle < 0) made_file_.clear();  // errors then do not name ranks
            if (handle >= 0) close(handle);
            if (!made_file_.empty()) heartbeats_.share(made_file_);
            rendezvous.broadcast(communicator_id_text(id) + made_file_);
            return id;
        }
        const std::string received = rendezvous.receive();
        const auto id = communicator_id_of(std::string_view(received).substr(0, 2 * communicator_id_bytes));
        require<DeviceError>(id.has_value(), "process 0 at ", policy_.address, " has given no id of NCCL");
        if (received.size() > 2 * communicator_id_bytes) heartbeats_.share(received.substr(2 * communicator_id_bytes));
        return *id;
    }
    /// Removes the files that this start has created or that are not needed once all processes have started. A file
    /// whose name was rejected belongs to another training.
    void remove_files() const {
        if (!made_file_.empty()) unlink(made_file_.c_str());
        if (policy_.process == 0 && !has_exchanged_id_) return;
        if (heartbeats_path_.empty()) return;
        unlink(heartbeats_path_.c_str());
        if (policy_.process == 0 && !communicator_id_of_environment().has_value()) unlink(policy_.id_file.c_str());
    }

    NcclAllReduce policy_;
    int first_rank_;
    Calls calls_;
    bool has_exchanged_id_ = false, had_rendezvous_ = false;
    std::string made_file_;
    /// Whether these processes are the survivors of a loss.
    bool are_survivors_;
    /// Does not change when the environment loses further processes.
    std::string heartbeats_path_;
    Heartbeats heartbeats_;
    NcclCommunicators<Calls> communicators_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
