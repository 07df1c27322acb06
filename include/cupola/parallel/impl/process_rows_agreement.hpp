// SPDX-License-Identifier: Apache-2.0
//
// Agreement between processes by the gradient rows: the policy's function of the rows averages in slices of the columns, in the
// order of the replicas of all processes, with the bits of one process.
//
//   records of all | (slices of the rows) | mean of the own slice | vote | (slices of the mean)
//
// Where the processes have memory in common, all rows and the average are in it, and what is in brackets is left out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <cupola/core/fixed_array.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/impl/agreement_of.hpp>
#include <cupola/parallel/impl/process_agreement.hpp>
#include <cupola/parallel/impl/replica_set.hpp>
#include <cupola/parallel/impl/same_training.hpp>
#include <cupola/parallel/impl/sample_counts.hpp>
#include <cupola/parallel/impl/weighted_rows.hpp>
#include <cupola/parallel/processes.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class A, class D, class T>
class ProcessRowsAgreement : public ProcessAgreement<D, T> {
    using Base = ProcessAgreement<D, T>;
    using Base::in_all;
    using Base::processes_;
    using Base::set_;
    using typename Base::ColumnRange;

public:
    [[gnu::cold]] ProcessRowsAgreement(const A& policy, ReplicaSet<D, T>& set);

    bool agree(int device, SampleCounts& samples, std::int64_t step, bool);

private:
    void average(int device, const SampleCounts& samples, std::int64_t step);

    /// A replica's gradient from column `begin` of this process's slice on.
    [[nodiscard]] const float* row_from(int replica, std::int64_t begin) const {
        if (const float* const row = set_.row(replica)) return row + begin;
        return received_.data() + static_cast<std::int64_t>(replica) * (slice_.end - slice_.begin) + begin -
               slice_.begin;
    }
    /// Whether rows and averages move between processes in messages.
    [[nodiscard]] bool moves_slices() const { return !received_.empty(); }
    [[gnu::cold]] void plan_messages();
    bool exchange(int device, const ExchangeName& name, std::span<const ProcessMessage> outgoing,
                  std::span<const ProcessMessage> incoming);

    A policy_;
    /// The columns that this process averages.
    ColumnRange slice_;
    /// The slices of the rows of other processes, where those are not in common memory.
    FixedArray<float> received_;
    std::vector<ProcessMessage> rows_out_, rows_in_, average_out_, average_in_;
    /// Per device.
    FixedArray<WeightedRows> rows_;
};

template <class A, class D, class T>
    requires(SpansProcesses<A> && !sums_of_processes<A>)
struct AgreementOf<A, D, T> {
    using Type = ProcessRowsAgreement<A, D, T>;
};

template <class A, class D, class T>
ProcessRowsAgreement<A, D, T>::ProcessRowsAgreement(const A& policy, ReplicaSet<D, T>& set)
    : Base(set),
      policy_(policy),
      slice_(set.columns_of_process(processes_.number(), set.network().trained_elements)),
      rows_(static_cast<std::size_t>(set.device_count())) {
    for (WeightedRows& each : rows_) each = WeightedRows(set.replicas());
    const int next = (processes_.number() + 1) % processes_.count();
    const bool in_common = set.row(next * set.replicas_per_process()) != nullptr;
    if (!in_common) plan_messages();
}

template <class A, class D, class T>
void ProcessRowsAgreement<A, D, T>::plan_messages() {
    const int me = processes_.number(), here = set_.replicas_per_process();
    const std::int64_t width = slice_.end - slice_.begin;
    received_ = FixedArray<float>(std::max<std::size_t>(1, static_cast<std::size_t>(set_.replicas() * width)));
    const auto add = [](std::vector<ProcessMessage>& to, int process, float* from, std::int64_t floats) {
        if (floats > 0)
            to.push_back(
                {process, reinterpret_cast<std::byte*>(from), static_cast<std::size_t>(floats) * sizeof(float)});
    };
    for (int p = 0; p < processes_.count(); ++p) {
        if (p == me) continue;
        const auto [begin, end] = set_.columns_of_process(p, set_.network().trained_elements);
        for (int r = 0; r < here; ++r) {
            add(rows_out_, p, set_.row(me * here + r) + begin, end - begin);
            add(rows_in_, p, received_.data() + (p * here + r) * width, width);
        }
        add(average_out_, p, set_.average(0) + slice_.begin, width);
        add(average_in_, p, set_.average(0) + begin, end - begin);
    }
}

template <class A, class D, class T>
bool ProcessRowsAgreement<A, D, T>::agree(int device, SampleCounts& samples, std::int64_t step, bool) {
    if (!Base::exchange_records(device, samples, step)) return false;
    if (moves_slices() && !exchange(device, {"the slices of the gradients", step}, rows_out_, rows_in_)) return false;
    set_.at(device).attempt([&] {
        Base::queue_divisor(device, samples, step);
        average(device, samples, step);
        Base::reduce_columns(device, set_.columns_of(device),
                             [this](int replica, std::int64_t begin) { return row_from(replica, begin); });
    });
    if (!Base::vote(device, step)) return false;
    return !moves_slices() || exchange(device, {"the slices of the average", step}, average_out_, average_in_);
}

template <class A, class D, class T>
bool ProcessRowsAgreement<A, D, T>::exchange(int device, const ExchangeName& name,
                                             std::span<const ProcessMessage> outgoing,
                                             std::span<const ProcessMessage> incoming) {
    return in_all(device, [&] {
        const Stopwatch watch(set_.at(0).worker.times(), StepPart::averaging);
        processes_.exchange(name, outgoing, incoming);
    });
}

template <class A, class D, class T>
void ProcessRowsAgreement<A, D, T>::average(int device, const SampleCounts& samples, std::int64_t step) {
    const auto [begin, end] = set_.columns_of(device);
    if (set_.average_in_place() || begin == end) return;
    const Stopwatch watch(set_.at(device).worker.times(), StepPart::averaging);
    WeightedRows& rows = rows_[static_cast<std::size_t>(device)];
    rows.clear();
    for (int r = 0; r < set_.replicas(); ++r) rows.add(row_from(r, begin), samples.of_replica(step, r));
    policy_.rows.average(
        set_.context(device),
        {.rows = rows.rows(), .samples = rows.samples(), .total_samples = rows.total_samples(), .columns = end - begin},
        set_.average_span(device).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
