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
#include <cupola/parallel/replicas/loss_scaling.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/replicas/weighted_rows.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class A, class D, class T>
class RowsAgreement : public AgreementInProcess<D, T> {
    using Kernels = typename D::Kernels;
    using Base = AgreementInProcess<D, T>;
    using Base::replicas_;

public:
    RowsAgreement(const A& policy, Replicas<D, T>& replicas)
        : Base(replicas),
          policy_(policy),
          rows_(static_cast<std::size_t>(replicas.placement().device_count() * D::max_steps_in_flight)) {
        for (WeightedRows& each : rows_) each = WeightedRows(replicas.placement().replicas());
    }

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

    /// The rows of the replicas that have samples, from a column on. Valid until the step that replaces `step` is queued.
    [[nodiscard]] const WeightedRows& collected(int device, const SampleCounts& samples, std::int64_t step,
                                                std::int64_t begin) {
        WeightedRows& rows =
            rows_[static_cast<std::size_t>(device * D::max_steps_in_flight + step % D::max_steps_in_flight)];
        rows.clear();
        for (int r = 0; r < replicas_.placement().replicas(); ++r)
            rows.add(replicas_.gradients().row(r) + begin, samples.of_replica(step, r));
        return rows;
    }

    A policy_;
    /// Per device and step in flight.
    FixedArray<WeightedRows> rows_;
};

template <class A, class D, class T>
bool RowsAgreement<A, D, T>::agree(int device, const SampleCounts& samples, std::int64_t step, bool) {
    auto& state = replicas_.at(device);
    typename D::Queue& queue = *state.queue;
    if (replicas_.placement().device_count() == 1) {
        state.attempt([&] {
            require_samples(samples, step);
            Base::prepare_rows(policy_, device, samples, step);
            // Other work between the passes and the update would keep a queue from repeating both together.
            if (replicas_.settings().weighted) {
                queue.queue(
                    [this, device,
                     scale = replicas_.settings().constant_loss_scale() / static_cast<double>(samples.of_step(step))] {
                        replicas_.at(device).weigh(scale);
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
    const auto [begin, end] = replicas_.gradients().columns_of(device);
    std::int32_t* const finite = Base::finite(device);
    state.attempt([&, begin = begin, end = end] {
        require_samples(samples, step);
        Base::queue_divisor(device, samples.of_step(step));
        average(device, samples, step, begin, end);
        if (D::host_memory) {
            const auto slice = replicas_.gradients().average_span(device).subspan(
                static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
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
        for (int other = 0; other < replicas_.placement().device_count(); ++other) {
            if (other == device) continue;
            const auto [from, to] = replicas_.gradients().columns_of(other);
            copy_slice(device, other, from, to);
        }
        Base::wait_for_queue(device, step);
    });
    return replicas_.arrive_and_wait(device);  // reduce() changes values that the others have read by then
}

template <class A, class D, class T>
void RowsAgreement<A, D, T>::reduce(int device, std::byte* block) {
    if (D::host_memory && replicas_.placement().device_count() > 1) return;  // each device has reduced its slice
    const Stopwatch watch(replicas_.at(device).worker.times(), StepPart::averaging);
    mean(device, block, replicas_.gradients().average_span(device), &step_status(block)->healthy, 0);
}

template <class A, class D, class T>
void RowsAgreement<A, D, T>::mean(int device, std::byte* block, std::span<float> part, std::int32_t* finite,
                                  std::int64_t begin) {
    // Behind a barrier, after which they are written again, the device reads the rows of all devices in its memory.
    const int first = replicas_.placement().first_replica(D::host_memory ? 0 : device),
              last = replicas_.placement().first_replica(D::host_memory ? replicas_.placement().device_count()
                                                                        : device + 1);
    ops::TrainingStep<Kernels>::mean(
        replicas_.context(device), part, &step_status(block)->divisor, part, finite,
        replicas_.gradients().rows_of_mean(first, last, begin, replicas_.at(device).layout.not_finite(block, first)),
        scale_on_device(replicas_, device));
}

template <class A, class D, class T>
void RowsAgreement<A, D, T>::average(int device, const SampleCounts& samples, std::int64_t step, std::int64_t begin,
                                     std::int64_t end) {
    if (replicas_.gradients().in_place()) return;
    auto& state = replicas_.at(device);
    const Stopwatch watch(state.worker.times(), StepPart::averaging);
    const WeightedRows& collected = this->collected(device, samples, step, begin);
    const GradientRows rows{.rows = collected.rows(),
                            .samples = collected.samples(),
                            .total_samples = collected.total_samples(),
                            .columns = end - begin};
    const std::span<float> mean(replicas_.gradients().average(device) + begin, static_cast<std::size_t>(end - begin));
    state.queue->queue([this, device, rows, mean] { policy_.average(replicas_.context(device), rows, mean); });
}

template <class A, class D, class T>
void RowsAgreement<A, D, T>::copy_slice(int to, int from, std::int64_t begin, std::int64_t end) {
    Kernels::copy_between(replicas_.context(to), replicas_.gradients().average(to) + begin,
                          replicas_.gradients().average(from) + begin,
                          static_cast<std::size_t>(end - begin) * sizeof(float));
}

}}}  // namespace cupola::CUPOLA_ABI::impl
