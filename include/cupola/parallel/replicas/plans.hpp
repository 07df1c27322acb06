// SPDX-License-Identifier: Apache-2.0
//
// Plans: the plans of one device, one per batch size and purpose, and the memory of their activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/stopwatch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Plans of one workspace share an arena; replicas that run in step have a workspace each. All members are called by
/// the thread of the device.
template <class Device, class T>
class Plans {
public:
    using Context = typename Device::Context;
    using MakePlan = Plan<Device, T> (*)(Context&, const PlanOptions&);

    /// Before anything else; the context must outlive the plans.
    void start(Context& context) { context_ = &context; }

    /// Makes a plan unless one exists for its batch size and purpose.
    [[gnu::cold]] void add(MakePlan make, const PlanOptions& options, std::size_t workspace = 0);
    /// Allocates an arena of `bytes` bytes per workspace, for the plans that exist.
    [[gnu::cold]] void allocate(std::size_t bytes, int workspaces);
    /// The bytes that allocate_sharing() allocates: for all workspaces together, and for what they share.
    struct SharedBytes {
        std::size_t workspaces = 0, packed = 0, scratch = 0;
        [[nodiscard]] std::size_t total() const { return workspaces + packed + scratch; }
    };
    [[nodiscard, gnu::cold]] SharedBytes shared_bytes() const;
    /// Allocates for each workspace what its own plans need, and one place for the packed weights and for the scratch
    /// memory of all workspaces, in which each plan packs its weights once. A plan may then have to pack them again
    /// between forward and backward, if one of another size or of other parameters has run: take() says so. This and
    /// shared_bytes() are defined in parallel/pipeline/shared_plans.hpp.
    [[gnu::cold]] void allocate_sharing();

    [[nodiscard]] const Plan<Device, T>& first() const { return first_->plan; }
    /// The memory of the plan that needs the most memory.
    [[nodiscard]] const PlanBytes& largest() const { return largest_; }
    /// From now on the time of the training's plans is added to `times`; null ends this.
    [[gnu::cold]] void time(StepTimer* times) {
        for (BatchPlan* plan = first_.get(); plan != nullptr; plan = plan->next.get()) {
            if (plan->plan.options().training) plan->plan.time(times);
        }
    }
    /// Destroys all plans.
    [[gnu::cold]] void clear() {
        inspection_.reset();
        first_.reset();
    }

    /// Any parameters or buffers have changed: no packed weights are valid any more.
    void parameters_changed() { ++version_; }
    /// Training has changed its parameters and statistics.
    void trained_parameters_changed() { ++trained_version_; }
    /// The same if they have changed for `other` since the last call.
    void change_with(const Plans& other) {
        version_ = other.version_;
        trained_version_ = other.trained_version_;
    }

    /// The plan for a batch, and which weights of `parameters` it has to pack; null if none was made. Plans share the
    /// arena, including packed weights, which are packed again when the parameters have changed or another plan ran.
    struct Taken {
        Plan<Device, T>* plan = nullptr;
        Packing packs = Packing::none;
    };
    [[nodiscard]] Taken take(const PlanOptions& options, const float* parameters, std::size_t workspace = 0);

    /// The plan of training that ran last in the first workspace, if it packs weights; null otherwise.
    [[nodiscard]] Plan<Device, T>* last_packing();
    /// The weights of last_packing() have been packed from `parameters`.
    void set_packed(const float* parameters);

    /// The plan that computes every layer's output, in memory of its own that is kept from its first use on.
    [[nodiscard, gnu::cold]] Plan<Device, T>& inspection(MakePlan make, std::int64_t batch);

private:
    struct BatchPlan {
        Plan<Device, T> plan;
        /// As they were given: a plan of a part chooses some itself.
        PlanOptions options;
        std::size_t workspace = 0;
        std::unique_ptr<BatchPlan> next = nullptr;
        /// The version of the parameters that its weights are packed from.
        std::int64_t prepared = -1, trained_prepared = -1;
        const float* packed_from = nullptr;
    };
    struct Workspace {
        typename Device::Arena arena;
        BatchPlan* last = nullptr;
    };

    [[nodiscard, gnu::cold]] std::size_t workspace_count() const;
    /// The bytes of a workspace without what all share.
    [[nodiscard, gnu::cold]] std::size_t own_bytes(std::size_t workspace) const;
    [[nodiscard]] bool shares() const { return shared_.size() > 0; }
    [[nodiscard]] BatchPlan* find(const PlanOptions& options, std::size_t workspace);
    /// Makes a plan again whose scratch memory is what does not fit the arena, of algorithms that need less.
    [[gnu::cold]] void fit_scratch(std::unique_ptr<BatchPlan>& made, MakePlan make, std::size_t available);

    Context* context_ = nullptr;
    /// The plans, each of which has the next.
    std::unique_ptr<BatchPlan> first_;
    PlanBytes largest_;
    std::unique_ptr<Plan<Device, T>> inspection_;
    typename Device::Arena inspection_arena_;
    FixedArray<Workspace> workspaces_;
    /// After allocate_sharing(): the memory, and the plan that has packed its weights.
    typename Device::Arena shared_;
    std::size_t shared_scratch_ = 0;
    BatchPlan* last_packed_ = nullptr;
    std::int64_t version_ = 0, trained_version_ = 0;
};

// Defined outside of the class, and so not inline: separately compiled programs do not instantiate what src.hpp
// has.

template <class Device, class T>
void Plans<Device, T>::add(MakePlan make, const PlanOptions& options, std::size_t workspace) {
    const auto team = context_->team();
    if (find(options, workspace) != nullptr) return;
    std::unique_ptr<BatchPlan>* last = &first_;
    while (*last != nullptr) last = &(*last)->next;
    last->reset(new BatchPlan{make(*context_, options), options, workspace});
    const auto own = [&] {
        const PlanBytes& bytes = (*last)->plan.bytes();
        return bytes.activations + bytes.saved;
    };
    if (!workspaces_.empty()) {
        const std::size_t arena = workspaces_[workspace].arena.size();
        fit_scratch(*last, make, shares() ? own() + (*last)->plan.bytes().packed + shared_scratch_ : arena);
    }
    Plan<Device, T>& plan = (*last)->plan;
    const PlanBytes& bytes = plan.bytes();
    if (bytes.total() > largest_.total()) largest_ = bytes;
    if (workspaces_.empty()) return;
    typename Device::Arena& arena = workspaces_[workspace].arena;
    const bool fits = shares() ? own() <= arena.size() && bytes.scratch <= shared_scratch_ &&
                                     bytes.packed <= shared_.size() - shared_scratch_
                               : bytes.total() <= arena.size();
    require<OutOfMemory>(fits, "a forward pass of ", options.batch,
                         options.batch == 1 ? " sample needs " : " samples needs ", ByteCount{bytes.total()},
                         ", and the arena has ", ByteCount{arena.size() + shared_.size()});
    if (shares())
        plan.bind(arena.data(), shared_.data() + shared_scratch_, shared_.data());
    else
        plan.bind(arena.data());
}

template <class Device, class T>
void Plans<Device, T>::fit_scratch([[maybe_unused]] std::unique_ptr<BatchPlan>& made, [[maybe_unused]] MakePlan make,
                                   [[maybe_unused]] std::size_t available) {
    if constexpr (requires { context_->set_max_workspace(std::size_t{}); }) {
        const PlanBytes& bytes = made->plan.bytes();
        if (bytes.total() <= available || bytes.total() - bytes.scratch > available) return;
        const std::size_t limit = context_->max_workspace();
        context_->set_max_workspace(available - (bytes.total() - bytes.scratch));
        try {
            made.reset(new BatchPlan{make(*context_, made->options), made->options, made->workspace});
        } catch (const DeviceError&) {
            // There is nothing that needs less: the caller reports the plan that it has.
        }
        context_->set_max_workspace(limit);
    }
}

template <class Device, class T>
Plan<Device, T>& Plans<Device, T>::inspection(MakePlan make, std::int64_t batch) {
    if (!inspection_ || inspection_->options().batch != batch) {
        inspection_ =
            std::unique_ptr<Plan<Device, T>>(new Plan<Device, T>(make(*context_, {.batch = batch, .inspect = true})));
        if (inspection_->bytes().total() > inspection_arena_.size()) {
            inspection_arena_ =
                typename Device::Arena(inspection_->bytes().total(),
                                       text("the layers' outputs for inspection on device ", context_->ordinal()));
        }
        inspection_->bind(inspection_arena_.data());
    }
    return *inspection_;
}

template <class Device, class T>
auto Plans<Device, T>::take(const PlanOptions& options, const float* parameters, std::size_t workspace) -> Taken {
    BatchPlan* const found = find(options, workspace);
    if (found == nullptr) return {};
    BatchPlan*& last = shares() ? last_packed_ : workspaces_[workspace].last;
    const bool is_packed = last == found || (shares() && last != nullptr && last->options == options);
    // Each plan prepares its operations itself, which may keep something elsewhere than in the packed weights.
    const bool changed = found->trained_prepared != trained_version_;
    // Outside training also frozen weights have changed: training changes the statistics that are folded into them.
    const bool all = !is_packed || found->prepared != version_ || found->packed_from != parameters ||
                     last->packed_from != parameters || (changed && !(options.training && found->plan.has_frozen()));
    const Packing packs = all ? Packing::all : changed ? Packing::trained : Packing::none;
    found->prepared = version_;
    found->trained_prepared = trained_version_;
    found->packed_from = parameters;
    last = found;
    return {&found->plan, packs};
}

template <class Device, class T>
Plan<Device, T>* Plans<Device, T>::last_packing() {
    BatchPlan* const last = workspaces_[0].last;
    if (last == nullptr || !last->plan.options().training || last->plan.bytes().packed == 0) return nullptr;
    return &last->plan;
}

template <class Device, class T>
void Plans<Device, T>::set_packed(const float* parameters) {
    BatchPlan& last = *workspaces_[0].last;
    last.trained_prepared = trained_version_;
    last.packed_from = parameters;
}

template <class Device, class T>
auto Plans<Device, T>::find(const PlanOptions& options, std::size_t workspace) -> BatchPlan* {
    for (BatchPlan* plan = first_.get(); plan != nullptr; plan = plan->next.get()) {
        if (plan->workspace == workspace && plan->options == options) return plan;
    }
    return nullptr;
}

template <class Device, class T>
void Plans<Device, T>::allocate(std::size_t bytes, int workspaces) {
    workspaces_ = FixedArray<Workspace>(static_cast<std::size_t>(workspaces));
    for (Workspace& workspace : workspaces_)
        workspace.arena = typename Device::Arena(bytes, text("the activations of device ", context_->ordinal()));
    for (BatchPlan* plan = first_.get(); plan != nullptr; plan = plan->next.get())
        plan->plan.bind(workspaces_[plan->workspace].arena.data());
}

}}}  // namespace cupola::CUPOLA_ABI::impl
