// SPDX-License-Identifier: Apache-2.0
//
// RowAveraging: an agreement that can average rows other than gradients, for replicas that agree on a centre. The
// agreements of collectives and between processes are of this kind; CentreRows is the one for a function of the rows of
// one process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
class RowAveraging : public StepAgreement<D, T> {
public:
    using typename StepAgreement<D, T>::Step;
    using ColumnRange = ReplicaPlacement::ColumnRange;

    /// Once, before the first step: the contiguous fragments of the columns, one of which average_rows() averages at a
    /// time; they must outlive the object. Without it, that is all columns. False if it cannot.
    [[nodiscard]] virtual bool divide(std::span<const ColumnRange> /*fragments*/) { return false; }
    /// Whether exchange_health() reads from the device's status whether all is finite, and not from its argument, so
    /// that no device waits for that.
    [[nodiscard]] virtual bool exchanges_health_on_device() const { return false; }
    /// In place of agree(): the devices, and the processes, exchange the data of a step except the gradients. If there
    /// are several, the update is omitted if `finite_here` is 0 on any of them. False if every device leaves the step.
    virtual bool exchange_health(Step& step, std::int32_t finite_here) = 0;
    /// After the update: the mean of the replicas' rows with these weights becomes the device's average. If it is not
    /// finite, the status becomes that of a step without effect. `one` is a 1 in the device's memory; `fragment` is the
    /// number of the fragment, whose columns of the rows and of the average alone are used. False if every device
    /// leaves the step.
    virtual bool average_rows(Step& step, std::span<const std::int64_t> weights, const float* one, int fragment) = 0;
    /// The same, but the mean may be complete later: where may_be_under_way() returns true, finish_rows() completes it,
    /// in the same step or a later one, before which the rows may be written and the average is not. Whether the mean
    /// is finite is then not known.
    virtual bool begin_rows(Step& step, std::span<const std::int64_t> weights, const float* one, int fragment) {
        return average_rows(step, weights, one, fragment);
    }
    [[nodiscard]] virtual bool may_be_under_way() const { return false; }
    virtual bool finish_rows(Step& step) { return step.state.error == nullptr; }
    /// The same between two steps, on the thread that uses the training; all processes call it.
    virtual void finish_rows() {}

protected:
    explicit RowAveraging(Replicas<D, T>& replicas) : StepAgreement<D, T>(replicas) {}

    [[nodiscard]] ColumnRange all_columns() const { return {0, this->replicas_.network().trained_elements}; }
    /// The columns that average_rows() averages.
    [[nodiscard]] ColumnRange columns_of_fragment(int fragment) const {
        return fragments_.empty() ? all_columns() : fragments_[static_cast<std::size_t>(fragment)];
    }
    /// For divide().
    std::span<const ColumnRange> fragments_{};
};

}}}  // namespace cupola::CUPOLA_ABI::impl
