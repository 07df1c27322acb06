// SPDX-License-Identifier: Apache-2.0
//
// AgreementInProcess: the common part of the agreements that wait for nothing but the devices of this process while a step is
// queued.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/device/wait_until.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/replicas/status.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The deadline of a wait, which is longer than any step.
inline constexpr double max_step_seconds = 600;

template <class D, class T>
class AgreementInProcess {
public:
    static constexpr bool separate_average = false, own_parameters = false, takes_buckets = false;
    [[nodiscard]] static std::int64_t sums(std::int64_t) { return 0; }
    template <class A>
    [[nodiscard]] static std::int64_t bucket_elements(const A&) {
        return 0;
    }

    explicit AgreementInProcess(Replicas<D, T>& replicas)
        : replicas_(replicas),
          finite_(static_cast<std::size_t>(replicas.placement().device_count())),
          weights_(finite_.size()) {}

    [[nodiscard]] bool healthy() const { return true; }
    /// The other processes of the training.
    [[nodiscard]] Peers& peers() { return none_; }
    /// Called before the passes of a step are queued.
    void begin_step(const SampleCounts&, std::int64_t) {}
    void break_off(int, std::int64_t, const std::string&) {}
    /// The gradient of each replica's update is its device's average.
    [[nodiscard]] const float* gradient_of(int device, int) const { return replicas_.gradients().average(device); }
    /// The divisor of the average of a device, in its memory.
    [[nodiscard]] const float* divisor_of(int, std::byte* block) const { return &step_status(block)->divisor; }
    void after_update(int, std::int64_t) {}
    /// Returns when no queued work runs any more, whether it succeeded or not; on the device's thread.
    void end(int device);
    /// Returns when the step has finished, or the queue's mark is reached; on the device's thread.
    void wait(int device, std::int64_t step, bool finished);

protected:
    /// Queues what the policy of the rows does with each row of the device before they are averaged.
    template <class A>
    void prepare_rows(const A& policy, int device, const SampleCounts& samples, std::int64_t step);

    /// Returns when all queued work of the device is complete.
    void wait_for_queue(int device, std::int64_t step);

    /// Where the loss has weights, makes the divisor that of a step of `samples`, in two parts. Before the device's barrier,
    /// once its work is complete, the first reads the weight of the device's samples; the second adds all devices' weights.
    void read_weight(int device);
    void queue_divisor(int device, std::int64_t samples);

    /// The flag in which a device's work records, before a barrier, whether its results are finite; set to 1 here.
    [[nodiscard]] std::int32_t* finite(int device);
    /// After the barrier: a value on one device that is not finite prevents the update of every device.
    void update_only_if_all_finite(int device);

    Replicas<D, T>& replicas_;

private:
    /// The flag of each device, at an address that the host reads.
    FixedArray<std::int32_t> finite_;
    /// The weight of each device's samples.
    FixedArray<double> weights_;
    Peers none_;
};

template <class D, class T>
void AgreementInProcess<D, T>::end(int device) {
    try {
        replicas_.at(device).queue->synchronize();
    } catch (const Error&) {  // the work of a device that failed has ended too
    }
}

template <class D, class T>
void AgreementInProcess<D, T>::wait(int device, std::int64_t step, bool finished) {
    typename D::Queue& queue = *replicas_.at(device).queue;
    wait_until([&] { return finished ? queue.finished(step) : queue.reached(); }, max_step_seconds, "device ", device,
               " has not finished step ", step, " after ", max_step_seconds, " s");
}

template <class D, class T>
template <class A>
void AgreementInProcess<D, T>::prepare_rows([[maybe_unused]] const A& policy, [[maybe_unused]] int device,
                                            [[maybe_unused]] const SampleCounts& samples,
                                            [[maybe_unused]] std::int64_t step) {
    if constexpr (PreparesRows<A, typename D::Kernels>) {
        if (replicas_.gradients().in_place()) return;
        auto& state = replicas_.at(device);
        const Stopwatch watch(state.worker.times(), StepPart::averaging);
        for (int r = replicas_.placement().first_replica(device); r < replicas_.placement().first_replica(device + 1);
             ++r) {
            if (samples.of_replica(step, r) == 0) continue;
            const std::span<float> row(replicas_.gradients().row(r), replicas_.elements());
            state.queue->queue([this, &policy, device, row] { policy.prepare(replicas_.context(device), row); });
        }
    }
}

template <class D, class T>
void AgreementInProcess<D, T>::wait_for_queue(int device, std::int64_t step) {
    replicas_.at(device).queue->mark();
    wait(device, step, false);
}

template <class D, class T>
void AgreementInProcess<D, T>::read_weight(int device) {
    if (!replicas_.settings().weighted) return;
    double& weight = weights_[static_cast<std::size_t>(device)];
    weight = 0;
    std::vector<LossReport> copy;
    const std::span<const LossReport> reports = replicas_.at(device).reports();
    for (const LossReport& each :
         replicas_.at(device).queue->on_host(replicas_.context(device), reports.data(), reports.size(), copy))
        weight += each.weight;
}

template <class D, class T>
void AgreementInProcess<D, T>::queue_divisor(int device, std::int64_t samples) {
    if (!replicas_.settings().weighted) return;
    typename D::Queue& queue = *replicas_.at(device).queue;
    double weight = 0;
    for (const double each : weights_) weight += each;
    // As weigh() of a single device computes it.
    const double divisor = replicas_.settings().constant_loss_scale() / static_cast<double>(samples) * weight;
    queue.write(&step_status(queue.status())->divisor, static_cast<float>(divisor));
}

template <class D, class T>
auto AgreementInProcess<D, T>::finite(int device) -> std::int32_t* {
    std::int32_t& flag = finite_[static_cast<std::size_t>(device)];
    flag = 1;
    return &flag;
}

template <class D, class T>
void AgreementInProcess<D, T>::update_only_if_all_finite(int device) {
    if (std::all_of(finite_.begin(), finite_.end(), [](auto each) { return each != 0; })) return;
    typename D::Queue& queue = *replicas_.at(device).queue;
    queue.write(&step_status(queue.status())->healthy, std::int32_t{0});
}

}}}  // namespace cupola::CUPOLA_ABI::impl
