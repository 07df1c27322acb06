// SPDX-License-Identifier: Apache-2.0
//
// LocalDevices: how the devices of this process wait for each other and for their queues, weigh the samples of a step,
// and find out whether all results are finite: what the agreements of one process are made of, with RowsPolicy, a
// function of the gradient rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/device/wait_until.hpp>
#include <cupola/net/stopwatch.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/replicas/status.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// An averaging policy without its type. Its members are called once per step and device, prepare() once per row.
template <class Kernels>
class RowsPolicy {
public:
    using Context = typename Kernels::Context;

    RowsPolicy(const RowsPolicy&) = delete;
    RowsPolicy& operator=(const RowsPolicy&) = delete;
    virtual ~RowsPolicy() = default;
    /// Whether prepare() changes a row.
    const bool prepares;
    virtual void prepare(Context& context, std::span<float> row) const = 0;
    virtual void average(Context& context, const GradientRows& gradients, std::span<float> mean) const = 0;

protected:
    explicit RowsPolicy(bool prepares_rows) : prepares(prepares_rows) {}
};

template <class A, class Kernels>
class RowsPolicyOf final : public RowsPolicy<Kernels> {
    using typename RowsPolicy<Kernels>::Context;

public:
    explicit RowsPolicyOf(const A& policy) : RowsPolicy<Kernels>(PreparesRows<A, Kernels>), policy_(policy) {}
    void prepare([[maybe_unused]] Context& context, [[maybe_unused]] std::span<float> row) const override {
        if constexpr (PreparesRows<A, Kernels>) policy_.prepare(context, row);
    }
    void average(Context& context, const GradientRows& gradients, std::span<float> mean) const override {
        policy_.average(context, gradients, mean);
    }

private:
    A policy_;
};

/// A copy of a policy.
template <class Kernels, class A>
[[nodiscard, gnu::cold]] std::unique_ptr<const RowsPolicy<Kernels>> rows_policy(const A& policy) {
    return std::make_unique<RowsPolicyOf<A, Kernels>>(policy);
}

/// The deadline of a wait, which is longer than any step.
inline constexpr double max_step_seconds = 600;

/// Members with a DeviceStep or a `device` are called on that device's thread.
template <class D, class T>
class LocalDevices {
    using Step = DeviceStep<D, T>;

public:
    [[gnu::cold]] explicit LocalDevices(Replicas<D, T>& replicas)
        : replicas_(replicas),
          finite_(static_cast<std::size_t>(replicas.placement().device_count())),
          weights_(finite_.size()) {}

    /// Returns when the step has finished, or the queue's mark is reached.
    void wait(int device, std::int64_t step, bool finished);
    /// Returns when all queued work of the device is complete.
    void wait_for_queue(Step& step) {
        step.state.queue->mark();
        wait(step.device, step.step, false);
    }
    /// Returns when no queued work runs any more, whether it succeeded or not.
    void end(int device);

    /// Queues what a policy that prepares rows does with each row of the device before they are averaged. `weights`,
    /// unless they are empty, replace the numbers of samples.
    void prepare_rows(const RowsPolicy<typename D::Kernels>& policy, Step& step,
                      std::span<const std::int64_t> weights = {});

    /// Where the loss has weights, makes the divisor that of the step, in two parts. Before the device's barrier, once
    /// its work is complete, the first reads the weight of the device's samples; the second adds all devices' weights.
    void read_weight(int device);
    void queue_divisor(Step& step);

    /// The flag in which a device's work records, before a barrier, whether its results are finite; set to 1 here.
    [[nodiscard]] std::int32_t* finite(int device);
    /// After the barrier: a value on one device that is not finite prevents the update of every device.
    void update_only_if_all_finite(int device);

private:
    Replicas<D, T>& replicas_;
    /// The flag of each device, at an address that the host reads.
    FixedArray<std::int32_t> finite_;
    /// The weight of each device's samples.
    FixedArray<double> weights_;
};

template <class D, class T>
void LocalDevices<D, T>::end(int device) {
    try {
        auto& state = replicas_.at(device);
        if (state.parts != nullptr) {
            state.queue->mark();
            wait(device, 0, false);
        }
        state.queue->synchronize();
    } catch (const Error&) {  // the work of a device that failed has ended too
    }
}

template <class D, class T>
void LocalDevices<D, T>::wait(int device, std::int64_t step, bool finished) {
    typename D::Queue& queue = *replicas_.at(device).queue;
    const auto* const parts = replicas_.at(device).parts.get();
    const auto happened = [&] {
        if (finished ? queue.finished(step) : queue.reached()) return true;
        if (parts != nullptr) parts->require_working();
        return false;
    };
    wait_until(happened, max_step_seconds, "device ", device, " has not finished step ", step, " after ",
               max_step_seconds, " s");
}

template <class D, class T>
void LocalDevices<D, T>::prepare_rows(const RowsPolicy<typename D::Kernels>& policy, Step& step,
                                      std::span<const std::int64_t> weights) {
    if (replicas_.gradients().in_place()) return;
    const Stopwatch watch(step.state.worker.times(), StepPart::averaging);
    const int device = step.device;
    for (int r = replicas_.placement().first_replica(device); r < replicas_.placement().first_replica(device + 1);
         ++r) {
        if (step.samples.of_replica(step.step, r, weights) == 0) continue;
        const std::span<float> row(replicas_.gradients().row(r), replicas_.elements());
        step.state.queue->queue([this, &policy, device, row] { policy.prepare(replicas_.context(device), row); });
    }
}

template <class D, class T>
void LocalDevices<D, T>::read_weight(int device) {
    if (!replicas_.settings().weighted) return;
    double& weight = weights_[static_cast<std::size_t>(device)];
    weight = 0;
    std::vector<LossReport> copy;
    auto& state = replicas_.at(device);
    const std::span<const LossReport> reports = state.reports();
    for (const LossReport& each : state.queue->on_host(state.context(), reports.data(), reports.size(), copy))
        weight += each.weight;
}

template <class D, class T>
void LocalDevices<D, T>::queue_divisor(Step& step) {
    if (!replicas_.settings().weighted) return;
    double weight = 0;
    for (const double each : weights_) weight += each;
    // As weigh() of a single device computes it.
    const double divisor =
        replicas_.settings().constant_loss_scale() / static_cast<double>(step.samples.of_step(step.step)) * weight;
    step.state.queue->write(&step.state.status()->divisor, static_cast<float>(divisor));
}

template <class D, class T>
auto LocalDevices<D, T>::finite(int device) -> std::int32_t* {
    std::int32_t& flag = finite_[static_cast<std::size_t>(device)];
    flag = 1;
    return &flag;
}

template <class D, class T>
void LocalDevices<D, T>::update_only_if_all_finite(int device) {
    if (std::all_of(finite_.begin(), finite_.end(), [](auto each) { return each != 0; })) return;
    auto& state = replicas_.at(device);
    state.queue->write(&state.status()->healthy, std::int32_t{0});
}

}}}  // namespace cupola::CUPOLA_ABI::impl
