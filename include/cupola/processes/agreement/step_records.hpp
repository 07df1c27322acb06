// SPDX-License-Identifier: Apache-2.0
//
// StepRecords: in each step every process sends the others the records of its replicas: their samples and results, and
// the hash of their parameters. This is independent of how the gradients are averaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/stopwatch.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/agreement/local_devices.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/processes/agreement/in_all_processes.hpp>
#include <cupola/processes/agreement/process_peers.hpp>
#include <cupola/processes/agreement/replica_records.hpp>
#include <cupola/processes/processes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Members with a DeviceStep are called on every device's thread.
template <class D, class T>
class StepRecords {
    using Kernels = typename D::Kernels;
    using Step = DeviceStep<D, T>;

public:
    /// The replicas, which are divided between processes, and `local` must outlive the object.
    [[gnu::cold]] StepRecords(Replicas<D, T>& replicas, LocalDevices<D, T>& local);
    [[gnu::cold]] ~StepRecords();

    /// The other processes, with the results from their records.
    [[nodiscard]] ProcessPeers& peers() { return peers_; }

    /// Called before a step is queued, with the running statistics that it uses, which are compared like the
    /// parameters.
    void begin(std::span<const float> running) { running_ = running; }

    /// Waits for the device's work, then exchanges the samples and results of all replicas. Throws ReplicasDiffer, on
    /// the first device, if the processes have different parameters or running statistics. Returns false if a process
    /// has failed.
    bool exchange(Step& step);

    /// Throws InvalidArgument for a step without samples. If the loss has weights, writes the divisor of the step.
    void queue_divisor(Step& step);

private:
    void exchange_on_first(Step& step);
    void require_same_parameters(std::int64_t step);

    Replicas<D, T>& replicas_;
    LocalDevices<D, T>& local_;
    Processes& processes_;
    ProcessPeers peers_;
    BatchResults<D, T> results_;
    /// Per device, the hash of its parameters.
    FixedArray<std::uint64_t> hashes_;
    std::span<const float> running_{};
};

template <class D, class T>
StepRecords<D, T>::StepRecords(Replicas<D, T>& replicas, LocalDevices<D, T>& local)
    : replicas_(replicas),
      local_(local),
      processes_(*replicas.settings().processes),
      peers_(processes_, replicas.placement(), replicas.settings().gradient_accumulation_steps,
             replicas.settings().losses, replicas.network().buffer_elements),
      results_(replicas, peers_),
      hashes_(static_cast<std::size_t>(replicas.placement().device_count())) {}
template <class D, class T>
StepRecords<D, T>::~StepRecords() = default;

template <class D, class T>
bool StepRecords<D, T>::exchange(Step& step) {
    step.state.attempt([&] {
        local_.wait_for_queue(step);
        const Stopwatch watch(step.state.worker.times(), StepPart::averaging);
        const std::span<const float> parameters(step.state.worker.model(), replicas_.all_elements());
        ops::TrainingStep<Kernels>::hash(step.state.context(), parameters,
                                         &hashes_[static_cast<std::size_t>(step.device)]);
    });
    return in_all_processes(step, [&] { exchange_on_first(step); });
}

template <class D, class T>
void StepRecords<D, T>::exchange_on_first(Step& step) {
    const Stopwatch watch(step.state.worker.times(), StepPart::waiting);
    ReplicaRecords& records = peers_.records();
    const std::exception_ptr error = replicas_.first_error();
    write_block_header(records.gather().mine(), step.step, error);
    const ReplicaPlacement& placement = replicas_.placement();
    const int parts = replicas_.settings().gradient_accumulation_steps;
    const int first = placement.first_replica(0), last = placement.first_replica(placement.device_count());
    for (int r = first; !error && r < last; ++r) {
        for (int part = 0; part < parts; ++part)
            records.write(r, part, step.samples.of(step.step, part, r), results_.of(step.step, r, part));
    }
    if (!error) {
        ProcessHashes hashes{.parameters = hashes_[0]};
        ops::TrainingStep<Kernels>::hash(replicas_.context(0), running_, &hashes.statistics);
        for (std::size_t device = hashes_.size() - 1; device > 0; --device) {
            if (hashes_[device] != hashes_[0]) hashes.other_device = static_cast<std::int64_t>(device);
        }
        records.write(hashes);
    }
    records.gather().run({"the records of the replicas", step.step});
    require_all_in_step(records.gather(), processes_, step.step);
    if (!error) require_same_parameters(step.step);
    for (int r = 0; r < placement.replicas(); ++r) {
        if (placement.is_here(r)) continue;
        for (int part = 0; part < parts; ++part) step.samples.of(step.step, part, r) = records.samples(r, part);
    }
}

template <class D, class T>
void StepRecords<D, T>::require_same_parameters(std::int64_t step) {
    const ReplicaRecords& records = peers_.records();
    const ProcessHashes first = records.hashes(0);
    bool same = first.other_device < 0;
    for (int p = 1; p < processes_.count(); ++p) {
        const ProcessHashes other = records.hashes(p);
        same = same && other.other_device < 0 && other.parameters == first.parameters &&
               other.statistics == first.statistics;
    }
    if (same) [[likely]]
        return;
    for (auto& state : replicas_.devices()) state.updating = true;  // not healthy
    std::vector<ProcessHashes> all(static_cast<std::size_t>(processes_.count()));
    for (std::size_t p = 0; p < all.size(); ++p) all[p] = records.hashes(static_cast<int>(p));
    require_same_hashes(all, processes_, step);
}

template <class D, class T>
void StepRecords<D, T>::queue_divisor(Step& step) {
    const std::int64_t samples = step.samples.of_step(step.step);
    require(samples > 0, "step ", step.step, " has no samples on any replica");
    if (!replicas_.settings().weighted) return;
    double weight = 0;
    for (int part = 0; part < replicas_.settings().gradient_accumulation_steps; ++part) {
        for (int r = 0; r < replicas_.placement().replicas(); ++r) {
            if (step.samples.of(step.step, part, r) > 0) weight += results_.of(step.step, r, part).report->weight;
        }
    }
    // The same computation as weigh() of a single device.
    const double scale = replicas_.settings().constant_loss_scale() / static_cast<double>(samples);
    step.state.queue->write(&step.state.status()->divisor, static_cast<float>(scale * weight));
}

}}}  // namespace cupola::CUPOLA_ABI::impl
