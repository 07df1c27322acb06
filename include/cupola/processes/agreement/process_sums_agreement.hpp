// SPDX-License-Identifier: Apache-2.0
//
// ProcessSumsAgreement: agreement between processes by sums. Each process adds its rows, weighted by their samples, and
// the engine adds the sums of all processes, bucket by bucket, during the backward passes.
//
//   (bucket complete on all devices | weighted sum of the own rows | the engine begins) x buckets | records of all |
//   the engine has finished | division by the samples of all | vote
//
// Every process gives the buckets in the same order. A process that has failed, or has no samples, gives all of them
// too, so that the others do not wait for it; its records contain its error.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>

#include <cupola/core/fixed_array.hpp>
#include <cupola/net/plan_arguments.hpp>
#include <cupola/net/stopwatch.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/local_devices.hpp>
#include <cupola/parallel/agreement/row_averaging.hpp>
#include <cupola/parallel/agreement/rows_of_sum.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/processes/agreement/in_all_processes.hpp>
#include <cupola/processes/agreement/same_training.hpp>
#include <cupola/processes/agreement/step_records.hpp>
#include <cupola/processes/agreement/step_vote.hpp>
#include <cupola/processes/processes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
class ProcessSumsAgreement final : public RowAveraging<D, T> {
    using Step = DeviceStep<D, T>;
    using typename RowAveraging<D, T>::ColumnRange;
    using StepAgreement<D, T>::replicas_;

public:
    [[gnu::cold]] explicit ProcessSumsAgreement(Replicas<D, T>& replicas);

    [[nodiscard]] Peers& peers() override { return records_.peers(); }
    void wait(int device, std::int64_t step, bool finished) override { local_.wait(device, step, finished); }
    void end(int device) override { local_.end(device); }

    void begin(std::int64_t step, const SampleCounts& samples, std::span<const float> running) override;
    /// Each device reduces its part of the average before the vote.
    bool agree(Step& step) override;
    bool exchange_health(Step& step, std::int32_t finite_here) override {
        return records_.exchange(step) && vote_.vote(step, "the vote on the step", finite_here);
    }
    [[nodiscard]] bool divide(std::span<const ColumnRange> fragments) override {
        this->fragments_ = fragments;
        return true;
    }
    bool average_rows(Step& step, std::span<const std::int64_t> weights, const float* one, int fragment) override;
    /// The engine adds the sums during the next steps.
    bool begin_rows(Step& step, std::span<const std::int64_t> weights, const float* one, int fragment) override;
    [[nodiscard]] bool may_be_under_way() const override { return true; }
    bool finish_rows(Step& step) override;
    void finish_rows() override;

private:
    /// Called on a device's thread when a bucket is complete in its rows; the last device to call it adds the rows of
    /// all devices.
    void give(int device, std::size_t bucket);
    /// Gives the buckets that the device's passes have not given.
    void give_rest(int device);
    void add_rows(int device, std::size_t bucket);
    /// The columns of a bucket that are summed.
    [[nodiscard]] ColumnRange columns_of_bucket(std::size_t bucket) const {
        const std::int64_t begin = std::max(buckets_[bucket].begin, columns_.begin);
        return {begin, std::max(begin, std::min(buckets_[bucket].end, columns_.end))};
    }
    /// Their elements of the average.
    [[nodiscard]] std::span<float> sum_of(std::size_t bucket) const {
        return replicas_.gradients().average_span(0, columns_of_bucket(bucket));
    }

    /// The columns of a device: the devices of a process divide all columns that are summed.
    [[nodiscard]] ColumnRange columns_of(int device) const {
        return ReplicaPlacement(replicas_.placement().device_count(), replicas_.placement().device_count(), false)
            .columns_of(device, columns_);
    }

    struct OnBucket {
        ProcessSumsAgreement* agreement = nullptr;
        int device = 0;
        void operator()(std::size_t bucket) const { agreement->give(device, bucket); }
    };
    /// The progress of a bucket in this step.
    struct Progress {
        int devices = 0;
        bool added = false;
    };

    Processes& processes_;
    LocalDevices<D, T> local_;
    StepRecords<D, T> records_;
    StepVote<D, T> vote_;
    FixedArray<GradientBucket> buckets_;
    /// Per device.
    FixedArray<OnBucket> on_bucket_;
    FixedArray<RowsOfSum> rows_;
    FixedArray<std::size_t> given_;
    const SampleCounts* samples_ = nullptr;
    std::int64_t step_ = 0;
    /// Unless they are empty, in place of the samples.
    std::span<const std::int64_t> weights_{};
    /// The columns that are summed, and of a sum of rows the weight of all.
    ColumnRange columns_{0, 0};
    float total_ = 1;
    /// Whether such a sum has begun and not finished: device 0 writes the first, the second is that before the step.
    bool is_under_way_ = false, was_under_way_ = false;

    /// Guards the following members, and the order of the begin_sum() calls.
    std::mutex mutex_;
    FixedArray<Progress> progress_;
    /// The next bucket whose sum is begun.
    std::size_t next_ = 0;
};

template <class A, class D, class T>
    requires(SpansProcesses<A> && sums_of_processes<A> && std::same_as<MessageElement<A>, float>)
struct AgreementOf<A, D, T> {
    [[nodiscard]] static AgreementTraits traits(const A& policy, std::int64_t) {
        AgreementTraits traits{.separate_average = true, .takes_buckets = true};
        if constexpr (requires { policy.bucket_bytes; })
            traits.bucket_elements = policy.bucket_bytes / static_cast<std::int64_t>(sizeof(float));
        return traits;
    }
    [[nodiscard, gnu::cold]] static std::unique_ptr<RowAveraging<D, T>> make(const A&, Replicas<D, T>& replicas) {
        return std::make_unique<ProcessSumsAgreement<D, T>>(replicas);
    }
};

template <class D, class T>
ProcessSumsAgreement<D, T>::ProcessSumsAgreement(Replicas<D, T>& replicas)
    : RowAveraging<D, T>(replicas),
      processes_(*replicas.settings().processes),
      local_(replicas),
      records_(replicas, local_),
      vote_(replicas),
      buckets_(replicas.buckets(0)),
      on_bucket_(static_cast<std::size_t>(replicas.placement().device_count())),
      rows_(on_bucket_.size()),
      given_(on_bucket_.size()),
      progress_(buckets_.size()) {
    for (RowsOfSum& each : rows_) each = RowsOfSum(replicas.placement().replicas());
    for (int device = 0; device < replicas.placement().device_count(); ++device) {
        OnBucket& on_bucket = on_bucket_[static_cast<std::size_t>(device)];
        on_bucket = {this, device};
        replicas.at(device).queue->call_on_bucket(on_bucket);
    }
}

template <class D, class T>
void ProcessSumsAgreement<D, T>::begin(std::int64_t step, const SampleCounts& samples, std::span<const float> running) {
    records_.begin(running);
    samples_ = &samples;
    step_ = step;
    weights_ = {};
    // Those of a sum that is under way are kept: no gradients are summed before it has finished.
    was_under_way_ = is_under_way_;
    if (!is_under_way_) columns_ = this->all_columns();
    next_ = 0;
    std::fill(progress_.begin(), progress_.end(), Progress());
    std::fill(given_.begin(), given_.end(), std::size_t{0});
}

template <class D, class T>
void ProcessSumsAgreement<D, T>::give(int device, std::size_t bucket) {
    {
        const std::scoped_lock lock(mutex_);
        given_[static_cast<std::size_t>(device)] = bucket + 1;
        if (++progress_[bucket].devices < replicas_.placement().device_count()) return;
    }
    add_rows(device, bucket);
    const std::scoped_lock lock(mutex_);
    progress_[bucket].added = true;
    for (; next_ < buckets_.size() && progress_[next_].added; ++next_) {
        const std::span<float> sum = sum_of(next_);
        if (!sum.empty())
            processes_.begin_sum({weights_.empty() ? "the sums of the gradients" : "the sums of the rows", step_}, sum);
    }
}

template <class D, class T>
void ProcessSumsAgreement<D, T>::give_rest(int device) {
    for (std::size_t k = given_[static_cast<std::size_t>(device)]; k < buckets_.size(); ++k) give(device, k);
}

template <class D, class T>
void ProcessSumsAgreement<D, T>::add_rows(int device, std::size_t bucket) {
    if (sum_of(bucket).empty()) return;
    const Stopwatch watch(replicas_.at(device).worker.times(), StepPart::averaging);
    RowsOfSum& rows = rows_[static_cast<std::size_t>(device)];
    const int first = replicas_.placement().first_replica(0),
              last = replicas_.placement().first_replica(replicas_.placement().device_count());
    rows.collect(replicas_, first, last, *samples_, step_, columns_of_bucket(bucket).begin, weights_);
    ops::TrainingStep<typename D::Kernels>::weighted_sum(replicas_.context(device), rows.gradients().rows,
                                                         rows.gradients().weights, sum_of(bucket));
}

template <class D, class T>
bool ProcessSumsAgreement<D, T>::agree(Step& step) {
    step.state.attempt_always([&] { give_rest(step.device); });
    static_cast<void>(records_.exchange(step));
    if (!average_in_all_processes(step, [&] { processes_.finish_sums(); })) return false;
    step.state.attempt([&] {
        records_.queue_divisor(step);
        vote_.reduce_columns(
            step, columns_of(step.device),
            [this](int replica, std::int64_t begin) { return vote_.row_here(replica, begin); },
            step.samples.of_step(step.step));
    });
    return vote_.vote(step);
}

template <class D, class T>
bool ProcessSumsAgreement<D, T>::average_rows(Step& step, std::span<const std::int64_t> weights, const float* one,
                                              int fragment) {
    return begin_rows(step, weights, one, fragment) && finish_rows(step) && vote_.vote(step, "the vote on the mean");
}

template <class D, class T>
bool ProcessSumsAgreement<D, T>::begin_rows(Step& step, std::span<const std::int64_t> weights, const float* /*one*/,
                                            int fragment) {
    step.state.attempt([&] { local_.wait_for_queue(step); });
    // Where the step that began a sum has failed, this one begins another in its place.
    if (was_under_way_ && !average_in_all_processes(step, [&] { processes_.finish_sums(); })) return false;
    if (step.device == 0) {
        weights_ = weights;
        columns_ = this->columns_of_fragment(fragment);
        total_ = static_cast<float>(std::accumulate(weights.begin(), weights.end(), std::int64_t{0}));
        is_under_way_ = true;
    }
    if (!vote_.vote(step, "the rows of the replicas", 1)) return false;
    step.state.attempt_always([&] { give_rest(step.device); });
    return true;
}

template <class D, class T>
bool ProcessSumsAgreement<D, T>::finish_rows(Step& step) {
    if (!average_in_all_processes(step, [&] {
            processes_.finish_sums();
            is_under_way_ = false;
        }))
        return false;
    step.state.attempt([&] { vote_.divide_columns(step, columns_of(step.device), total_); });
    return replicas_.arrive_and_wait(step.device);
}

template <class D, class T>
void ProcessSumsAgreement<D, T>::finish_rows() {
    if (!is_under_way_) return;
    processes_.finish_sums();
    is_under_way_ = false;
    replicas_.threads().run([&](int device) {
        const std::span<float> part = replicas_.gradients().average_span(device, columns_of(device));
        std::int32_t finite = 1;
        ops::TrainingStep<typename D::Kernels>::mean(replicas_.context(device), part, &total_, part, &finite, {},
                                                     nullptr);
    });
}

}}}  // namespace cupola::CUPOLA_ABI::impl
