// SPDX-License-Identifier: Apache-2.0
//
// Agreement by a function of the gradient rows: each device averages its slice of the columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/net/step_times.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/local.hpp>
#include <cupola/parallel/replicas/replica_set.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class A, class D, class T>
class RowsAgreement : public AgreementInProcess<D, T> {
    using Kernels = typename D::Kernels;
    using Base = AgreementInProcess<D, T>;
    using Base::set_;

public:
    RowsAgreement(const A& policy, ReplicaSet<D, T>& set) : Base(set), policy_(policy) {}

    /// Averages after the rows of the device's replicas are queued. Returns false if another device has failed, so that
    /// this one leaves the step too.
    bool agree(int device, const SampleCounts& samples, std::int64_t step, bool);

    /// Inside the update's work: divides by the loss scale, and records whether the average is finite.
    void reduce(int device, std::byte* block);

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

template <class A, class D, class T>
bool RowsAgreement<A, D, T>::agree(int device, const SampleCounts& samples, std::int64_t step, bool) {
    auto& state = set_.at(device);
    typename D::Queue& queue = *state.queue;
    if (set_.device_count() == 1) {
        state.attempt([&] {
            require_samples(samples, step);
            Base::prepare_rows(policy_, device, samples, step);
            // Other work between the passes and the update would keep a queue from repeating both together.
            if (set_.weighted()) {
                queue.queue(
                    [this, device, scale = set_.constant_loss_scale() / static_cast<double>(samples.of_step(step))] {
                        set_.weigh(device, scale);
                    });
            }
            average(device, samples, step, 0, set_.network().trained_elements);
        });
        return state.error == nullptr;
    }
    // Other devices read the rows and slices, so each is waited for on the device that made it.
    state.attempt([&] {
        Base::prepare_rows(policy_, device, samples, step);
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
    mean(device, block, set_.average_span(device), &step_status(block)->healthy, 0);
}

template <class A, class D, class T>
void RowsAgreement<A, D, T>::mean(int device, std::byte* block, std::span<float> part, std::int32_t* finite,
                                  std::int64_t begin) {
    ops::TrainingStep<Kernels>::mean(set_.context(device), part, &step_status(block)->divisor, part, finite,
                                     set_.rows_of_mean(device, begin, D::host_memory), set_.scale_on_device(device));
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

}}}  // namespace cupola::CUPOLA_ABI::impl
