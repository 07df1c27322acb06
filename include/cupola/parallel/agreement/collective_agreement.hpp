// SPDX-License-Identifier: Apache-2.0
//
// CollectiveAgreement: agreement by a collective: the device's replicas give their gradients bucket by bucket, and the
// sums over all replicas of all processes come back.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/core/fixed_array.hpp>
#include <cupola/ops/convert.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/gathered_peers.hpp>
#include <cupola/parallel/agreement/row_averaging.hpp>
#include <cupola/parallel/agreement/rows_of_sum.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Defined in processes/agreement/collective_processes.hpp.
template <class Collective, class D, class T>
class CollectiveProcesses;

/// A number that becomes NaN in a sum if a device is not healthy, from its status.
struct HealthFormula {
    CUPOLA_HOST_DEVICE void operator()(float& number, float healthy) const {
        number = __builtin_bit_cast(std::int32_t, healthy) != 0 ? 1.0F : __builtin_bit_cast(float, 0x7FC0'0000);
    }
};

template <class A, class D, class T>
class CollectiveAgreement final : public RowAveraging<D, T> {
    using Kernels = typename D::Kernels;
    using Step = DeviceStep<D, T>;
    using StepAgreement<D, T>::replicas_;
    using Collective = typename A::template Collective<D>;
    using Sums = decltype(std::declval<Collective&>().finish(0, std::declval<typename D::Queue&>(),
                                                             std::declval<typename Kernels::Context&>()));
    using Element = std::remove_const_t<typename decltype(Sums::values)::element_type>;

public:
    /// See AgreementOf.
    [[nodiscard]] static AgreementTraits traits(const A& policy, std::int64_t elements) {
        constexpr auto per_float = static_cast<std::int64_t>(sizeof(float) / sizeof(Element));
        return {.separate_average = true,
                .takes_buckets = true,
                // With the number of samples before them.
                .sums = (elements + per_float - 1) / per_float + 4,
                .bucket_elements = Collective::bucket_elements(policy)};
    }

    [[gnu::cold]] CollectiveAgreement(const A& policy, Replicas<D, T>& replicas)
        : RowAveraging<D, T>(replicas),
          sums_(static_cast<std::size_t>(replicas.placement().device_count())),
          numbers_(sums_.size()),
          rows_(sums_.size()) {
        std::vector<int> first, ordinals;
        for (int device = 0; device < replicas.placement().device_count(); ++device) {
            first.push_back(replicas.placement().first_replica(device));
            if constexpr (requires { replicas.context(device).gpu(); })
                ordinals.push_back(replicas.context(device).gpu());
            else
                ordinals.push_back(replicas.context(device).ordinal());
        }
        collective_ = std::make_unique<Collective>(
            policy, CollectiveSetup{.devices = replicas.placement().device_count(),
                                    .first_replicas = first,
                                    .ordinals = ordinals,
                                    .elements = replicas.network().trained_elements,
                                    .loss_scale = static_cast<float>(replicas.settings().constant_loss_scale())});
        replicas.threads().run([&](int device) {
            collective_->join(device, *replicas_.at(device).queue, replicas_.context(device),
                              rank_blocks(replicas_, device));
            rows_[static_cast<std::size_t>(device)] = RowsOfSum(replicas_.placement().replicas_of(device));
        });
        if (replicas.placement().process_count() == 1) {
            peers_ = std::make_shared<Peers>();
        } else if constexpr (GathersOnHost<Collective, D>) {
            std::vector<int> lost;
            if constexpr (requires { Collective::lost(policy); }) lost = Collective::lost(policy);
            const auto all =
                std::make_shared<CollectiveProcesses<Collective, D, T>>(replicas, *collective_, std::move(lost));
            processes_ = all;
            peers_ = std::shared_ptr<Peers>(all, &all->peers());
        } else {
            peers_ = std::make_shared<GatheredPeers<D, T>>(replicas);
        }
    }

    /// Null in a training of one process, and where the collective has no gather().
    [[nodiscard]] ProcessGroup* processes() override { return processes_.get(); }
    [[nodiscard]] Peers& peers() override { return *peers_; }

    [[nodiscard]] bool healthy() const override { return collective_->healthy(); }
    void break_off(int device, std::int64_t step, const std::string& why) override {
        collective_->break_off(device, step, why);
    }
    void end(int device) override { collective_->end(device, *replicas_.at(device).queue); }
    void wait(int device, std::int64_t step, bool finished) override {
        collective_->wait(device, *replicas_.at(device).queue, step, finished);
    }

    /// Where the backward pass has not marked the buckets, they are complete now.
    bool agree(Step& step) override {
        const int device = step.device;
        auto& state = step.state;
        if (!replicas_.arrive_and_wait(device)) return false;
        // The other devices wait for a sum that one device leaves out: from here on an error ends their waits.
        state.attempt([&] {
            const RowsOfSum& rows = collect(step);
            StepShape shape{.step = step.step, .samples_here = rows.samples(), .weight_here = nullptr};
            if (replicas_.settings().weighted) {
                if (!step.marked) {
                    state.queue->queue(
                        [this, device] { replicas_.at(device).weigh(replicas_.settings().constant_loss_scale()); });
                }
                shape.weight_here = &state.status()->divisor;
            }
            queue_sums(step, rows, shape);
        });
        return replicas_.arrive_and_wait(device);
    }

    [[nodiscard]] bool exchanges_health_on_device() const override { return true; }
    bool exchange_health(Step& step, std::int32_t /*finite_here*/) override {
        const int device = step.device;
        auto& state = step.state;
        if (!replicas_.arrive_and_wait(device)) return false;
        if constexpr (AllReducesNumber<Collective, D>) {
            state.attempt([&] {
                float* const number = numbers_of(device);
                const auto* const healthy = reinterpret_cast<const float*>(&state.status()->healthy);
                state.queue->queue([&] { for_each_element(state.context(), 1, HealthFormula{}, number, healthy); });
                const float* const sum =
                    collective_->all_reduce_number(device, *state.queue, state.context(), step.step, number);
                state.queue->queue([&] { require_finite(device, std::span(number, 1), sum, std::span(number, 1)); });
            });
        }
        return replicas_.arrive_and_wait(device);
    }
    bool average_rows(Step& step, std::span<const std::int64_t> weights, const float* /*one*/,
                      int /*fragment*/) override {
        const int device = step.device;
        auto& state = step.state;
        if (!replicas_.arrive_and_wait(device)) return false;
        state.attempt([&] {
            const RowsOfSum& rows = collect(step, weights);
            queue_sums(step, rows,
                       {.step = step.step, .samples_here = rows.samples(), .weight_here = nullptr, .scaled = false});
            state.queue->queue([this, device] {
                const Sums& sums = sums_[static_cast<std::size_t>(device)];
                const std::span<float> average = replicas_.gradients().average_span(device);
                require_finite(device, values_of(device), sums.divisor, average);
            });
        });
        return replicas_.arrive_and_wait(device);
    }

    void reduce(int device, std::int64_t /*step*/) override {
        const Sums& sums = sums_[static_cast<std::size_t>(device)];
        auto& state = replicas_.at(device);
        auto& context = state.context();
        const int first = replicas_.placement().first_replica(device),
                  last = replicas_.placement().first_replica(device + 1);
        const std::span<float> average = replicas_.gradients().average_span(device);
        const std::span<const float> values = values_of(device);
        unsigned long long* const ends = state.layout.not_finite(state.queue->status(), first);
        ops::TrainingStep<Kernels>::mean(context, values, sums.divisor, average, &state.status()->healthy,
                                         replicas_.gradients().rows_of_mean(first, last, 0, ends),
                                         scale_on_device(replicas_, device));
    }

    [[nodiscard]] UpdateGradient gradient(int device, int /*replica*/, std::int64_t /*step*/) override {
        return {replicas_.gradients().average(device), sums_[static_cast<std::size_t>(device)].divisor};
    }

private:
    /// The rows of the device's replicas; see RowsOfSum::collect.
    const RowsOfSum& collect(const Step& step, std::span<const std::int64_t> weights = {}) {
        RowsOfSum& rows = rows_[static_cast<std::size_t>(step.device)];
        rows.collect(replicas_, replicas_.placement().first_replica(step.device),
                     replicas_.placement().first_replica(step.device + 1), step.samples, step.step, 0, weights);
        return rows;
    }
    /// Gives all buckets.
    void queue_sums(Step& step, const RowsOfSum& rows, const StepShape& shape) {
        const int device = step.device;
        auto& state = step.state;
        collective_->begin(device, *state.queue, state.context(), shape);
        const std::span<const GradientBucket> buckets = replicas_.buckets(device);
        for (std::size_t k = 0; k < buckets.size(); ++k) {
            if (!step.marked) state.queue->mark_bucket(k);
            collective_->give(device, *state.queue, state.context(), k, buckets[k], rows.gradients());
        }
        sums_[static_cast<std::size_t>(device)] = collective_->finish(device, *state.queue, state.context());
    }
    /// Inside queued work: the sums as floats.
    [[nodiscard]] std::span<const float> values_of(int device) {
        const Sums& sums = sums_[static_cast<std::size_t>(device)];
        if constexpr (std::same_as<Element, float>) {
            return sums.values;
        } else {
            const std::span<float> average = replicas_.gradients().average_span(device);
            ops::Convert<Kernels>::run(replicas_.context(device), sums.values.data(), average.data(),
                                       static_cast<std::int64_t>(average.size()));
            return average;
        }
    }
    /// Inside queued work: to = values / divisor. A value that is not finite makes the status that of a step without
    /// effect.
    void require_finite(int device, std::span<const float> values, const float* divisor, std::span<float> to) {
        auto& state = replicas_.at(device);
        ops::TrainingStep<Kernels>::mean(state.context(), values, divisor, to, &state.status()->healthy, {}, nullptr);
    }
    /// The number that a device adds to those of the other ranks.
    [[nodiscard]] float* numbers_of(int device) {
        auto& arena = numbers_[static_cast<std::size_t>(device)];
        if (arena.size() == 0) arena = typename Kernels::Arena(sizeof(float), "a number of the collective");
        return reinterpret_cast<float*>(arena.data());
    }

    std::unique_ptr<Collective> collective_;
    std::shared_ptr<ProcessGroup> processes_;
    std::shared_ptr<Peers> peers_;
    std::vector<Sums> sums_;
    FixedArray<typename Kernels::Arena> numbers_;
    std::vector<RowsOfSum> rows_;
};

template <class A, class D, class T>
    requires AveragesBuckets<A, D>
struct AgreementOf<A, D, T> {
    [[nodiscard]] static AgreementTraits traits(const A& policy, std::int64_t elements) {
        return CollectiveAgreement<A, D, T>::traits(policy, elements);
    }
    [[nodiscard, gnu::cold]] static std::unique_ptr<RowAveraging<D, T>> make(const A& policy,
                                                                             Replicas<D, T>& replicas) {
        return std::make_unique<CollectiveAgreement<A, D, T>>(policy, replicas);
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
