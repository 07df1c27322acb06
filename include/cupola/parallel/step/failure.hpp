// SPDX-License-Identifier: Apache-2.0
//
// StepFailure: why a step has failed: an invalid target, id or weight, or the first number that is not finite, by a
// slow search. A step that succeeds does not come here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/finite.hpp>
#include <cupola/net/table.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/step/batches.hpp>
#include <cupola/parallel/step/check.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/parallel/step/step_reports.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/ids.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Throws the error of a training whose loss or gradient is not finite, as `what` says; `where` is the search's result.
[[noreturn, gnu::cold]] inline void throw_diverged(std::int64_t step, const std::string& what, const std::string& where,
                                                   int replica) {
    throw DivergedError(
        text(what, " at step ", step, where.empty() ? "" : ": ", where,
             "; training diverged or a batch holds numbers that are not finite; the parameters are those "
             "before the step"),
        step, replica);
}

/// "the output of layer 3 (norm1, LocalResponseNorm<4>) is the first that is not finite", or the like; empty if
/// everything is finite. The device's context provides `all_finite`.
template <class Device, class T>
[[gnu::cold]] std::string first_not_finite(DeviceWorker<Device, T>& worker, Plan<Device, T>& plan,
                                           std::span<const LayerInfo> layers, const float* parameters,
                                           const BatchView& batch, const RngKey& key) {
    auto& context = worker.context();
    std::string found = non_finite_column(context, layers, batch);
    if (!found.empty()) return found;
    worker.inspect(plan, parameters, batch, key, nullptr, [&](std::size_t layer, std::span<const float> values) {
        if (!found.empty() || all_finite(context, values)) return;
        found = text("the output of layer ", layer + 1, " (", layers[layer].name,
                     layers[layer].name.empty() ? "" : ", ", layers[layer].type, ") is the first that is not finite");
    });
    return found;
}

template <class D, class T>
class StepFailure {
public:
    /// The parts of the step must outlive the object; `policy` is the name of the one by which the replicas agree.
    [[gnu::cold]] StepFailure(const StepFunctions<D>& functions, Replicas<D, T>& replicas, Peers& peers,
                              const SampleCounts& counts, TakenBatches<D, T>& batches, StepReports<D, T>& reports,
                              std::string_view policy)
        : functions_(functions),
          replicas_(replicas),
          peers_(peers),
          results_(replicas, peers),
          counts_(counts),
          batches_(batches),
          reports_(reports),
          policy_(policy) {}

    /// Whether targets, ids and weights of a step that was skipped are valid.
    [[nodiscard, gnu::cold]] bool valid_input(std::int64_t step);

    /// Throws InvalidArgument for a target, an id or a weight of the step that is not valid, and otherwise a
    /// DivergedError for the first replica whose loss or gradient is not finite. Shared statistics make the losses of
    /// all replicas NaN: the origin is the replica whose own batch contains one. `scale` is the loss scale of the step.
    [[noreturn, gnu::cold]] void find(std::int64_t step, float scale);
    /// After a step that failed. Rows that were divided in place by a weight of 0 are NaN between the parameters too,
    /// where no pass writes.
    [[gnu::cold]] void clear_rows();

private:
    /// The data of one replica that remain after a step.
    struct Searched {
        std::int64_t samples = 0;
        /// Its loss.
        double total = 0;
        /// The last element of its gradient that is not finite; -1 if there is none.
        std::int64_t not_finite_element = -1;
        /// The first of its batches whose loss is not finite, -1 if there is none; and its last batch that has samples.
        int part = -1, last_part = -1;
        /// That last batch, at the address that the device reads, and its random numbers.
        BatchView batch{};
        RngKey key{};

        [[nodiscard]] bool has_finite_loss() const { return part < 0 && is_finite(total); }
    };
    using AllSearched = FixedArray<Searched>;

    [[nodiscard, gnu::cold]] AllSearched what_remains(std::int64_t step);
    /// Throws InvalidArgument for weights of a step that are not valid. Returns false where no sample counts and a loss
    /// is not finite: another device has then not skipped the step.
    [[gnu::cold]] bool require_weights(std::int64_t step);
    /// "3 on replica 0, 3 on replica 1", the samples of a step.
    [[nodiscard, gnu::cold]] std::string samples_text(std::int64_t step) const;

    /// `under` says the loss scale, where it is dynamic.
    [[gnu::cold]] void throw_loss(std::int64_t step, const AllSearched& replicas, const std::string& under);

    /// Empty where nothing was found, or the batch is not there any more.
    [[nodiscard, gnu::cold]] std::string where_not_finite(int replica, const Searched& each) {
        return found_.empty() ? search(replica, each) : found_[static_cast<std::size_t>(replica)];
    }
    /// The same of a replica of this process.
    [[nodiscard, gnu::cold]] std::string search(int replica, const Searched& each);
    /// Each process searches its own replicas, and receives what the others have found.
    [[gnu::cold]] void search_in_all_processes(std::int64_t step, const AllSearched& replicas);

    [[nodiscard, gnu::cold]] std::string gradient_text(std::int64_t element) const {
        return text("every output is finite; the gradient of ", parameter_at(replicas_.network().layers, element),
                    " is not");
    }
    [[nodiscard]] int parts() const { return functions_.gradient_accumulation_steps; }

    const StepFunctions<D>& functions_;
    Replicas<D, T>& replicas_;
    Peers& peers_;
    BatchResults<D, T> results_;
    const SampleCounts& counts_;
    TakenBatches<D, T>& batches_;
    StepReports<D, T>& reports_;
    std::string_view policy_;
    /// With several processes, what was found for each replica.
    FixedArray<std::string> found_;
};

template <class D, class T>
void StepFailure<D, T>::find(std::int64_t step, float scale) {
    const AllSearched replicas = what_remains(step);
    require_weights(step);
    std::string under;
    const LossScale& rule = replicas_.settings().loss_scale;
    if (rule.dynamic) under = text(" (the loss scale is ", scale, ", and its minimum ", rule.minimum, ")");
    found_ = {};
    if (peers_.any() && peers_.reads_together()) search_in_all_processes(step, replicas);
    throw_loss(step, replicas, under);
    for (std::size_t r = 0; r < replicas.size(); ++r) {
        const int replica = static_cast<int>(r);
        // A collective does not know the element of a replica in another process, but what was found.
        const bool is_found = replicas[r].not_finite_element >= 0 || (!found_.empty() && !found_[r].empty());
        if (replicas[r].samples == 0 || !is_found) continue;
        std::string where = where_not_finite(replica, replicas[r]);
        if (where.empty()) where = gradient_text(replicas[r].not_finite_element);
        if (parts() > 1) where += text("; of its ", parts(), " batches the last that has samples was searched");
        throw_diverged(step, text("the gradient of replica ", r, " is not finite", under), where, replica);
    }
    if (replicas_.settings().centre) throw_update_diverged(step, "difference of a replica to the centre is not finite");
    throw_diverged(step, "the averaged gradient is not finite" + under, {}, -1);
}

template <class D, class T>
auto StepFailure<D, T>::what_remains(std::int64_t step) -> AllSearched {
    const ReplicaPlacement& placement = replicas_.placement();
    AllSearched replicas(static_cast<std::size_t>(placement.replicas()));
    for (int r = 0; r < placement.replicas(); ++r) {
        Searched& found = replicas[static_cast<std::size_t>(r)];
        found = {.samples = counts_.of_replica(step, r),
                 .total = reports_.of(step, r).total,
                 .not_finite_element = results_.not_finite_element(step, r)};
        found.part = reports_.part_not_finite(step, r);
        found.last_part = counts_.last_part(step, r);
        if (!placement.is_here(r)) continue;
        // A queue that copies batches still has those of the failed step, even if later steps were queued.
        const int part = std::max(found.last_part, 0);
        found.batch = batches_.of(r).batch;
        found.batch.size = counts_.of(step, part, r);
        found.key = batches_.key_of(step, part, r);
    }
    return replicas;
}

template <class D, class T>
void StepFailure<D, T>::throw_loss(std::int64_t step, const AllSearched& replicas, const std::string& under) {
    int found = -1;
    std::string where;
    for (std::size_t r = 0; r < replicas.size(); ++r) {
        const Searched& each = replicas[r];
        if (each.samples == 0 || each.has_finite_loss()) continue;
        const bool last = each.part == each.last_part;
        std::string origin = last ? where_not_finite(static_cast<int>(r), each) : std::string();
        const bool better = found < 0 || (where.empty() && !origin.empty());
        if (better) found = static_cast<int>(r);
        if (better) where = std::move(origin);
        if (!where.empty()) break;
    }
    if (found < 0) return;
    const Searched& origin = replicas[static_cast<std::size_t>(found)];
    if (origin.part >= 0 && origin.part != origin.last_part)
        where = text("it is that of batch ", origin.part + 1, " of ", parts());
    else if (origin.part >= 0 && where.empty())
        where = "every layer's output is finite";
    throw_diverged(step, text("the loss of replica ", found, " is ", origin.total, under), where, found);
}

template <class D, class T>
void StepFailure<D, T>::search_in_all_processes(std::int64_t step, const AllSearched& replicas) {
    found_ = FixedArray<std::string>(replicas.size());
    for (std::size_t r = 0; r < replicas.size(); ++r) {
        const Searched& each = replicas[r];
        if (each.samples == 0 || (each.has_finite_loss() && each.not_finite_element < 0)) continue;
        try {
            found_[r] = search(static_cast<int>(r), each);
        } catch (const Error& error) {
            found_[r] = text("not found: ", error.what());
        }
        if (found_[r].empty() && each.has_finite_loss()) found_[r] = gradient_text(each.not_finite_element);
    }
    peers_.exchange_texts(step, found_.span());
}

template <class D, class T>
std::string StepFailure<D, T>::search(int replica, const Searched& each) {
    std::string where;
    if (each.batch.size == 0) return where;
    replicas_.threads().run([&](int device) {
        if (device != replicas_.placement().device_of(replica)) return;
        auto& state = replicas_.at(device);
        const auto team = state.context().team();
        state.queue->write(&state.status()->step, each.key.step);
        Plan<typename D::Kernels, T>& plan = state.worker.plans().inspection(replicas_.network().make, each.batch.size);
        where = first_not_finite(state.worker, plan, replicas_.network().layers, replicas_.parameters(replica),
                                 each.batch, each.key);
    });
    return where;
}

template <class D, class T>
bool StepFailure<D, T>::valid_input(std::int64_t step) {
    try {
        for (int r = 0; r < replicas_.placement().replicas(); ++r) static_cast<void>(reports_.part_not_finite(step, r));
        return require_weights(step);
    } catch (const InvalidArgument&) {
        return false;
    }
}

template <class D, class T>
bool StepFailure<D, T>::require_weights(std::int64_t step) {
    double weight = 0;
    bool finite = true;
    for (int r = 0; r < replicas_.placement().replicas(); ++r) {
        const ReplicaReport& report = reports_.of(step, r);
        require(is_nan(report.weight) || report.weight >= 0, "the weights of the samples of replica ", r, " in step ",
                step, " add up to ", report.weight, "; a weight must be 0 or more");
        weight += report.weight;
        finite = finite && is_finite(report.total);
    }
    if (!finite) return weight > 0;
    if (!replicas_.settings().weighted) return true;
    if (!(weight > 0)) {
        require(replicas_.settings().skips_without_weight, "no sample of step ", step, " counts, of ",
                samples_text(step), ": ", functions_.reason_of_no_weight(),
                "; the option skip_steps_without_labels lets such a step pass without an update");
        return true;
    }
    for (int r = 0; replicas_.settings().centre && r < replicas_.placement().replicas(); ++r) {
        const std::int64_t samples = counts_.of_replica(step, r);
        require(samples == 0 || reports_.of(step, r).weight > 0, "no sample of replica ", r, " in step ", step,
                " counts, of ", samples, ": ", functions_.reason_of_no_weight(), "; ", policy_,
                " updates each replica with its own samples");
    }
    return true;
}

template <class D, class T>
std::string StepFailure<D, T>::samples_text(std::int64_t step) const {
    std::string all;
    for (int r = 0; r < replicas_.placement().replicas(); ++r) {
        const std::int64_t samples = counts_.of_replica(step, r);
        if (samples > 0) all += text(all.empty() ? "" : ", ", samples, " on replica ", r);
    }
    return all;
}

template <class D, class T>
void StepFailure<D, T>::clear_rows() {
    if (!replicas_.settings().weighted || !(replicas_.settings().centre || replicas_.gradients().in_place())) return;
    const FixedArray<float> zeros(replicas_.elements());
    replicas_.threads().run([&](int device) {
        const ReplicaPlacement& placement = replicas_.placement();
        for (int r = placement.first_replica(device); r < placement.first_replica(device + 1); ++r)
            replicas_.at(device).worker.set(replicas_.gradients().row(r), zeros.span());
    });
}

template <class D, class T>
int StepReports<D, T>::part_not_finite(std::int64_t step, int replica) {
    int found = -1;
    for (int part = 0; part < replicas_.settings().gradient_accumulation_steps; ++part) {
        if (counts_.of(step, part, replica) == 0) continue;
        require_ids(step, part, replica);
        bool finite = true;
        for (std::size_t k = 0; k < functions_.losses.size(); ++k)
            finite = finite && is_finite(functions_.result_of_loss(k, landed(step, part, replica, k)).sum);
        if (!finite && found < 0) found = part;
    }
    return found;
}

template <class D, class T>
void StepReports<D, T>::require_ids(std::int64_t step, int part, int replica) {
    const std::span<const RequiredColumn> required = replicas_.settings().required;
    if (std::none_of(required.begin(), required.end(), [](const RequiredColumn& each) { return each.ids > 0; })) return;
    const IdReport& bad = *results_.of(step, replica, part).bad_id;
    if (bad.place < 0) return;
    const RequiredColumn& column = required[static_cast<std::size_t>(bad.column)];
    throw InvalidArgument(text("the ids of an input must be in range, but in the batch of replica ", replica,
                               " in step ", step, ' ', bad_id_text(column.column, bad.place, bad.id, column.ids)));
}

}}}  // namespace cupola::CUPOLA_ABI::impl
