// SPDX-License-Identifier: Apache-2.0
//
// StepVote: the processes vote on whether a step counts: it does if every part of the average is finite.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/net/stopwatch.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/processes/agreement/in_all_processes.hpp>
#include <cupola/processes/agreement/process_gather.hpp>
#include <cupola/processes/agreement/replica_records.hpp>
#include <cupola/processes/processes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Members with a DeviceStep are called on every device's thread.
template <class D, class T>
class StepVote {
    using Kernels = typename D::Kernels;
    using Step = DeviceStep<D, T>;

public:
    /// A replica's gradient, from a column; null if it is in another process.
    using RowFrom = FunctionRef<const float*(int replica, std::int64_t begin)>;

    /// The replicas are divided between processes and must outlive the object.
    [[gnu::cold]] explicit StepVote(Replicas<D, T>& replicas)
        : replicas_(replicas),
          processes_(*replicas.settings().processes),
          votes_(processes_,
                 sizeof(StepBlockHeader) + (1 + static_cast<std::size_t>(replicas.settings().replicas)) * sizeof(Ends)),
          finite_(static_cast<std::size_t>(replicas.placement().device_count())),
          ends_(finite_.size()) {
        for (auto& each : ends_) each = FixedArray<Ends>(static_cast<std::size_t>(replicas.settings().replicas));
    }

    /// Divides the device's columns of the average by the loss scale and by `samples`, which is more than 1 if the
    /// columns contain a sum. Records where values are not finite.
    void reduce_columns(Step& step, ReplicaPlacement::ColumnRange columns, RowFrom row_from, std::int64_t samples = 1);
    /// Divides the device's columns of an average by a number and, unless it is null, by that at `scale`. Records
    /// whether they are finite.
    void divide_columns(Step& step, ReplicaPlacement::ColumnRange columns, float divisor, const float* scale = nullptr);

    /// Called after one of these: if a part of the average is not finite on any process, the step does not count.
    /// Returns false if a process has failed.
    bool vote(Step& step) { return vote(step, "the vote on the step"); }
    /// In place of them: `finite` is whether everything on the device is finite. If it is not on any process, the step
    /// does not count. Returns false if a process has failed.
    bool vote(Step& step, std::string_view operation, std::int32_t finite);
    /// The vote on rows that are not gradients.
    bool vote(Step& step, std::string_view operation);

    /// A RowFrom for the rows of this process.
    [[nodiscard]] const float* row_here(int replica, std::int64_t begin) const {
        return replicas_.placement().is_here(replica) ? replicas_.gradients().row(replica) + begin : nullptr;
    }

private:
    /// As in StatusLayout::not_finite. A vote consists of a StepBlockHeader, whether the average is finite, and the
    /// value of each replica.
    using Ends = unsigned long long;

    void exchange(std::string_view operation, std::int64_t step);

    Replicas<D, T>& replicas_;
    Processes& processes_;
    ProcessGather votes_;
    /// Per device: whether its part of the average is finite, and the positions where the rows are not.
    FixedArray<std::int32_t> finite_;
    FixedArray<FixedArray<Ends>> ends_;
    bool voted_finite_ = true;
};

template <class D, class T>
void StepVote<D, T>::divide_columns(Step& step, ReplicaPlacement::ColumnRange columns, float divisor,
                                    const float* scale) {
    const auto index = static_cast<std::size_t>(step.device);
    finite_[index] = 1;
    std::fill(ends_[index].begin(), ends_[index].end(), 0);
    const std::span<float> part = replicas_.gradients().average_span(step.device, columns);
    const Stopwatch watch(step.state.worker.times(), StepPart::averaging);
    ops::TrainingStep<Kernels>::mean(step.state.context(), part, &divisor, part, &finite_[index], {}, scale);
}

template <class D, class T>
void StepVote<D, T>::reduce_columns(Step& step, ReplicaPlacement::ColumnRange columns, RowFrom row_from,
                                    std::int64_t samples) {
    const auto scale = static_cast<double>(step.state.status()->divisor);
    divide_columns(step, columns, static_cast<float>(scale * static_cast<double>(samples)),
                   scale_on_device(replicas_, step.device));
    const auto index = static_cast<std::size_t>(step.device);
    if (finite_[index] != 0) return;
    const std::int64_t begin = columns.begin;
    const std::span<float> part = replicas_.gradients().average_span(step.device, columns);
    const Stopwatch watch(step.state.worker.times(), StepPart::averaging);
    constexpr float one = 1;
    for (int r = 0; r < replicas_.placement().replicas(); ++r) {
        const float* const row = row_from(r, begin);
        if (row == nullptr) continue;
        ops::TrainingStep<Kernels>::mean(step.state.context(), part, &one, part, &finite_[index],
                                         {.rows = row,
                                          .stride = 0,
                                          .count = 1,
                                          .first_column = begin,
                                          .ends = &ends_[index][static_cast<std::size_t>(r)]});
    }
}

template <class D, class T>
bool StepVote<D, T>::vote(Step& step, std::string_view operation, std::int32_t finite) {
    const auto index = static_cast<std::size_t>(step.device);
    finite_[index] = finite;
    // The device's status contains the positions at which the rows of its replicas are not finite.
    std::byte* const block = step.state.queue->status();
    for (int r = 0; r < replicas_.placement().replicas(); ++r)
        ends_[index][static_cast<std::size_t>(r)] = *step.state.layout.not_finite(block, r);
    return vote(step, operation);
}

template <class D, class T>
bool StepVote<D, T>::vote(Step& step, std::string_view operation) {
    if (!in_all_processes(step, [&] { exchange(operation, step.step); })) return false;
    if (voted_finite_) return true;
    step.state.queue->write(&step.state.status()->healthy, std::int32_t{0});
    std::byte* const block = step.state.queue->status();
    for (int r = 0; r < replicas_.placement().replicas(); ++r) {
        Ends* const end = step.state.layout.not_finite(block, r);
        for (const auto& each : ends_) *end = std::max(*end, each[static_cast<std::size_t>(r)]);
    }
    return true;
}

template <class D, class T>
void StepVote<D, T>::exchange(std::string_view operation, std::int64_t step) {
    const std::size_t replicas = ends_[0].size();
    FixedArray<Ends>& mine = ends_[0];
    Ends finite = 1;
    for (std::size_t d = 0; d < finite_.size(); ++d) {
        if (finite_[d] == 0) finite = 0;
        for (std::size_t r = 0; r < replicas; ++r) mine[r] = std::max(mine[r], ends_[d][r]);
    }
    const Stopwatch watch(replicas_.at(0).worker.times(), StepPart::waiting);
    write_block_header(votes_.mine(), step, replicas_.first_error());
    std::memcpy(votes_.mine() + sizeof(StepBlockHeader), &finite, sizeof finite);
    std::memcpy(votes_.mine() + sizeof(StepBlockHeader) + sizeof finite, mine.data(), replicas * sizeof(Ends));
    votes_.run({operation, step});
    require_all_in_step(votes_, processes_, step);
    for (int p = 0; p < processes_.count(); ++p) {
        const std::byte* const vote = votes_.of(p) + sizeof(StepBlockHeader);
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
