// SPDX-License-Identifier: Apache-2.0
//
// Agreement between processes: each tells the others what it knows of its replicas, all average, and all vote on whether the
// step counts. This is the part that does not depend on how they average: by rows (process_rows_agreement.hpp), or by
// sums (process_sums_agreement.hpp).
//
//   records of all | average | vote
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/agreement/local.hpp>
#include <cupola/parallel/replicas/batch_results.hpp>
#include <cupola/parallel/replicas/loss_scaling.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/replicas/status.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/processes/agreement/process_gather.hpp>
#include <cupola/processes/agreement/process_peers.hpp>
#include <cupola/processes/agreement/replica_records.hpp>
#include <cupola/processes/processes.hpp>
#include <cupola/processes/run/policy.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
class ProcessAgreement : public AgreementInProcess<D, T> {
    using Kernels = typename D::Kernels;
    using Base = AgreementInProcess<D, T>;

public:
    ProcessAgreement(const ProcessAgreement&) = delete;
    ProcessAgreement& operator=(const ProcessAgreement&) = delete;

    /// The running statistics that the next step is computed with, which are compared beside the parameters.
    void compare_statistics(std::span<const float> values) { statistics_ = values; }

    /// Each device has reduced its part of the average before the vote.
    void reduce(int, std::byte*) {}

    [[nodiscard]] Peers& peers() { return peers_; }

protected:
    using Base::replicas_;
    using ColumnRange = ReplicaPlacement::ColumnRange;
    /// A replica's gradient from a column on; null if it is not here.
    using RowFrom = FunctionRef<const float*(int replica, std::int64_t begin)>;

    /// The processes of `replicas` exist.
    [[gnu::cold]] explicit ProcessAgreement(Replicas<D, T>& replicas);
    ~ProcessAgreement() = default;

    /// Runs `exchange` on the first device, also after an error of this process, while the other devices wait. Returns false
    /// if a process has failed.
    bool in_all(int device, FunctionRef<void()> exchange);
    /// The same, with the time of the exchange as a part of the averaging.
    bool average_in_all(int device, FunctionRef<void()> exchange);

    /// A replica's gradient from a column on; null if it is not here.
    [[nodiscard]] const float* row_here(int replica, std::int64_t begin) const {
        return replicas_.placement().is_here(replica) ? replicas_.gradients().row(replica) + begin : nullptr;
    }

    /// Once the work of the device is complete, exchanges the samples and results of all replicas. Returns false if a process
    /// has failed.
    bool exchange_records(int device, SampleCounts& samples, std::int64_t step);

    /// Throws InvalidArgument for a step without samples. Where the loss has weights, makes the divisor that of the step.
    void queue_divisor(int device, const SampleCounts& samples, std::int64_t step);

    /// Divides the columns of the average that a device reduces by the loss scale, and by `samples` where they are of a sum;
    /// records what is not finite.
    void reduce_columns(int device, ColumnRange columns, RowFrom row_from, std::int64_t samples = 1);

    /// After reduce_columns() all processes vote on whether the average is finite; otherwise the step does not count. Returns
    /// false if a process has failed.
    bool vote(int device, std::int64_t step);

    Processes& processes_;

private:
    /// As in StatusLayout::not_finite. A vote is a StepOfProcess, whether the average is finite, and the end of each replica.
    using Ends = unsigned long long;

    void exchange_records(SampleCounts& samples, std::int64_t step);
    void require_same_parameters(std::int64_t step);
    void exchange_votes(std::int64_t step);

    ProcessPeers peers_;
    BatchResults<D, T> results_;
    ProcessGather votes_;
    /// Per device: the hash of its parameters.
    FixedArray<std::uint64_t> hashes_;
    std::span<const float> statistics_{};
    /// Per device: whether its part of the average is finite, and where the rows are not.
    FixedArray<std::int32_t> finite_;
    FixedArray<FixedArray<Ends>> ends_;
    bool voted_finite_ = true;
};

template <class D, class T>
ProcessAgreement<D, T>::ProcessAgreement(Replicas<D, T>& replicas)
    : Base(replicas),
      processes_(*replicas.settings().processes),
      peers_(processes_, replicas.placement(), replicas.settings().gradient_accumulation_steps,
             replicas.settings().losses, replicas.network().buffer_elements),
      results_(replicas, peers_),
      votes_(processes_,
             sizeof(StepOfProcess) + (1 + static_cast<std::size_t>(replicas.placement().replicas())) * sizeof(Ends)),
      hashes_(static_cast<std::size_t>(replicas.placement().device_count())),
      finite_(hashes_.size()),
      ends_(finite_.size()) {
    for (auto& each : ends_) each = FixedArray<Ends>(static_cast<std::size_t>(replicas.placement().replicas()));
}

template <class D, class T>
bool ProcessAgreement<D, T>::in_all(int device, FunctionRef<void()> exchange) {
    static_cast<void>(replicas_.arrive_and_wait(device));
    if (device == 0) replicas_.at(0).attempt_always(exchange);
    return replicas_.arrive_and_wait(device);
}

template <class D, class T>
bool ProcessAgreement<D, T>::average_in_all(int device, FunctionRef<void()> exchange) {
    return in_all(device, [&] {
        const Stopwatch watch(replicas_.at(0).worker.times(), StepPart::averaging);
        exchange();
    });
}

template <class D, class T>
bool ProcessAgreement<D, T>::exchange_records(int device, SampleCounts& samples, std::int64_t step) {
    replicas_.at(device).attempt([&] {
        Base::wait_for_queue(device, step);
        const Stopwatch watch(replicas_.at(device).worker.times(), StepPart::averaging);
        const std::span<const float> parameters(replicas_.at(device).worker.parameters(), replicas_.all_elements());
        ops::TrainingStep<Kernels>::hash(replicas_.context(device), parameters,
                                         &hashes_[static_cast<std::size_t>(device)]);
    });
    return in_all(device, [&] { exchange_records(samples, step); });
}

template <class D, class T>
void ProcessAgreement<D, T>::exchange_records(SampleCounts& samples, std::int64_t step) {
    const Stopwatch watch(replicas_.at(0).worker.times(), StepPart::waiting);
    ReplicaRecords& records = peers_.records();
    const std::exception_ptr error = replicas_.first_error();
    begin_block(records.gather().mine(), step, error);
    const int first = replicas_.placement().first_replica(0),
              last = replicas_.placement().first_replica(replicas_.placement().device_count());
    for (int r = first; !error && r < last; ++r) {
        for (int part = 0; part < replicas_.settings().gradient_accumulation_steps; ++part)
            records.write(r, part, samples.of(step, part, r), results_.of(step, r, part));
    }
    if (!error) {
        HashesOfProcess hashes{.parameters = hashes_[0], .statistics = hash_of(replicas_.context(0), statistics_)};
        for (std::size_t device = hashes_.size() - 1; device > 0; --device) {
            if (hashes_[device] != hashes_[0]) hashes.other_device = static_cast<std::int64_t>(device);
        }
        records.write(hashes);
    }
    records.gather().run({"the records of the replicas", step});
    require_all_in_step(records.gather(), processes_, step);
    if (!error) require_same_parameters(step);
    for (int r = 0; r < replicas_.placement().replicas(); ++r) {
        if (replicas_.placement().is_here(r)) continue;
        for (int part = 0; part < replicas_.settings().gradient_accumulation_steps; ++part)
            samples.of(step, part, r) = records.samples(r, part);
    }
}

template <class D, class T>
void ProcessAgreement<D, T>::require_same_parameters(std::int64_t step) {
    const ReplicaRecords& records = peers_.records();
    const HashesOfProcess first = records.hashes(0);
    bool same = first.other_device < 0;
    for (int p = 1; p < processes_.count(); ++p) {
        const HashesOfProcess other = records.hashes(p);
        same = same && other.other_device < 0 && other.parameters == first.parameters &&
               other.statistics == first.statistics;
    }
    if (same) [[likely]]
        return;
    for (auto& state : replicas_.devices()) state.updating = true;  // not healthy
    std::vector<HashesOfProcess> all(static_cast<std::size_t>(processes_.count()));
    for (std::size_t p = 0; p < all.size(); ++p) all[p] = records.hashes(static_cast<int>(p));
    impl::require_same_hashes(all, processes_, step);
}

template <class D, class T>
void ProcessAgreement<D, T>::queue_divisor(int device, const SampleCounts& samples, std::int64_t step) {
    require(samples.of_step(step) > 0, "step ", step, " has no samples on any replica");
    if (!replicas_.settings().weighted) return;
    double weight = 0;
    for (int part = 0; part < replicas_.settings().gradient_accumulation_steps; ++part) {
        for (int r = 0; r < replicas_.placement().replicas(); ++r) {
            if (samples.of(step, part, r) > 0) weight += results_.of(step, r, part).report->weight;
        }
    }
    // As weigh() of a single device computes it.
    const double scale = replicas_.settings().constant_loss_scale() / static_cast<double>(samples.of_step(step));
    typename D::Queue& queue = *replicas_.at(device).queue;
    queue.write(&step_status(queue.status())->divisor, static_cast<float>(scale * weight));
}

template <class D, class T>
void ProcessAgreement<D, T>::reduce_columns(int device, ColumnRange columns, RowFrom row_from, std::int64_t samples) {
    const auto index = static_cast<std::size_t>(device);
    const auto [begin, end] = columns;
    finite_[index] = 1;
    std::fill(ends_[index].begin(), ends_[index].end(), 0);
    const std::span<float> part = replicas_.gradients().average_span(device).subspan(
        static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    const Stopwatch watch(replicas_.at(device).worker.times(), StepPart::averaging);
    auto& context = replicas_.context(device);
    const auto scale = static_cast<double>(replicas_.at(device).status()->divisor);
    const auto divisor = static_cast<float>(scale * static_cast<double>(samples));
    using Step = ops::TrainingStep<Kernels>;
    Step::mean(context, part, &divisor, part, &finite_[index], {}, scale_on_device(replicas_, device));
    if (finite_[index] != 0) return;
    constexpr float one = 1;
    for (int r = 0; r < replicas_.placement().replicas(); ++r) {
        const float* const row = row_from(r, begin);
        if (row == nullptr) continue;
        Step::mean(context, part, &one, part, &finite_[index],
                   {.rows = row,
                    .stride = 0,
                    .count = 1,
                    .first_column = begin,
                    .ends = &ends_[index][static_cast<std::size_t>(r)]});
    }
}

template <class D, class T>
bool ProcessAgreement<D, T>::vote(int device, std::int64_t step) {
    if (!in_all(device, [&] { exchange_votes(step); })) return false;
    if (voted_finite_) return true;
    std::byte* const block = replicas_.at(device).queue->status();
    replicas_.at(device).queue->write(&step_status(block)->healthy, std::int32_t{0});
    for (int r = 0; r < replicas_.placement().replicas(); ++r) {
        Ends* const end = replicas_.at(device).layout.not_finite(block, r);
        for (const auto& each : ends_) *end = std::max(*end, each[static_cast<std::size_t>(r)]);
    }
    return true;
}

template <class D, class T>
void ProcessAgreement<D, T>::exchange_votes(std::int64_t step) {
    const std::size_t replicas = ends_[0].size();
    FixedArray<Ends>& mine = ends_[0];
    Ends finite = 1;
    for (std::size_t d = 0; d < finite_.size(); ++d) {
        if (finite_[d] == 0) finite = 0;
        for (std::size_t r = 0; r < replicas; ++r) mine[r] = std::max(mine[r], ends_[d][r]);
    }
    const Stopwatch watch(replicas_.at(0).worker.times(), StepPart::waiting);
    begin_block(votes_.mine(), step, replicas_.first_error());
    std::memcpy(votes_.mine() + sizeof(StepOfProcess), &finite, sizeof finite);
    std::memcpy(votes_.mine() + sizeof(StepOfProcess) + sizeof finite, mine.data(), replicas * sizeof(Ends));
    votes_.run({"the vote on the step", step});
    require_all_in_step(votes_, processes_, step);
    for (int p = 0; p < processes_.count(); ++p) {
        const std::byte* const vote = votes_.of(p) + sizeof(StepOfProcess);
        Ends one = 0;
        std::memcpy(&one, vote, sizeof one);
        if (one == 0) finite = 0;
        for (std::size_t r = 0; r < replicas; ++r) {
            std::memcpy(&one, vote + (1 + r) * sizeof one, sizeof one);
            mine[r] = std::max(mine[r], one);
        }
    }
    voted_finite_ = finite != 0;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
