// SPDX-License-Identifier: Apache-2.0
//
// Agreement by a function of the gradient rows: each device averages its slice of the columns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include <cupola/core/fixed_array.hpp>
#include <cupola/device/wait_until.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/impl/replica_set.hpp>
#include <cupola/parallel/impl/sample_counts.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// The deadline of a wait, which is longer than any step.
inline constexpr double max_step_seconds = 600;

/// The common part of the agreements within one process: they wait for nothing but the device.
template <class D, class T>
class AgreementInProcess {
public:
    explicit AgreementInProcess(ReplicaSet<D, T>& set)
        : set_(set), finite_(static_cast<std::size_t>(set.device_count())), weights_(finite_.size()) {}

    [[nodiscard]] int first_replica() const { return 0; }
    [[nodiscard]] int all_replicas() const { return set_.replicas(); }
    /// Whether this process has the samples and losses of all replicas.
    [[nodiscard]] bool sees_all_replicas() const { return true; }
    [[nodiscard]] bool healthy() const { return true; }
    void break_off(int, std::int64_t, const std::string&) {}
    /// Returns when no queued work runs any more, whether it succeeded or not; on the device's thread.
    void end(int device);
    /// Returns when the step has finished, or the queue's mark is reached; on the device's thread.
    void wait(int device, std::int64_t step, bool finished);

protected:
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

    ReplicaSet<D, T>& set_;

private:
    /// The flag of each device, at an address that the host reads.
    FixedArray<std::int32_t> finite_;
    /// The weight of each device's samples.
    FixedArray<double> weights_;
};

template <class A, class D, class T>
class RowsAgreement : public AgreementInProcess<D, T> {
    using Kernels = typename D::Kernels;
    using Base = AgreementInProcess<D, T>;
    using Base::set_;

public:
    static constexpr bool separate_average = false, own_parameters = false, takes_buckets = false;
    [[nodiscard]] static std::int64_t sums(std::int64_t) { return 0; }
    [[nodiscard]] static std::int64_t bucket_elements(const A&) { return 0; }

    RowsAgreement(const A& policy, ReplicaSet<D, T>& set) : Base(set), policy_(policy) {}

    /// Averages after the rows of the device's replicas are queued. Returns false if another device has failed, so that
    /// this one leaves the step too.
    bool agree(int device, const SampleCounts& samples, std::int64_t step, bool);

    /// Inside the update's work: divides by the loss scale, and records whether the average is finite.
    void reduce(int device, std::byte* block);

    /// The gradient of each replica's update is its device's average.
    [[nodiscard]] const float* gradient_of(int device, int) const { return set_.average(device); }
    void after_update(int, std::int64_t) {}

private:
    static void require_samples(const SampleCounts& samples, std::int64_t step) {
        require(samples.of_step(step) > 0, "step ", step, " has no samples on any replica");
    }

    /// `part` is the average from column `begin` on.
    void mean(int device, std::byte* block, std::span<float> part, std::int32_t* finite, std::int64_t begin);

    void average(int device, const SampleCounts& samples, std::int64_t step, std::int64_t begin, std::int64_t end);

    /// Copies a slice of the average from the device that made it.
    void copy_slice(int to, int from, std::int64_t begin, std::int64_t end);

    A policy_;
};

template <class D, class T>
void AgreementInProcess<D, T>::end(int device) {
    try {
        set_.at(device).queue->synchronize();
    } catch (const Error&) {  // the work of a device that failed has ended too
    }
}

template <class D, class T>
void AgreementInProcess<D, T>::wait(int device, std::int64_t step, bool finished) {
    typename D::Queue& queue = *set_.at(device).queue;
    wait_until([&] { return finished ? queue.finished(step) : queue.reached(); }, max_step_seconds, "device ", device,
               " has not finished step ", step, " after ", max_step_seconds, " s");
}

template <class D, class T>
void AgreementInProcess<D, T>::wait_for_queue(int device, std::int64_t step) {
    set_.at(device).queue->mark();
    wait(device, step, false);
}

template <class D, class T>
void AgreementInProcess<D, T>::read_weight(int device) {
    if (!set_.weighted()) return;
    double& weight = weights_[static_cast<std::size_t>(device)];
    weight = 0;
    std::vector<LossReport> copy;
    const std::span<const LossReport> reports = set_.reports_of(device);
    for (const LossReport& each :
         set_.at(device).queue->on_host(set_.context(device), reports.data(), reports.size(), copy))
        weight += each.weight;
}

template <class D, class T>
void AgreementInProcess<D, T>::queue_divisor(int device, std::int64_t samples) {
    if (!set_.weighted()) return;
    typename D::Queue& queue = *set_.at(device).queue;
    double weight = 0;
    for (const double each : weights_) weight += each;
    // As weigh() of a single device computes it.
    const double divisor = set_.network().loss_scale / static_cast<double>(samples) * weight;
    queue.write(StatusBlock::divisor(queue.status()), static_cast<float>(divisor));
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
    typename D::Queue& queue = *set_.at(device).queue;
    queue.write(StatusBlock::healthy(queue.status()), std::int32_t{0});
}

template <class A, class D, class T>
bool RowsAgreement<A, D, T>::agree(int device, const SampleCounts& samples, std::int64_t step, bool) {
    auto& state = set_.at(device);
    typename D::Queue& queue = *state.queue;
    if (set_.device_count() == 1) {
        state.attempt([&] {
            require_samples(samples, step);
            queue.queue([this, device, scale = set_.network().loss_scale / static_cast<double>(samples.of_step(step))] {
                set_.weigh(device, scale);
            });
            average(device, samples, step, 0, set_.network().trained_elements);
        });
        return state.error == nullptr;
    }
    // Other devices read the rows and slices, so each is waited for on the device that made it.
    state.attempt([&] {
        Base::wait_for_queue(device, step);
        Base::read_weight(device);
    });
    if (!set_.arrive_and_wait(device)) return false;
    const auto [begin, end] = set_.columns_of(device);
    std::int32_t* const finite = Base::finite(device);
    state.attempt([&, begin = begin, end = end] {
        require_samples(samples, step);
        Base::queue_divisor(device, samples.of_step(step));
        average(device, samples, step, begin, end);
        if (D::host_memory) {
            const auto slice = set_.average_span(device).subspan(static_cast<std::size_t>(begin),
                                                                 static_cast<std::size_t>(end - begin));
            queue.queue([this, device, slice, block = queue.status(), to = finite, begin] {
                mean(device, block, slice, to, begin);
            });
        }
        Base::wait_for_queue(device, step);
    });
    if (!set_.arrive_and_wait(device)) return false;
    if (D::host_memory) {
        Base::update_only_if_all_finite(device);
        return true;
    }
    state.attempt([&] {
        for (int other = 0; other < set_.device_count(); ++other) {
            if (other == device) continue;
            const auto [from, to] = set_.columns_of(other);
            copy_slice(device, other, from, to);
        }
        Base::wait_for_queue(device, step);
    });
    return set_.arrive_and_wait(device);  // reduce() changes values that the others have read by then
}

template <class A, class D, class T>
void RowsAgreement<A, D, T>::reduce(int device, std::byte* block) {
    if (D::host_memory && set_.device_count() > 1) return;  // each device has reduced its slice
    const Stopwatch watch(set_.at(device).worker.times(), StepPart::averaging);
    mean(device, block, set_.average_span(device), StatusBlock::healthy(block), 0);
}

template <class A, class D, class T>
void RowsAgreement<A, D, T>::mean(int device, std::byte* block, std::span<float> part, std::int32_t* finite,
                                  std::int64_t begin) {
    ops::TrainingStep<Kernels>::mean(set_.context(device), part, StatusBlock::divisor(block), part, finite,
                                     set_.rows_of_mean(device, begin, D::host_memory));
}

template <class A, class D, class T>
void RowsAgreement<A, D, T>::average(int device, const SampleCounts& samples, std::int64_t step, std::int64_t begin,
                                     std::int64_t end) {
    if (set_.average_in_place()) return;
    auto& state = set_.at(device);
    const Stopwatch watch(state.worker.times(), StepPart::averaging);
    const GradientRows rows =
        set_.gradient_rows(device, step, begin, end, [&](int r) { return samples.of_replica(step, r); });
    const std::span<float> mean(set_.average(device) + begin, static_cast<std::size_t>(end - begin));
    state.queue->queue([this, device, rows, mean] { policy_.average(set_.context(device), rows, mean); });
}

template <class A, class D, class T>
void RowsAgreement<A, D, T>::copy_slice(int to, int from, std::int64_t begin, std::int64_t end) {
    Kernels::copy_between(set_.context(to), set_.average(to) + begin, set_.average(from) + begin,
                          static_cast<std::size_t>(end - begin) * sizeof(float));
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
