// SPDX-License-Identifier: Apache-2.0
//
// ProcessCompressedSumsAgreement: agreement between processes by sums in 16 bits. Each process adds its rows, weighted
// by their samples, and rounds the sum. One process per slice of the columns adds the sums of all processes, in float
// and in the order of the processes, and rounds the result.
//
//   records of all | weighted sum of the own rows | slices of the sums | total of the own slice | slices of the totals
//   | vote
//
// MPI has no 16-bit floating-point type. A reduction by MPI would call a user-defined operation for each pair of sums:
// it would round P - 1 times, in an order that MPI chooses, and its usual algorithms would move as many bytes.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>

#include <cupola/core/fixed_array.hpp>
#include <cupola/net/stopwatch.hpp>
#include <cupola/ops/convert.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/local_devices.hpp>
#include <cupola/parallel/agreement/row_averaging.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/processes/agreement/in_all_processes.hpp>
#include <cupola/processes/agreement/same_training.hpp>
#include <cupola/processes/agreement/slice_messages.hpp>
#include <cupola/processes/agreement/step_records.hpp>
#include <cupola/processes/agreement/step_vote.hpp>
#include <cupola/processes/processes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// `Element` is the type of the sums.
template <class D, class T, class Element>
class ProcessCompressedSumsAgreement final : public RowAveraging<D, T> {
    using Step = DeviceStep<D, T>;
    using ColumnRange = ReplicaPlacement::ColumnRange;
    using Kernels = typename D::Kernels;
    using StepAgreement<D, T>::replicas_;

public:
    [[gnu::cold]] explicit ProcessCompressedSumsAgreement(Replicas<D, T>& replicas);

    [[nodiscard]] Peers& peers() override { return records_.peers(); }
    void wait(int device, std::int64_t step, bool finished) override { local_.wait(device, step, finished); }
    void end(int device) override { local_.end(device); }

    void begin(std::int64_t, const SampleCounts&, std::span<const float> running) override { records_.begin(running); }
    /// Each device reduces its part of the average before the vote.
    bool agree(Step& step) override;
    bool exchange_health(Step& step, std::int32_t finite_here) override {
        return records_.exchange(step) && vote_.vote(step, "the vote on the step", finite_here);
    }
    bool average_rows(Step& step, std::span<const std::int64_t> weights, const float* one, int fragment) override;

private:
    /// Computes the sum of this process's rows in the device's columns, and rounds it. `weights`, unless they are
    /// empty, replace the numbers of samples.
    void add_rows(Step& step, std::span<const std::int64_t> weights = {});
    /// The sums of all processes become the device's columns of the average. False if a process has failed.
    bool exchange_sums(Step& step, std::string_view sums, std::string_view totals);
    /// Converts the totals.
    void take_totals(Step& step);
    /// Replaces this process's sum, in the device's columns of the slice, by the rounded total of all processes.
    void add_sums(Step& step);
    bool exchange(Step& step, std::string_view name, const MessageList<Element>& outgoing,
                  const MessageList<Element>& incoming);

    Processes& processes_;
    LocalDevices<D, T> local_;
    StepRecords<D, T> records_;
    StepVote<D, T> vote_;
    /// The columns that this process adds.
    ColumnRange slice_;
    /// The sums of this process, later the totals; and the slice of the other processes' sums, in the order of the
    /// processes.
    FixedArray<Element> sums_, received_;
    MessageList<Element> sums_out_, sums_in_, totals_out_, totals_in_;
    /// Per device.
    FixedArray<WeightedRows> rows_;
    FixedArray<FixedArray<float>> weights_;
};

template <class A, class D, class T>
    requires(SpansProcesses<A> && sums_of_processes<A> && !std::same_as<MessageElement<A>, float>)
struct AgreementOf<A, D, T> {
    [[nodiscard]] static AgreementTraits traits(const A&, std::int64_t) { return {}; }
    [[nodiscard, gnu::cold]] static std::unique_ptr<RowAveraging<D, T>> make(const A&, Replicas<D, T>& replicas) {
        return std::make_unique<ProcessCompressedSumsAgreement<D, T, MessageElement<A>>>(replicas);
    }
};

template <class D, class T, class Element>
ProcessCompressedSumsAgreement<D, T, Element>::ProcessCompressedSumsAgreement(Replicas<D, T>& replicas)
    : RowAveraging<D, T>(replicas),
      processes_(*replicas.settings().processes),
      local_(replicas),
      records_(replicas, local_),
      vote_(replicas),
      slice_(replicas.placement().columns_of_process(processes_.number(), replicas.network().trained_elements)),
      sums_(replicas.elements()),
      received_(static_cast<std::size_t>((processes_.count() - 1) * (slice_.end - slice_.begin))),
      rows_(static_cast<std::size_t>(replicas.placement().device_count())),
      weights_(rows_.size()) {
    for (WeightedRows& each : rows_) each = WeightedRows(replicas.placement().replicas());
    for (auto& each : weights_) each = FixedArray<float>(static_cast<std::size_t>(replicas.placement().replicas()));
    const std::int64_t width = slice_.end - slice_.begin;
    Element* next = received_.data();
    for (int p = 0; p < processes_.count(); ++p) {
        if (p == processes_.number()) continue;
        const auto [begin, end] = replicas.placement().columns_of_process(p, replicas.network().trained_elements);
        sums_out_.add(p, sums_.data() + begin, end - begin);
        sums_in_.add(p, next, width);
        totals_out_.add(p, sums_.data() + slice_.begin, width);
        totals_in_.add(p, sums_.data() + begin, end - begin);
        next += width;
    }
}

template <class D, class T, class Element>
bool ProcessCompressedSumsAgreement<D, T, Element>::agree(Step& step) {
    if (!records_.exchange(step)) return false;
    const bool alone = replicas_.gradients().in_place();
    step.state.attempt([&] {
        records_.queue_divisor(step);
        if (!alone) add_rows(step);
    });
    if (!alone && !exchange_sums(step, "the slices of the sums", "the slices of the totals")) return false;
    step.state.attempt([&] {
        if (!alone) take_totals(step);
        vote_.reduce_columns(step, part_of_all_columns(replicas_, step.device),
                             [this](int replica, std::int64_t from) { return vote_.row_here(replica, from); });
    });
    return vote_.vote(step);
}

template <class D, class T, class Element>
bool ProcessCompressedSumsAgreement<D, T, Element>::average_rows(Step& step, std::span<const std::int64_t> weights,
                                                                 const float* /*one*/, int /*fragment*/) {
    const bool alone = replicas_.gradients().in_place();
    step.state.attempt([&] { local_.wait_for_queue(step); });
    if (!vote_.vote(step, "the rows of the replicas", 1)) return false;
    if (!alone) {
        step.state.attempt([&] { add_rows(step, weights); });
        if (!exchange_sums(step, "the slices of the rows' sums", "the slices of the rows' totals")) return false;
    }
    step.state.attempt([&] {
        if (!alone) take_totals(step);
        vote_.divide_columns(step, part_of_all_columns(replicas_, step.device), 1);
    });
    return vote_.vote(step, "the vote on the mean");
}

template <class D, class T, class Element>
bool ProcessCompressedSumsAgreement<D, T, Element>::exchange_sums(Step& step, std::string_view sums,
                                                                  std::string_view totals) {
    if (!exchange(step, sums, sums_out_, sums_in_)) return false;
    step.state.attempt([&] { add_sums(step); });
    return exchange(step, totals, totals_out_, totals_in_);
}

template <class D, class T, class Element>
void ProcessCompressedSumsAgreement<D, T, Element>::take_totals(Step& step) {
    const auto [begin, end] = part_of_all_columns(replicas_, step.device);
    const Stopwatch watch(step.state.worker.times(), StepPart::averaging);
    const Element* const totals = sums_.data() + begin;
    ops::Convert<Kernels>::run(step.state.context(), totals, replicas_.gradients().average(step.device) + begin,
                               end - begin);
}

template <class D, class T, class Element>
bool ProcessCompressedSumsAgreement<D, T, Element>::exchange(Step& step, std::string_view name,
                                                             const MessageList<Element>& outgoing,
                                                             const MessageList<Element>& incoming) {
    return average_in_all_processes(step, [&] {
        if (processes_.count() > 1) processes_.exchange({name, step.step}, outgoing.messages(), incoming.messages());
    });
}

template <class D, class T, class Element>
void ProcessCompressedSumsAgreement<D, T, Element>::add_rows(Step& step, std::span<const std::int64_t> of_rows) {
    const int device = step.device;
    const auto [begin, end] = part_of_all_columns(replicas_, device);
    const Stopwatch watch(replicas_.at(device).worker.times(), StepPart::averaging);
    WeightedRows& rows = rows_[static_cast<std::size_t>(device)];
    rows.clear();
    for (int r = replicas_.placement().first_replica(0);
         r < replicas_.placement().first_replica(replicas_.placement().device_count()); ++r)
        rows.add(replicas_.gradients().row(r) + begin, step.samples.of_replica(step.step, r, of_rows));
    const std::int64_t total = of_rows.empty() ? step.samples.of_step(step.step)
                                               : std::accumulate(of_rows.begin(), of_rows.end(), std::int64_t{0});
    FixedArray<float>& weights = weights_[static_cast<std::size_t>(device)];
    const std::size_t count = rows.rows().size();
    for (std::size_t i = 0; i < count; ++i) {
        weights[i] = static_cast<float>(static_cast<double>(rows.samples()[i]) / static_cast<double>(total));
    }
    const std::span<float> sum = replicas_.gradients().average_span(device, {begin, end});
    ops::TrainingStep<Kernels>::weighted_sum(replicas_.context(device), rows.rows(), {weights.data(), count}, sum);
    const float* const from = sum.data();
    ops::Convert<Kernels>::run(replicas_.context(device), from, sums_.data() + begin, end - begin);
}

template <class D, class T, class Element>
void ProcessCompressedSumsAgreement<D, T, Element>::add_sums(Step& step) {
    const int device = step.device;
    const auto [begin, end] = replicas_.gradients().columns_of(device);
    if (begin == end) return;
    auto& context = replicas_.context(device);
    const Stopwatch watch(replicas_.at(device).worker.times(), StepPart::averaging);
    float* const total = replicas_.gradients().average(device) + begin;
    const std::int64_t width = slice_.end - slice_.begin;
    std::int64_t next = begin - slice_.begin;  // index into received_, which is empty in one process
    for (int p = 0; p < processes_.count(); ++p) {
        const Element* from = sums_.data() + begin;
        if (p != processes_.number()) {
            from = received_.data() + next;
            next += width;
        }
        if (p == 0)
            ops::Convert<Kernels>::run(context, from, total, end - begin);
        else
            for_each_element(context, end - begin, AddElement{}, total, from);
    }
    const float* const sum = total;
    ops::Convert<Kernels>::run(context, sum, sums_.data() + begin, end - begin);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
