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
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class A, class D, class T>
class RowsAgreement : public AgreementInProcess<D, T> {
    using Kernels = typename D::Kernels;
    using Base = AgreementInProcess<D, T>;
    using Base::replicas_;

public:
    RowsAgreement(const A& policy, Replicas<D, T>& replicas) : Base(replicas), policy_(policy) {}

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
    auto& state = replicas_.at(device);
    typename D::Queue& queue = *state.queue;
    if (replicas_.device_count() == 1) {
        state.attempt([&] {
            require_samples(samples, step);
            Base::prepare_rows(policy_, device, samples, step);
            // Other work between the passes and the update would keep a queue from repeating both together.
            if (replicas_.weighted()) {
                queue.queue([this, device,
                             scale = replicas_.constant_loss_scale() / static_cast<double>(samples.of_step(step))] {
                    replicas_.weigh(device, scale);
                });
            }
            average(device, samples, step, 0, replicas_.network().trained_elements);
        });
        return state.error == nullptr;
    }
    // Other devices read the rows and slices, so each is waited for on the device that made it.
    state.attempt([&] {
        Base::prepare_rows(policy_, device, samples, step);
        Base::wait_for_queue(device, step);
        Base::read_weight(device);
    });
    if (!replicas_.arrive_and_wait(device)) return false;
    const auto [begin, end] = replicas_.columns_of(device);
    std::int32_t* const finite = Base::finite(device);
    state.attempt([&, begin = begin, end = end] {
        require_samples(samples, step);
        Base::queue_divisor(device, samples.of_step(step));
        average(device, samples, step, begin, end);
        if (D::host_memory) {
            const auto slice = replicas_.average_span(device).subspan(static_cast<std::size_t>(begin),
                                                                      static_cast<std::size_t>(end - begin));
            queue.queue([this, device, slice, block = queue.status(), to = finite, begin] {
                mean(device, block, slice, to, begin);
            });
        }
        Base::wait_for_queue(device, step);
    });
    if (!replicas_.arrive_and_wait(device)) return false;
    if (D::host_memory) {
        Base::update_only_if_all_finite(device);
        return true;
    }
    state.attempt([&] {
        for (int other = 0; other < replicas_.device_count(); ++other) {
            if (other == device) continue;
            const auto [from, to] = replicas_.columns_of(other);
            copy_slice(device, other, from, to);
        }
        Base::wait_for_queue(device, step);
    });
    return replicas_.arrive_and_wait(device);  // reduce() changes values that the others have read by then
}

template <class A, class D, class T>
void RowsAgreement<A, D, T>::reduce(int device, std::byte* block) {
    if (D::host_memory && replicas_.device_count() > 1) return;  // each device has reduced its slice
    const Stopwatch watch(replicas_.at(device).worker.times(), StepPart::averaging);
    mean(device, block, replicas_.average_span(device), &step_status(block)->healthy, 0);
}

template <class A, class D, class T>
void RowsAgreement<A, D, T>::mean(int device, std::byte* block, std::span<float> part, std::int32_t* finite,
                                  std::int64_t begin) {
    ops::TrainingStep<Kernels>::mean(replicas_.context(device), part, &step_status(block)->divisor, part, finite,
                                     replicas_.rows_of_mean(device, begin, D::host_memory),
                                     replicas_.scale_on_device(device));
}

template <class A, class D, class T>
void RowsAgreement<A, D, T>::average(int device, const SampleCounts& samples, std::int64_t step, std::int64_t begin,
                                     std::int64_t end) {
    if (replicas_.average_in_place()) return;
    auto& state = replicas_.at(device);
    const Stopwatch watch(state.worker.times(), StepPart::averaging);
    const GradientRows rows =
        replicas_.gradient_rows(device, step, begin, end, [&](int r) { return samples.of_replica(step, r); });
    const std::span<float> mean(replicas_.average(device) + begin, static_cast<std::size_t>(end - begin));
    state.queue->queue([this, device, rows, mean] { policy_.average(replicas_.context(device), rows, mean); });
}

template <class A, class D, class T>
void RowsAgreement<A, D, T>::copy_slice(int to, int from, std::int64_t begin, std::int64_t end) {
    Kernels::copy_between(replicas_.context(to), replicas_.average(to) + begin, replicas_.average(from) + begin,
                          static_cast<std::size_t>(end - begin) * sizeof(float));
}

}}}  // namespace cupola::CUPOLA_ABI::impl
