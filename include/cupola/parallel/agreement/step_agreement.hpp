// SPDX-License-Identifier: Apache-2.0
//
// StepAgreement: what a step needs of the way in which the replicas agree, without the type of the policy. The step
// engine and its parts know nothing else of it, so they are compiled once for all policies. AgreementOf: which one a
// policy has.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/agreement/agreement_kind.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The gradient that an optimiser updates parameters with, and the divisor that made it the mean; both in the device's
/// memory.
struct UpdateGradient {
    const float* values = nullptr;
    const float* divisor = nullptr;
};

/// What the replicas' rows are after a step: gradients as the passes write them; or divided by the loss scale and the
/// weight of the samples; or differences to the centre; or nothing that lasts.
enum class RowsAfter { gradients, means, differences, other };

/// Members with a DeviceStep or a `device` are called on that device's thread, a few times per step.
template <class D, class T>
class StepAgreement {
public:
    using Step = DeviceStep<D, T>;

    StepAgreement(const StepAgreement&) = delete;
    StepAgreement& operator=(const StepAgreement&) = delete;
    virtual ~StepAgreement() = default;

    /// The other processes; and those of a collective that compare more than the gradient, null for any other policy.
    [[nodiscard]] virtual Peers& peers() = 0;
    [[nodiscard]] virtual ProcessGroup* processes() { return nullptr; }
    /// Before a step is queued, on one thread; `running` are the running statistics that it is computed with.
    virtual void begin(std::int64_t /*step*/, const SampleCounts&, std::span<const float> /*running*/) {}
    /// Queues the averaging after the passes; called also if the device has an error, because others wait for it.
    /// False if every device leaves the step.
    virtual bool agree(Step& step) = 0;
    /// The beginning of the work that updates the parameters in a step: divides by the loss scale, and records whether
    /// the average is finite, unless agree() has done so.
    virtual void reduce(int /*device*/, std::int64_t /*step*/) {}
    /// What a replica's parameters are updated with in a step. Others may be in flight.
    [[nodiscard]] virtual UpdateGradient gradient(int device, int /*replica*/, std::int64_t /*step*/) {
        return {replicas_.gradients().average(device), &replicas_.at(device).status()->divisor};
    }
    /// Once, before the first step: the segments of the optimiser's update, which outlive this object, and the moving
    /// averages, which an agreement on a centre updates.
    virtual void bind(std::span<const Segment> /*of_update*/, const MovingAverage&) {}
    /// The force in the update of a copy of the parameters in a step; none without a centre.
    [[nodiscard]] virtual ElasticForce force(int /*device*/, int /*copy*/, std::int64_t /*step*/) const { return {}; }
    /// Whether a step's update has a force.
    [[nodiscard]] virtual bool has_force(std::int64_t /*step*/) const { return false; }
    /// Whether a copy of the parameters is updated in a step; always, where the host does not read the device's memory.
    [[nodiscard]] virtual bool moves(int /*device*/, int /*copy*/, std::int64_t /*step*/) const { return true; }
    /// Steps of one variant queue the same work for the update, so that a device may repeat it.
    [[nodiscard]] virtual int variant_of_update(std::int64_t /*step*/) const { return 0; }
    [[nodiscard]] virtual RowsAfter rows_after(std::int64_t /*step*/) const { return RowsAfter::gradients; }
    /// After the update; called also if the device has an error.
    virtual void after(Step&) {}
    /// The name of a replica's state beside its optimiser's, in checkpoints.
    [[nodiscard]] virtual std::string_view replica_state_name(int /*arena*/) const { return {}; }
    /// "Periodic every 16 steps, the centre by sgd", where replicas agree on a centre: the only rule that continues
    /// from their state.
    [[nodiscard]] virtual std::string name_of_rule() const { return {}; }
    /// The name of an arena of the optimiser that moves the centre.
    [[nodiscard]] virtual std::string_view centre_state_name(int /*arena*/) const { return {}; }
    /// The numbers of samples that the next agreement on a centre counts, by replica, before a step; empty where they
    /// have no influence. They are a part of the training's state. Asynchronous replicas count batches.
    [[nodiscard]] virtual std::span<const std::int64_t> samples_since(std::int64_t /*step*/) const { return {}; }
    /// Before the state is copied: completes what is under way before step `next`. All processes call it.
    virtual void complete_state(std::int64_t /*next*/) {}
    virtual void set_samples_since(std::int64_t /*step*/, std::span<const std::int64_t>) {}
    /// Throws InvalidArgument unless set_samples_since() can take them.
    virtual void require_samples_since(std::span<const std::int64_t>) const {}
    /// Returns when the step has finished, or the mark of the queue is reached.
    virtual void wait(int device, std::int64_t step, bool finished) = 0;
    /// Ends the waits of all devices.
    virtual void break_off(int /*device*/, std::int64_t /*step*/, const std::string& /*why*/) {}
    /// Returns when no queued work runs any more, whether it succeeded or not.
    virtual void end(int device) = 0;
    /// False once no step can succeed any more.
    [[nodiscard]] virtual bool healthy() const { return true; }

protected:
    /// `replicas` must outlive the object.
    explicit StepAgreement(Replicas<D, T>& replicas) : replicas_(replicas) {}

    Replicas<D, T>& replicas_;
};

/// Specialised for the policies of each kind of agreement, in its header; a training creates its agreement by it. The
/// members are static:
///   AgreementTraits traits(policy, elements)                          `elements` are those of a gradient
///   std::unique_ptr<StepAgreement<D, T>> make(policy, replicas)
/// A training of gradient rows in one process has the one of rows_agreement.hpp; only programs with another kind of
/// policy include its header: collective_agreement.hpp, kinds/centre_agreement.hpp, and those of processes/agreement/.
template <class A, class D, class T>
struct AgreementOf {
    static_assert(static_assert_message<AgreementKind<A, D>::missing()>());
    // So that the compiler reports nothing more.
    static AgreementTraits traits(const A&, std::int64_t) { return {}; }
    static std::unique_ptr<StepAgreement<D, T>> make(const A&, Replicas<D, T>&) { return nullptr; }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
