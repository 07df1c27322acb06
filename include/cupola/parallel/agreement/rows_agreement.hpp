// SPDX-License-Identifier: Apache-2.0
//
// RowsAgreement: agreement by a function of the gradient rows: each device averages its slice of the columns. The
// function is called without its type, so the agreement too is compiled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <cupola/net/stopwatch.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/agreement/local_devices.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Defined in parallel/kinds/centre_rows.hpp.
template <class D, class T>
class CentreRows;

template <class D, class T>
class RowsAgreement final : public StepAgreement<D, T> {
    using Kernels = typename D::Kernels;
    using Step = DeviceStep<D, T>;
    using StepAgreement<D, T>::replicas_;
    friend class CentreRows<D, T>;

public:
    [[gnu::cold]] RowsAgreement(std::unique_ptr<const RowsPolicy<Kernels>> policy, Replicas<D, T>& replicas);
    [[gnu::cold]] ~RowsAgreement() override;

    [[nodiscard]] Peers& peers() override { return none_; }
    void wait(int device, std::int64_t step, bool finished) override { local_.wait(device, step, finished); }
    void end(int device) override { local_.end(device); }

    /// Averages after the rows of the device's replicas are queued. Returns false if another device has failed, so that
    /// this one leaves the step too.
    bool agree(Step& step) override;
    /// Inside the update's work: divides by the loss scale, and records whether the average is finite.
    void reduce(int device, std::int64_t step) override;

private:
    static void require_samples(const Step& step) {
        require(step.samples.of_step(step.step) > 0, "step ", step.step, " has no samples on any replica");
    }

    bool agree_alone(Step& step);
    /// With several devices, after the barrier at which all rows are complete: each averages its slice of the columns,
    /// calls queue_mean(slice, finite, begin) in the host's memory, and receives the slices of the others.
    template <class QueueMean>
    bool average_slices(Step& step, std::span<const std::int64_t> weights, QueueMean&& queue_mean,
                        ReplicaPlacement::ColumnRange columns);

    /// `part` is the average from column `begin` on.
    void mean(int device, std::span<float> part, std::int32_t* finite, std::int64_t begin);

    /// `weights`, unless they are empty, replace the numbers of samples.
    void average(Step& step, std::int64_t begin, std::int64_t end, std::span<const std::int64_t> weights = {});

    /// Copies a slice of the average from the device that made it.
    void copy_slice(int to, int from, std::int64_t begin, std::int64_t end);

    std::unique_ptr<const RowsPolicy<Kernels>> policy_;
    LocalDevices<D, T> local_;
    Peers none_;
    /// Per device and step in flight.
    FixedArray<WeightedRows> rows_;
};

template <class A, class D, class T>
    requires AveragesRows<A, typename D::Kernels>
struct AgreementOf<A, D, T> {
    [[nodiscard]] static AgreementTraits traits(const A&, std::int64_t) { return {}; }
    [[nodiscard, gnu::cold]] static std::unique_ptr<StepAgreement<D, T>> make(const A& policy,
                                                                              Replicas<D, T>& replicas) {
        return std::make_unique<RowsAgreement<D, T>>(rows_policy<typename D::Kernels>(policy), replicas);
    }
};

template <class D, class T>
RowsAgreement<D, T>::RowsAgreement(std::unique_ptr<const RowsPolicy<Kernels>> policy, Replicas<D, T>& replicas)
    : StepAgreement<D, T>(replicas),
      policy_(std::move(policy)),
      local_(replicas),
      rows_(static_cast<std::size_t>(replicas.placement().device_count() * D::max_steps_in_flight)) {
    for (WeightedRows& each : rows_) each = WeightedRows(replicas.placement().replicas());
}
template <class D, class T>
RowsAgreement<D, T>::~RowsAgreement() = default;

template <class D, class T>
bool RowsAgreement<D, T>::agree(Step& step) {
    if (replicas_.placement().device_count() == 1) return agree_alone(step);
    const int device = step.device;
    // Other devices read the rows and slices, so each is waited for on the device that made it.
    step.state.attempt([&] {
        if (policy_->prepares) local_.prepare_rows(*policy_, step);
        local_.wait_for_queue(step);
        local_.read_weight(device);
    });
    if (!replicas_.arrive_and_wait(device)) return false;
    step.state.attempt([&] {
        require_samples(step);
        local_.queue_divisor(step);
    });
    return average_slices(step, {},
                          [this, device](std::span<float> slice, std::int32_t* finite, std::int64_t begin) {
                              mean(device, slice, finite, begin);
                          },
                          {0, replicas_.network().trained_elements});
}

template <class D, class T>
template <class QueueMean>
bool RowsAgreement<D, T>::average_slices(Step& step, std::span<const std::int64_t> weights, QueueMean&& queue_mean,
                                         ReplicaPlacement::ColumnRange columns) {
    const int device = step.device;
    const auto [begin, end] = replicas_.placement().columns_of(device, columns);
    std::int32_t* const finite = local_.finite(device);
    step.state.attempt([&, begin = begin, end = end] {
        average(step, begin, end, weights);
        if (D::host_memory) {
            const auto slice = replicas_.gradients().average_span(device, {begin, end});
            step.state.queue->queue([=] { queue_mean(slice, finite, begin); });
        }
        local_.wait_for_queue(step);
    });
    if (!replicas_.arrive_and_wait(device)) return false;
    if (D::host_memory) {
        local_.update_only_if_all_finite(device);
        return true;
    }
    step.state.attempt([&] {
        for (int other = 0; other < replicas_.placement().device_count(); ++other) {
            if (other == device) continue;
            const auto [from, to] = replicas_.placement().columns_of(other, columns);
            copy_slice(device, other, from, to);
        }
        local_.wait_for_queue(step);
    });
    return replicas_.arrive_and_wait(device);  // reduce() changes values that the others have read by then
}

template <class D, class T>
bool RowsAgreement<D, T>::agree_alone(Step& step) {
    step.state.attempt([&] {
        require_samples(step);
        if (policy_->prepares) local_.prepare_rows(*policy_, step);
        // Other work between the passes and the update would keep a queue from repeating both together.
        if (replicas_.settings().weighted) {
            const double scale =
                replicas_.settings().constant_loss_scale() / static_cast<double>(step.samples.of_step(step.step));
            step.state.queue->queue([this, device = step.device, scale] { replicas_.at(device).weigh(scale); });
        }
        // If a device of a group fails, this wait ends with the error, before a wait of the policy.
        if (!D::host_memory && step.state.parts != nullptr && !replicas_.gradients().in_place())
            local_.wait_for_queue(step);
        average(step, 0, replicas_.network().trained_elements);
    });
    return step.state.error == nullptr;
}

template <class D, class T>
void RowsAgreement<D, T>::reduce(int device, std::int64_t /*step*/) {
    if (D::host_memory && replicas_.placement().device_count() > 1) return;  // each device has reduced its slice
    auto& state = replicas_.at(device);
    const Stopwatch watch(state.worker.times(), StepPart::averaging);
    mean(device, replicas_.gradients().average_span(device), &state.status()->healthy, 0);
}

template <class D, class T>
void RowsAgreement<D, T>::mean(int device, std::span<float> part, std::int32_t* finite, std::int64_t begin) {
    auto& state = replicas_.at(device);
    // After a barrier, and before they are written again, the device reads the rows of all devices in its memory.
    const ReplicaPlacement& placement = replicas_.placement();
    const int first = placement.first_replica(D::host_memory ? 0 : device),
              last = placement.first_replica(D::host_memory ? placement.device_count() : device + 1);
    unsigned long long* const ends = state.layout.not_finite(state.queue->status(), first);
    ops::TrainingStep<Kernels>::mean(state.context(), part, &state.status()->divisor, part, finite,
                                     replicas_.gradients().rows_of_mean(first, last, begin, ends),
                                     scale_on_device(replicas_, device));
}

template <class D, class T>
void RowsAgreement<D, T>::average(Step& step, std::int64_t begin, std::int64_t end,
                                  std::span<const std::int64_t> weights) {
    if (replicas_.gradients().in_place()) return;
    const Stopwatch watch(step.state.worker.times(), StepPart::averaging);
    // Valid until the step that replaces this one is queued.
    WeightedRows& rows =
        rows_[static_cast<std::size_t>(step.device * D::max_steps_in_flight + step.step % D::max_steps_in_flight)];
    rows.clear();
    for (int r = 0; r < replicas_.placement().replicas(); ++r)
        rows.add(replicas_.gradients().row(r) + begin, step.samples.of_replica(step.step, r, weights));
    const std::span<float> mean(replicas_.gradients().average(step.device) + begin,
                                static_cast<std::size_t>(end - begin));
    const GradientRows given{
        .rows = rows.rows(), .samples = rows.samples(), .total_samples = rows.total_samples(), .columns = end - begin};
    step.state.queue->queue(
        [this, device = step.device, given, mean] { policy_->average(replicas_.context(device), given, mean); });
}

template <class D, class T>
void RowsAgreement<D, T>::copy_slice(int to, int from, std::int64_t begin, std::int64_t end) {
    Kernels::copy_between(replicas_.context(to), replicas_.gradients().average(to) + begin,
                          replicas_.gradients().average(from) + begin,
                          static_cast<std::size_t>(end - begin) * sizeof(float));
}

}}}  // namespace cupola::CUPOLA_ABI::impl
