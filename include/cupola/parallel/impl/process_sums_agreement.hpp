// SPDX-License-Identifier: Apache-2.0
//
// Agreement between processes by sums: each adds its rows, weighted by their samples, and the engine adds the sums of all.
//
//   records of all | weighted sum of the own rows | sum of all processes | vote
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/fixed_array.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/impl/agreement_of.hpp>
#include <cupola/parallel/impl/process_agreement.hpp>
#include <cupola/parallel/impl/replica_placement.hpp>
#include <cupola/parallel/impl/replica_set.hpp>
#include <cupola/parallel/impl/same_training.hpp>
#include <cupola/parallel/impl/sample_counts.hpp>
#include <cupola/parallel/impl/weighted_rows.hpp>
#include <cupola/parallel/processes.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class A, class D, class T>
class ProcessSumsAgreement : public ProcessAgreement<D, T> {
    using Base = ProcessAgreement<D, T>;
    using Base::in_all;
    using Base::processes_;
    using Base::set_;
    using typename Base::ColumnRange;

public:
    [[gnu::cold]] ProcessSumsAgreement(const A&, ReplicaSet<D, T>& set);

    bool agree(int device, SampleCounts& samples, std::int64_t step, bool);

private:
    void add_rows(int device, const SampleCounts& samples, std::int64_t step);

    /// The devices of a process add all columns of its rows.
    [[nodiscard]] ColumnRange columns_of(int device) const {
        return ReplicaPlacement(set_.device_count(), set_.device_count(), false)
            .columns_of(device, set_.network().trained_elements);
    }

    /// Per device.
    FixedArray<WeightedRows> rows_;
    FixedArray<FixedArray<float>> weights_;
};

template <class A, class D, class T>
    requires(SpansProcesses<A> && sums_of_processes<A> && std::same_as<MessageElement<A>, float>)
struct AgreementOf<A, D, T> {
    using Type = ProcessSumsAgreement<A, D, T>;
};

template <class A, class D, class T>
ProcessSumsAgreement<A, D, T>::ProcessSumsAgreement(const A&, ReplicaSet<D, T>& set)
    : Base(set), rows_(static_cast<std::size_t>(set.device_count())), weights_(rows_.size()) {
    for (WeightedRows& each : rows_) each = WeightedRows(set.replicas());
    for (auto& each : weights_) each = FixedArray<float>(static_cast<std::size_t>(set.replicas()));
}

template <class A, class D, class T>
bool ProcessSumsAgreement<A, D, T>::agree(int device, SampleCounts& samples, std::int64_t step, bool) {
    if (!Base::exchange_records(device, samples, step)) return false;
    auto& state = set_.at(device);
    state.attempt([&] {
        Base::queue_divisor(device, samples, step);
        add_rows(device, samples, step);
    });
    if (!in_all(device, [&] {
            if (!set_.first_error()) processes_.sum({"the sum of the gradients", step}, set_.average_span(0));
        }))
        return false;
    state.attempt([&] {
        Base::reduce_columns(device, columns_of(device), [this](int replica, std::int64_t begin) -> const float* {
            return set_.is_here(replica) ? set_.row(replica) + begin : nullptr;
        });
    });
    return Base::vote(device, step);
}

template <class A, class D, class T>
void ProcessSumsAgreement<A, D, T>::add_rows(int device, const SampleCounts& samples, std::int64_t step) {
    const auto [begin, end] = columns_of(device);
    if (set_.average_in_place() || begin == end) return;
    const Stopwatch watch(set_.at(device).worker.times(), StepPart::averaging);
    WeightedRows& rows = rows_[static_cast<std::size_t>(device)];
    rows.clear();
    for (int r = set_.first_replica(0); r < set_.first_replica(set_.device_count()); ++r)
        rows.add(set_.row(r) + begin, samples.of_replica(step, r));
    FixedArray<float>& weights = weights_[static_cast<std::size_t>(device)];
    const std::size_t count = rows.rows().size();
    for (std::size_t i = 0; i < count; ++i) {
        weights[i] =
            static_cast<float>(static_cast<double>(rows.samples()[i]) / static_cast<double>(samples.of_step(step)));
    }
    ops::TrainingStep<typename D::Kernels>::weighted_sum(
        set_.context(device), rows.rows(), {weights.data(), count},
        set_.average_span(device).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
