// SPDX-License-Identifier: Apache-2.0
//
// Agreement between processes by the gradient rows: the policy's function of the rows averages in slices of the columns, in the
// order of the replicas of all processes, with the bits of one process.
//
//   records of all | (slices of the rows) | mean of the own slice | vote | (slices of the mean)
//
// Where the processes have memory in common, all rows and the average are in it, and what is in brackets is left out. Rows that
// the policy prepares are ready before the records are exchanged.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/fixed_array.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/agreement_of.hpp>
#include <cupola/parallel/replicas/loss_scaling.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/replicas/status.hpp>
#include <cupola/parallel/replicas/weighted_rows.hpp>
#include <cupola/processes/agreement/exchange.hpp>
#include <cupola/processes/agreement/same_training.hpp>
#include <cupola/processes/agreement/slice_messages.hpp>
#include <cupola/processes/processes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class A, class D, class T>
class ProcessRowsAgreement final : public ProcessAgreement<D, T> {
    using Base = ProcessAgreement<D, T>;
    using Base::average_in_all;
    using Base::processes_;
    using Base::replicas_;
    using typename Base::ColumnRange;

public:
    [[gnu::cold]] ProcessRowsAgreement(const A& policy, Replicas<D, T>& replicas);

    bool agree(int device, SampleCounts& samples, std::int64_t step, bool);

private:
    void average(int device, const SampleCounts& samples, std::int64_t step);

    /// A replica's gradient from column `begin` of this process's slice on.
    [[nodiscard]] const float* row_from(int replica, std::int64_t begin) const {
        if (const float* const row = replicas_.gradients().row(replica)) return row + begin;
        return messages_.row(replica, begin);
    }
    bool exchange(int device, const ExchangeName& name, std::span<const ProcessMessage> outgoing,
                  std::span<const ProcessMessage> incoming);

    A policy_;
    /// The columns that this process averages.
    ColumnRange slice_;
    /// Empty where all rows are in common memory.
    SliceMessages<D, T, MessageElement<A>> messages_;
    /// Per device.
    FixedArray<WeightedRows> rows_;
};

template <class A, class D, class T>
    requires(SpansProcesses<A> && !sums_of_processes<A>)
struct AgreementOf<A, D, T> {
    using Type = ProcessRowsAgreement<A, D, T>;
};

template <class A, class D, class T>
ProcessRowsAgreement<A, D, T>::ProcessRowsAgreement(const A& policy, Replicas<D, T>& replicas)
    : Base(replicas),
      policy_(policy),
      slice_(replicas.placement().columns_of_process(processes_.number(), replicas.network().trained_elements)),
      rows_(static_cast<std::size_t>(replicas.placement().device_count())) {
    for (WeightedRows& each : rows_) each = WeightedRows(replicas.placement().replicas());
    const int next = (processes_.number() + 1) % processes_.count();
    const bool in_common = replicas.gradients().row(replicas.placement().first_replica_of_process(next)) != nullptr;
    if (!in_common) messages_ = {replicas, slice_, processes_};
}

template <class A, class D, class T>
bool ProcessRowsAgreement<A, D, T>::agree(int device, SampleCounts& samples, std::int64_t step, bool) {
    auto& state = replicas_.at(device);
    state.attempt([&] { Base::prepare_rows(policy_.rows, device, samples, step); });
    if (!Base::exchange_records(device, samples, step)) return false;
    if (messages_.any()) {
        state.attempt([&] {
            const Stopwatch watch(state.worker.times(), StepPart::averaging);
            messages_.pack_rows(replicas_, device);
        });
        if (!exchange(device, {"the slices of the gradients", step}, messages_.rows_out(), messages_.rows_in()))
            return false;
    }
    state.attempt([&] {
        Base::queue_divisor(device, samples, step);
        average(device, samples, step);
        Base::reduce_columns(device, replicas_.gradients().columns_of(device),
                             [this](int replica, std::int64_t begin) { return row_from(replica, begin); });
    });
    if (!Base::vote(device, step)) return false;
    if (!messages_.any()) return true;
    if (!exchange(device, {"the slices of the average", step}, messages_.average_out(), messages_.average_in()))
        return false;
    if constexpr (!std::same_as<MessageElement<A>, float>) {
        {
            const Stopwatch watch(state.worker.times(), StepPart::averaging);
            const float divisor = state.status()->divisor;
            const float* const scale = scale_on_device(replicas_, device);
            messages_.unpack_average(replicas_, device, scale == nullptr ? divisor : divisor * *scale);
        }
        return replicas_.arrive_and_wait(device);
    }
    return true;
}

template <class A, class D, class T>
bool ProcessRowsAgreement<A, D, T>::exchange(int device, const ExchangeName& name,
                                             std::span<const ProcessMessage> outgoing,
                                             std::span<const ProcessMessage> incoming) {
    return average_in_all(device, [&] { processes_.exchange(name, outgoing, incoming); });
}

template <class A, class D, class T>
void ProcessRowsAgreement<A, D, T>::average(int device, const SampleCounts& samples, std::int64_t step) {
    const auto [begin, end] = replicas_.gradients().columns_of(device);
    if (replicas_.gradients().in_place() || begin == end) return;
    const Stopwatch watch(replicas_.at(device).worker.times(), StepPart::averaging);
    WeightedRows& rows = rows_[static_cast<std::size_t>(device)];
    rows.clear();
    if (messages_.any()) messages_.unpack_rows(replicas_, device, {begin, end});
    for (int r = 0; r < replicas_.placement().replicas(); ++r)
        rows.add(row_from(r, begin), samples.of_replica(step, r));
    policy_.rows.average(
        replicas_.context(device),
        {.rows = rows.rows(), .samples = rows.samples(), .total_samples = rows.total_samples(), .columns = end - begin},
        replicas_.gradients().average_span(device).subspan(static_cast<std::size_t>(begin),
                                                           static_cast<std::size_t>(end - begin)));
    if (messages_.any()) messages_.pack_average(replicas_, device, {begin, end});
}

}}}  // namespace cupola::CUPOLA_ABI::impl
