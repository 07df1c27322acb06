// SPDX-License-Identifier: Apache-2.0
//
// ProcessRowsAgreement: agreement between processes by the gradient rows. Each process averages one slice of the
// columns with the policy's function, over the rows of all processes in the order of the replicas: the bits of one
// process.
//
//   records of all | (slices of the rows) | mean of the own slice | vote | (slices of the mean)
//
// If the processes share memory, all rows and the average are in it, and the exchanges in parentheses are omitted. Rows
// that the policy prepares are ready before the records are exchanged.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/net/stopwatch.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/local_devices.hpp>
#include <cupola/parallel/agreement/row_averaging.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/replicas/status.hpp>
#include <cupola/processes/agreement/in_all_processes.hpp>
#include <cupola/processes/agreement/same_training.hpp>
#include <cupola/processes/agreement/slice_messages.hpp>
#include <cupola/processes/agreement/step_records.hpp>
#include <cupola/processes/agreement/step_vote.hpp>
#include <cupola/processes/processes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// `Element` is the type that rows and averages have in messages.
template <class D, class T, class Element>
class ProcessRowsAgreement final : public RowAveraging<D, T> {
    using Step = DeviceStep<D, T>;
    using Policy = RowsPolicy<typename D::Kernels>;
    using typename RowAveraging<D, T>::ColumnRange;
    using Messages = SliceMessages<D, T, Element>;
    using StepAgreement<D, T>::replicas_;

public:
    [[gnu::cold]] ProcessRowsAgreement(std::unique_ptr<const Policy> policy, Replicas<D, T>& replicas);

    [[nodiscard]] Peers& peers() override { return records_.peers(); }
    void wait(int device, std::int64_t step, bool finished) override { local_.wait(device, step, finished); }
    void end(int device) override { local_.end(device); }

    void begin(std::int64_t, const SampleCounts&, std::span<const float> running) override { records_.begin(running); }
    /// Each device reduces its part of the average before the vote.
    bool agree(Step& step) override;
    bool exchange_health(Step& step, std::int32_t finite_here) override {
        return records_.exchange(step) && vote_.vote(step, "the vote on the step", finite_here);
    }
    [[nodiscard, gnu::cold]] bool divide(std::span<const ColumnRange> fragments) override;
    bool average_rows(Step& step, std::span<const std::int64_t> weights, const float* one, int fragment) override;

private:
    /// Exchanges the slices, and calls average() and, before the vote, `reduce`, which divides by `divisor()` what this
    /// process averages. If the processes share memory, all rows must be complete.
    bool average_slices(Step& step, Messages& messages, std::string_view rows, std::string_view average,
                        std::string_view vote, FunctionRef<void()> reduce, FunctionRef<float()> divisor);
    /// The device's `columns`. `weights`, unless they are empty, replace the numbers of samples.
    void average(Step& step, Messages& messages, ColumnRange columns, std::span<const std::int64_t> weights = {});

    /// A replica's gradient, from column `begin` of this process's slice.
    [[nodiscard]] const float* row_from(const Messages& messages, int replica, std::int64_t begin) const {
        if (const float* const row = replicas_.gradients().row(replica)) return row + begin;
        return messages.row(replica, begin);
    }
    bool exchange(Step& step, std::string_view name, std::span<const ProcessMessage> outgoing,
                  std::span<const ProcessMessage> incoming);

    std::unique_ptr<const Policy> policy_;
    Processes& processes_;
    LocalDevices<D, T> local_;
    StepRecords<D, T> records_;
    StepVote<D, T> vote_;
    /// Empty if all rows are in shared memory.
    Messages messages_;
    /// Those of each fragment of the columns.
    FixedArray<Messages> of_fragments_;
    /// Per device.
    FixedArray<WeightedRows> rows_;
};

template <class A, class D, class T>
    requires(SpansProcesses<A> && !sums_of_processes<A>)
struct AgreementOf<A, D, T> {
    [[nodiscard]] static AgreementTraits traits(const A&, std::int64_t) { return {.averages_rows_of_all = true}; }
    [[nodiscard, gnu::cold]] static std::unique_ptr<RowAveraging<D, T>> make(const A& policy,
                                                                             Replicas<D, T>& replicas) {
        return std::make_unique<ProcessRowsAgreement<D, T, MessageElement<A>>>(
            rows_policy<typename D::Kernels, typename A::Rows>(policy.rows), replicas);
    }
};

template <class D, class T, class Element>
ProcessRowsAgreement<D, T, Element>::ProcessRowsAgreement(std::unique_ptr<const Policy> policy,
                                                          Replicas<D, T>& replicas)
    : RowAveraging<D, T>(replicas),
      policy_(std::move(policy)),
      processes_(*replicas.settings().processes),
      local_(replicas),
      records_(replicas, local_),
      vote_(replicas),
      rows_(static_cast<std::size_t>(replicas.placement().device_count())) {
    for (WeightedRows& each : rows_) each = WeightedRows(replicas.placement().replicas());
    const int next = (processes_.number() + 1) % processes_.count();
    const bool in_common = replicas.gradients().row(replicas.placement().first_replica_of_process(next)) != nullptr;
    if (!in_common) messages_ = {replicas, this->all_columns(), processes_};
}

template <class D, class T, class Element>
bool ProcessRowsAgreement<D, T, Element>::divide(std::span<const ColumnRange> fragments) {
    // The buffers of other messages are those of whole rows.
    if constexpr (!std::same_as<Element, float>) return false;
    this->fragments_ = fragments;
    of_fragments_ = FixedArray<Messages>(fragments.size());
    for (std::size_t f = 0; messages_.any() && f < fragments.size(); ++f)
        of_fragments_[f] = {replicas_, fragments[f], processes_};
    return true;
}

template <class D, class T, class Element>
bool ProcessRowsAgreement<D, T, Element>::agree(Step& step) {
    auto& state = step.state;
    if (policy_->prepares) state.attempt([&] { local_.prepare_rows(*policy_, step); });
    if (!records_.exchange(step)) return false;
    return average_slices(
        step, messages_, "the slices of the gradients", "the slices of the average", "the vote on the step",
        [&] {
            records_.queue_divisor(step);
            const ColumnRange columns = replicas_.gradients().columns_of(step.device);
            average(step, messages_, columns);
            vote_.reduce_columns(
                step, columns, [this](int replica, std::int64_t begin) { return row_from(messages_, replica, begin); });
        },
        [&] {
            const float divisor = state.status()->divisor;
            const float* const scale = scale_on_device(replicas_, step.device);
            return scale == nullptr ? divisor : divisor * *scale;
        });
}

template <class D, class T, class Element>
bool ProcessRowsAgreement<D, T, Element>::average_rows(Step& step, std::span<const std::int64_t> weights,
                                                       const float* /*one*/, int fragment) {
    Messages& messages = this->fragments_.empty() ? messages_ : of_fragments_[static_cast<std::size_t>(fragment)];
    const ColumnRange columns = replicas_.placement().columns_of(step.device, this->columns_of_fragment(fragment));
    step.state.attempt([&] {
        if (policy_->prepares) local_.prepare_rows(*policy_, step, weights);
        local_.wait_for_queue(step);
    });
    if (!vote_.vote(step, "the rows of the replicas", 1)) return false;
    return average_slices(
        step, messages, "the slices of the rows", "the slices of the mean", "the vote on the mean",
        [&] {
            average(step, messages, columns, weights);
            vote_.divide_columns(step, columns, 1);
        },
        [] { return 1.0F; });
}

template <class D, class T, class Element>
bool ProcessRowsAgreement<D, T, Element>::average_slices(Step& step, Messages& messages, std::string_view rows,
                                                         std::string_view average_of_rows, std::string_view vote,
                                                         FunctionRef<void()> reduce, FunctionRef<float()> divisor) {
    auto& state = step.state;
    if (messages.any()) {
        state.attempt([&] {
            const Stopwatch watch(state.worker.times(), StepPart::averaging);
            messages.pack_rows(replicas_, step.device);
        });
        if (!exchange(step, rows, messages.rows_out(), messages.rows_in())) return false;
    }
    state.attempt(reduce);
    if (!vote_.vote(step, vote)) return false;
    if (!messages.any()) return true;
    if (!exchange(step, average_of_rows, messages.average_out(), messages.average_in())) return false;
    if constexpr (!std::same_as<Element, float>) {
        {
            const Stopwatch watch(state.worker.times(), StepPart::averaging);
            messages.unpack_average(replicas_, step.device, divisor());
        }
        return replicas_.arrive_and_wait(step.device);
    }
    return true;
}

template <class D, class T, class Element>
bool ProcessRowsAgreement<D, T, Element>::exchange(Step& step, std::string_view name,
                                                   std::span<const ProcessMessage> outgoing,
                                                   std::span<const ProcessMessage> incoming) {
    return average_in_all_processes(step, [&] { processes_.exchange({name, step.step}, outgoing, incoming); });
}

template <class D, class T, class Element>
void ProcessRowsAgreement<D, T, Element>::average(Step& step, Messages& messages, ColumnRange columns,
                                                  std::span<const std::int64_t> weights) {
    const auto [begin, end] = columns;
    if (replicas_.gradients().in_place() || begin == end) return;
    const Stopwatch watch(step.state.worker.times(), StepPart::averaging);
    WeightedRows& rows = rows_[static_cast<std::size_t>(step.device)];
    rows.clear();
    if (messages.any()) messages.unpack_rows(replicas_, step.device, {begin, end});
    for (int r = 0; r < replicas_.placement().replicas(); ++r)
        rows.add(row_from(messages, r, begin), step.samples.of_replica(step.step, r, weights));
    policy_->average(
        step.state.context(),
        {.rows = rows.rows(), .samples = rows.samples(), .total_samples = rows.total_samples(), .columns = end - begin},
        replicas_.gradients().average_span(step.device, columns));
    if (messages.any()) messages.pack_average(replicas_, step.device, {begin, end});
}

}}}  // namespace cupola::CUPOLA_ABI::impl
