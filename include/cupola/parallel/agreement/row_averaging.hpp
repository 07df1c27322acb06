// SPDX-License-Identifier: Apache-2.0
//
// RowAveraging: an agreement that can average rows other than gradients, for replicas that agree on a centre. The
// agreements of collectives and between processes are of this kind; CentreRows is the one for a function of the rows of
// one process.
#pragma once

#include <cstdint>
#include <span>

#include <cupola/parallel/agreement/step_agreement.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
class RowAveraging : public StepAgreement<D, T> {
public:
    using typename StepAgreement<D, T>::Step;

    /// Whether exchange_health() reads from the device's status whether all is finite, and not from its argument, so
    /// that no device waits for that.
    [[nodiscard]] virtual bool exchanges_health_on_device() const { return false; }
    /// In place of agree(): the devices, and the processes, exchange the data of a step except the gradients. If there
    /// are several, the update is omitted if `finite_here` is 0 on any of them. False if every device leaves the step.
    virtual bool exchange_health(Step& step, std::int32_t finite_here) = 0;
    /// After the update: the mean of the replicas' rows with these weights becomes the device's average. If it is not
    /// finite, the status becomes that of a step without effect. `one` is a 1 in the device's memory. False if every
    /// device leaves the step.
    virtual bool average_rows(Step& step, std::span<const std::int64_t> weights, const float* one) = 0;

protected:
    explicit RowAveraging(Replicas<D, T>& replicas) : StepAgreement<D, T>(replicas) {}
};

}}}  // namespace cupola::CUPOLA_ABI::impl
