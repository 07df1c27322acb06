// SPDX-License-Identifier: Apache-2.0
//
// CentreRows: a function of the gradient rows of one process, which also averages the differences of the replicas to
// their centre.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/agreement/local_devices.hpp>
#include <cupola/parallel/agreement/row_averaging.hpp>
#include <cupola/parallel/agreement/rows_agreement.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
class CentreRows final : public RowAveraging<D, T> {
    using Kernels = typename D::Kernels;
    using Step = DeviceStep<D, T>;
    using typename RowAveraging<D, T>::ColumnRange;
    using StepAgreement<D, T>::replicas_;

public:
    [[gnu::cold]] CentreRows(std::unique_ptr<const RowsPolicy<Kernels>> policy, Replicas<D, T>& replicas)
        : RowAveraging<D, T>(replicas), rows_(std::move(policy), replicas) {}

    [[nodiscard]] Peers& peers() override { return rows_.peers(); }
    void wait(int device, std::int64_t step, bool finished) override { rows_.wait(device, step, finished); }
    void end(int device) override { rows_.end(device); }
    bool agree(Step& step) override { return rows_.agree(step); }
    void reduce(int device, std::int64_t step) override { rows_.reduce(device, step); }
    bool exchange_health(Step& step, std::int32_t finite_here) override;
    [[nodiscard]] bool divide(std::span<const ColumnRange> fragments) override {
        this->fragments_ = fragments;
        return true;
    }
    bool average_rows(Step& step, std::span<const std::int64_t> weights, const float* one, int fragment) override;

private:
    void require_finite(int device, std::span<float> part, std::int32_t* finite, const float* one) {
        ops::TrainingStep<Kernels>::mean(replicas_.context(device), part, one, part, finite, {}, nullptr);
    }

    RowsAgreement<D, T> rows_;
};

template <class D, class T>
bool CentreRows<D, T>::exchange_health(Step& step, std::int32_t finite_here) {
    if (replicas_.placement().device_count() == 1) return step.state.error == nullptr;
    *rows_.local_.finite(step.device) = finite_here;
    if (!replicas_.arrive_and_wait(step.device)) return false;
    rows_.local_.update_only_if_all_finite(step.device);
    return true;
}

template <class D, class T>
bool CentreRows<D, T>::average_rows(Step& step, std::span<const std::int64_t> weights, const float* one, int fragment) {
    const int device = step.device;
    const ColumnRange columns = this->columns_of_fragment(fragment);
    const bool alone = replicas_.placement().device_count() == 1;
    step.state.attempt([&] {
        if (rows_.policy_->prepares) rows_.local_.prepare_rows(*rows_.policy_, step, weights);
        if (!alone) rows_.local_.wait_for_queue(step);
    });
    const auto require_all_finite = [&] {
        step.state.queue->queue([this, device, one, columns] {
            auto& state = replicas_.at(device);
            require_finite(device, replicas_.gradients().average_span(device, columns), &state.status()->healthy, one);
        });
    };
    if (alone) {
        step.state.attempt([&] {
            rows_.average(step, columns.begin, columns.end, weights);
            require_all_finite();
        });
        return step.state.error == nullptr;
    }
    if (!replicas_.arrive_and_wait(device)) return false;
    if (!rows_.average_slices(
            step, weights,
            [this, device, one](std::span<float> slice, std::int32_t* finite, std::int64_t) {
                require_finite(device, slice, finite, one);
            },
            columns))
        return false;
    if (!D::host_memory) step.state.attempt(require_all_finite);
    return true;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
