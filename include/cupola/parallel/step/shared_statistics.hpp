// SPDX-License-Identifier: Apache-2.0
//
// SharedStatistics: the running statistics of batch normalisation. They are equal on all devices, so the host updates
// them in the order of the steps and copies them to the devices before they are used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <cupola/core/fixed_array.hpp>
#include <cupola/device/flushed_denormals.hpp>
#include <cupola/net/stopwatch.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/statistics.hpp>
#include <cupola/parallel/step/step_functions.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
class SharedStatistics {
public:
    [[gnu::cold]] SharedStatistics(Replicas<D, T>& replicas, Peers& peers, const SampleCounts& counts);

    [[nodiscard]] std::span<const float> values() const { return values_.span(); }
    /// Starts with `values`, which are on every device already.
    [[gnu::cold]] void restart(std::span<const float> values);

    /// Updates the statistics, as the policy says, with the batches of a step that is complete on every device. If the
    /// policy throws, nothing is changed: unless its update() is noexcept, it updates a copy. It is timed unless the
    /// first device is in a later step, to whose times its thread adds.
    void update(std::int64_t step, const StepFunctions<D>& functions, bool is_timed = true);

    /// Copies the statistics to every device if they have changed.
    void share();

private:
    Replicas<D, T>& replicas_;
    BatchResults<D, T> results_;
    const SampleCounts& counts_;
    FixedArray<RunningStatistics> layers_;
    WeightedRows rows_;
    /// The running statistics after the last step, and the copy that a policy that may throw updates for the next step.
    FixedArray<float> values_, next_;
    bool changed_ = false;
};

template <class D, class T>
SharedStatistics<D, T>::SharedStatistics(Replicas<D, T>& replicas, Peers& peers, const SampleCounts& counts)
    : replicas_(replicas),
      results_(replicas, peers),
      counts_(counts),
      layers_(running_statistics(replicas.network().layers)),
      rows_(replicas.placement().replicas()) {
    // The statistics of frozen norms are not updated.
    std::size_t kept = 0;
    for (const RunningStatistics& each : layers_) {
        if (!replicas.network().layers[each.layer].uses_running_statistics) layers_[kept++] = each;
    }
    layers_.keep_first(kept);
}

template <class D, class T>
void SharedStatistics<D, T>::restart(std::span<const float> values) {
    values_ = FixedArray<float>(values);
    next_ = FixedArray<float>(values.size());
    changed_ = false;
}

template <class D, class T>
void SharedStatistics<D, T>::update(std::int64_t step, const StepFunctions<D>& functions, bool is_timed) {
    const bool in_place = functions.updates_statistics_in_place;
    if (values_.empty()) return;
    const Stopwatch watch(is_timed ? replicas_.at(0).worker.times() : nullptr, StepPart::statistics);
    const FlushedDenormals scope;
    if (!in_place) std::copy(values_.begin(), values_.end(), next_.begin());
    float* const running = in_place ? values_.data() : next_.data();
    for (int part = 0; part < replicas_.settings().gradient_accumulation_steps; ++part) {
        rows_.clear();
        for (int r = 0; r < replicas_.placement().replicas(); ++r)
            rows_.add(results_.of(step, r, part).statistics, counts_.of(step, part, r));
        if (rows_.rows().empty()) continue;
        functions.update_statistics(StatisticsUpdate{
            .running = running, .layers = layers_.span(), .rows = rows_.rows(), .samples = rows_.samples()});
    }
    if (!in_place) std::swap(values_, next_);
    changed_ = true;
}

template <class D, class T>
void SharedStatistics<D, T>::share() {
    if (!changed_) return;
    replicas_.threads().run([&](int device) {
        auto& worker = replicas_.at(device).worker;
        worker.set(worker.buffers(), values_);
    });
    changed_ = false;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
