// SPDX-License-Identifier: Apache-2.0
//
// ReplicaSettings: what the parts of a training know of its options, its policy (AgreementTraits) and its losses, as
// numbers that do not change.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/core/process_number.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// What the memory of a training depends on in the way that its replicas agree.
struct AgreementTraits {
    /// Whether the average is separate from the gradient even of a single replica, because other processes have
    /// replicas.
    bool separate_average = false;
    /// Whether each process reads the rows of all, and writes a part of one average.
    bool averages_rows_of_all = false;
    /// Whether the agreement takes the gradient in buckets while backward passes run. They are then marked in the
    /// queue, and a row is not completed before them.
    bool takes_buckets = false;
    /// Floats of the sums that a collective makes on each device, beside the average.
    std::int64_t sums = 0;
    /// The minimum number of elements of a bucket of the gradient; 0 for one bucket.
    std::int64_t bucket_elements = 0;
    /// Whether each replica, and not each device, has its own parameters, and each device a centre beside them: the
    /// model of the training, with the moving averages and `centre_states` arenas of the optimiser that moves it.
    bool centre = false;
    int centre_states = 0;
    /// Arenas of each replica beside those of its optimiser, and how many of them are a part of the training's state.
    int replica_arenas = 0, replica_states = 0;
    /// Whether the optimiser of the training updates the centre, so that its state is the centre's, and not the
    /// replicas' parameters.
    bool updates_centre = false;
    /// The maximum number of queued steps whose reports have not been read; 0 for as many as the device has.
    std::int64_t steps_in_flight = 0;
};

/// `steps_in_flight` is at least the device's.
struct ReplicaSettings : AgreementTraits {
    int replicas = 1, devices = 1, gradient_accumulation_steps = 1;
    std::int64_t batch_size = 0;
    std::span<const std::int64_t> other_batch_sizes{};
    /// The largest batch of an evaluation, where that is more than batch_size.
    std::int64_t evaluation_batch_size = 0;
    /// The number of steps of which the queue keeps the status beside that of the step that runs; 0 where the device
    /// decides.
    std::int64_t landed_steps = 0;
    int state_arenas = 0;
    bool moving_average = false;
    /// Whether the replicas stop inside a pass to all-reduce statistics: each replica then has an arena of activations.
    bool synchronized = false;
    std::size_t regularized = 0;
    /// Whether the loss has weights, which its reports contain; otherwise each sample has the weight 1.
    bool weighted = false;
    /// The number of reports of each batch beside that of the sum of its losses.
    std::size_t losses = 0;
    /// The processes that the replicas are divided between; `processes` is their engine, null unless the policy has
    /// one; must outlive the training. `share` is Processes::share(), which is called through this pointer so that a
    /// training of one process needs no engine's header.
    ProcessNumber process{};
    Processes* processes = nullptr;
    std::vector<std::byte*> (*share)(Processes&, std::size_t bytes) = nullptr;
    /// The columns that the network and the losses read; must outlive the training.
    std::span<const RequiredColumn> required{};
    LossScale loss_scale = LossScale::constant(1);
    /// Whether a step is skipped whose samples all have the weight 0.
    bool skips_without_weight = false;

    /// Whether the gradient that parameters are updated with is in memory beside the replicas' rows.
    [[nodiscard]] bool has_averages() const { return separate_average || replicas > 1; }
    /// Whether a collective gathers the status blocks of all devices of all processes with each step.
    [[nodiscard]] bool gathers_blocks() const { return process.count > 1 && processes == nullptr; }
    /// The loss scale if it is constant, and 1 if the devices keep one that changes.
    [[nodiscard]] double constant_loss_scale() const { return loss_scale.dynamic ? 1.0 : loss_scale.initial; }
    /// Whether the devices may skip a step.
    [[nodiscard]] bool may_skip() const { return loss_scale.dynamic || skips_without_weight; }
    /// Throws InvalidArgument if the training may skip a step, which `policy` cannot.
    [[gnu::cold]] void require_no_skipping(std::string_view policy) const {
        require(!loss_scale.dynamic, policy,
                " cannot skip a step, which a dynamic loss_scale does: use a constant one");
        require(!skips_without_weight, policy,
                " cannot skip a step, which skip_steps_without_labels does: leave it out");
    }
    /// Whether the network reads ids.
    [[nodiscard]] bool reads_ids() const {
        return std::any_of(required.begin(), required.end(), [](const RequiredColumn& each) { return each.ids > 0; });
    }
    /// The plan of a batch of a step.
    [[nodiscard]] PlanOptions plan_options(std::int64_t batch) const {
        return {.batch = batch, .synchronized = synchronized, .bucket_elements = bucket_elements};
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
