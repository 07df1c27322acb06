// SPDX-License-Identifier: Apache-2.0
//
// StepFunctions: what the steps of a training use of its TrainingOptions, without their types. The loss, the optimiser
// and the policy for statistics are called through this interface, so that the step engine and its parts depend on the
// device and the element type alone, and src.hpp compiles them once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/loss/loss_collection.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/optim/constants_writer.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/parameter_group.hpp>
#include <cupola/optim/update_parameters.hpp>
#include <cupola/parallel/statistics.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The names of the operations of a step in the order in which each device's thread queues them, noted before they are
/// queued: called with each name, by the thread of that device. The order is the same for every device type, as a test
/// checks.
///
/// It is not the order of execution. On a device that computes later the work of several steps may be queued before any
/// of it runs. The forward pass, the loss and the backward pass of a batch are one piece of work, which a device may
/// record once and launch as a whole: their names are noted together, before it is queued, and calls within it leave no
/// name. That queued work runs in this order is tested by its results.
using StepTrace = FunctionRef<void(int device, const char* name)>;

/// A loss of the data: its entry, the number of the network's output that it reads, and the elements of that output.
struct LossOfOutput {
    LossEntry entry{};
    std::size_t output = 0;
    std::int64_t elements = 0;
};

template <class D>
class StepFunctions {
public:
    using Kernels = typename D::Kernels;
    using Context = typename Kernels::Context;

    StepFunctions() = default;
    StepFunctions(const StepFunctions&) = delete;
    StepFunctions& operator=(const StepFunctions&) = delete;

    // These have the meaning of the members of TrainingOptions.
    std::int64_t batch_size = 0;
    int gradient_accumulation_steps = 1;
    std::uint64_t seed = 0;
    int check_every = 0;
    MovingAverage moving_average{};
    std::span<const ParameterGroup> groups{};
    /// Whether an update may be repeated without a call of its function: see Optimizer.
    bool repeats_update = false;
    /// Whether the policy for statistics cannot throw.
    bool updates_statistics_in_place = false;

    /// The losses of the data.
    FixedArray<LossOfOutput> losses{};
    /// Whether a batch has a report per loss beside that of their sum.
    bool sums_losses = false;

    /// Queues loss `k` of a batch and its gradient at the network's output, without the factor: see
    /// loss/queue_loss.hpp.
    virtual void queue_loss(Context& context, std::size_t k, const float* outputs, const BatchView& batch,
                            float* gradient, LossReport* report) const = 0;
    /// Whether every loss can be queued by the following function.
    [[nodiscard]] virtual bool queues_own_type() const { return false; }
    /// queue_loss() of outputs in the network's element type, other than float, whose gradient it writes in that type,
    /// times the factor.
    virtual void queue_loss_in_own_type(Context&, std::size_t, const void*, const BatchView&, void*, LossReport*,
                                        const GradientFactor&) const {}
    /// The result of a report. Throws InvalidArgument for an invalid target.
    [[nodiscard]] virtual LossResult result_of_loss(std::size_t k, const LossReport& report) const = 0;
    /// Waits for the loss of a batch; computes no gradient.
    [[nodiscard]] virtual LossResult loss_of(Context& context, std::size_t k, const float* outputs,
                                             const BatchView& batch) const = 0;

    /// Why samples whose weights add up to 0 do not count, where the loss knows it.
    [[nodiscard, gnu::cold]] virtual std::string reason_of_no_weight() const = 0;

    [[nodiscard]] virtual double learning_rate_at(std::int64_t step) const = 0;
    /// Throws InvalidArgument for a learning rate that is negative, or not finite as a float, and what a schedule
    /// throws.
    virtual void require_learning_rate_at(std::int64_t step) const = 0;
    /// `force` is null unless the replicas agree by elastic averaging.
    virtual void update(const Update<Kernels>& u, const ElasticForce* force) const = 0;
    /// Writes the constants that update(u, force) uses, in its order; only where `repeats_update`.
    virtual void write_constants(const Update<Kernels>& u, const ElasticForce* force, ConstantsWriter& to) const = 0;

    virtual void update_statistics(const StatisticsUpdate& u) const = 0;

protected:
    ~StepFunctions() = default;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
