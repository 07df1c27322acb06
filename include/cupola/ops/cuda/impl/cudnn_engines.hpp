// SPDX-License-Identifier: Apache-2.0
//
// The choice of an engine among those that cuDNN offers for a graph, that satisfy the rules, and of which cuDNN makes a
// plan: the fastest on the device or, where nothing is timed, the first in the order in which cuDNN ranks them for the
// device, followed by cuDNN's fallbacks. An engine counts once for each setting of its knobs that cuDNN offers. Timed
// choices have more candidates: those of cuDNN's heuristics of mode B, which take more of the host's time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/device/plan_choices.hpp>
#include <cupola/ops/cuda/impl/cudnn_graph.hpp>
#include <cupola/ops/cuda/impl/cudnn_plan.hpp>
#include <cupola/ops/cuda/impl/plan_timer.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The rules for an engine. An engine that accumulates in less than float is never allowed.
struct EngineRules {
    /// Whether it may round the factors of a product to fewer bits.
    bool rounded_factors = true;
    /// Whether an engine without tensor cores is used only where there is none with them.
    bool tensor_cores = false;
    /// Whether it must give the same bits each time.
    bool deterministic = false;
    /// Whether it may be compiled at run time when the plan is made, which needs an installed compiler and tenths of a
    /// second.
    bool compiled_at_run_time = false;
    /// The largest workspace. An engine that unfolds its input needs many times the tensors' own size.
    std::size_t max_workspace = std::size_t{1} << 30;
};

/// An engine's configuration, with the properties that cuDNN reports for it.
struct CudnnEngine {
    CudnnDescriptor config;
    EngineChoice choice;
    std::vector<cudnnBackendNumericalNote_t> numerical_notes;
    std::vector<cudnnBackendBehaviorNote_t> behavior_notes;

    [[nodiscard]] bool has(cudnnBackendNumericalNote_t note) const {
        return std::ranges::count(numerical_notes, note) > 0;
    }
    [[nodiscard]] bool has(cudnnBackendBehaviorNote_t note) const {
        return std::ranges::count(behavior_notes, note) > 0;
    }
};

/// Reads the properties of `config`.
[[nodiscard, gnu::cold]] inline CudnnEngine describe_engine(CudnnDescriptor config) {
    CudnnEngine result;
    const CudnnDescriptor engine =
        std::move(config.get_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1).at(0));
    result.choice.engine = engine.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64);
    result.numerical_notes = engine.get_all<cudnnBackendNumericalNote_t>(
        CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    result.behavior_notes = engine.get_all<cudnnBackendBehaviorNote_t>(
        CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
    for (const CudnnDescriptor& knob : config.get_descriptors(
             CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS)) {
        result.choice.knobs.emplace_back(
            knob.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE),
            knob.get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64));
    }
    std::ranges::sort(result.choice.knobs);
    result.config = std::move(config);
    return result;
}

/// The engines that cuDNN offers, the best first. Empty where cuDNN has no heuristics of this mode for the graph;
/// `refusal`, if given, then receives the reason.
[[nodiscard, gnu::cold]] inline std::vector<CudnnEngine> cudnn_engines(const CudnnTarget& target,
                                                                       const CudnnDescriptor& graph,
                                                                       cudnnBackendHeurMode_t mode,
                                                                       std::string* refusal = nullptr) {
    CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (target.device != nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device);
    std::vector<CudnnEngine> result;
    if (const cudnnStatus_t status = heuristics.try_finalize(); status != CUDNN_STATUS_SUCCESS) {
        if (refusal != nullptr) *refusal = cudnn_words(status);
        return result;
    }
    for (CudnnDescriptor& config :
         heuristics.get_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
        result.push_back(describe_engine(std::move(config)));
    }
    return result;
}

/// The heuristics to query, in this order. For the gradient of weights in bfloat16 or half, mode B offers about as many
/// more engines with tensor cores as mode A does. It takes tens of milliseconds and ranks no better, so it is left out
/// where the first allowed engine is used.
[[nodiscard]] inline std::span<const cudnnBackendHeurMode_t> heuristic_modes(bool times) {
    static constexpr std::array modes{CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK};
    static constexpr std::array without_b{CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    return times ? std::span<const cudnnBackendHeurMode_t>(modes) : without_b;
}

/// The engine of a kept choice. Empty where this version of cuDNN has no such engine or knob for the graph.
[[nodiscard, gnu::cold]] inline std::optional<CudnnEngine> cudnn_engine(const CudnnTarget& target,
                                                                        const CudnnDescriptor& graph,
                                                                        const EngineChoice& choice) {
    try {
        CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
        engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, choice.engine);
        if (target.device != nullptr) engine.set(CUDNN_ATTR_ENGINE_DEVICEPROP, *target.device);
        engine.finalize();
        std::vector<CudnnDescriptor> knobs;
        for (const auto& [knob, value] : choice.knobs) {
            CudnnDescriptor& descriptor = knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
            descriptor.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
                           static_cast<cudnnBackendKnobType_t>(knob));
            descriptor.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, value);
            descriptor.finalize();
        }
        CudnnDescriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
        config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knobs);
        config.finalize();
        return describe_engine(std::move(config));
    } catch (const DeviceError&) {
        return std::nullopt;
    }
}

/// The number of rejected engines, and the reasons: for the message where none is left.
struct EnginesDropped {
    int tensor_core = 0, down_convert = 0, short_sums = 0, nondeterministic = 0, compiled_at_run_time = 0,
        workspace = 0, refused = 0, failed = 0, plain = 0;
    /// cuDNN's message for the last engine that it rejected, or for offering none.
    std::string refusal;

    [[nodiscard, gnu::cold]] std::string to_text() const {
        std::string result;
        const auto add = [&result](int count, std::string_view why) {
            if (count > 0) result += text(result.empty() ? "" : ", ", count, " ", why);
        };
        add(tensor_core, "for tensor cores, which round float factors");
        add(down_convert, "for rounding their inputs");
        add(short_sums, "for sums of fewer bits than float has");
        add(nondeterministic, "for not being deterministic");
        add(compiled_at_run_time, "for being compiled at run time");
        add(workspace, "for the workspace that they need");
        add(refused, "that cuDNN then refused");
        add(failed, "that failed when they ran");
        add(plain, "for not using the tensor cores");
        result = result.empty() ? "it offered none" : "it passed over " + result;
        return refusal.empty() ? result : text(result, " (", refusal, ")");
    }
};

/// Whether the rules allow an engine; disallowed engines are counted.
[[nodiscard]] inline bool allowed(const CudnnEngine& engine, const EngineRules& rules, EnginesDropped& dropped) {
    if (!rules.rounded_factors && engine.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) return ++dropped.tensor_core, false;
    if (!rules.rounded_factors && engine.has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
        return ++dropped.down_convert, false;
    if (engine.has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return ++dropped.short_sums, false;
    if (rules.deterministic && engine.has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
        return ++dropped.nondeterministic, false;
    if (!rules.compiled_at_run_time && engine.has(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION))
        return ++dropped.compiled_at_run_time, false;
    return true;
}

/// A plan and the engine from which it was made.
struct ChosenPlan {
    CudnnPlan plan;
    EngineChoice choice;
    std::vector<cudnnBackendNumericalNote_t> numerical_notes;
    std::vector<cudnnBackendBehaviorNote_t> behavior_notes;
    /// The engines rejected before it or, without a plan, all rejected engines.
    EnginesDropped dropped;
    /// The number of the variant that it computes.
    std::size_t variant = 0;

    explicit operator bool() const { return static_cast<bool>(plan); }
};

/// "engine 4 2=8 18=1"
[[nodiscard, gnu::cold]] inline std::string engine_text(const EngineChoice& choice) {
    std::string result = text("engine ", choice.engine);
    for (const auto& [knob, value] : choice.knobs) result += text(' ', knob, '=', value);
    return result;
}

/// One way to compute an operation: a graph, and work that precedes it. `tensors` are those of the graph, followed by
/// those that only the preceding work reads or writes. If `used` is a graph, of the first of the same tensors, the plan
/// is made for it, with the engine that is chosen for `graph`.
struct PlanVariant {
    CudnnDescriptor graph;
    CudnnDescriptor used = {};
    std::string key = {};
    /// The bytes of the tensors, for timing.
    std::vector<std::size_t> tensors = {};
    /// The number of the graph's tensors, which come first.
    std::size_t graph_tensors = 0;
    /// The scratch memory of the preceding work, which counts like the plan's own.
    std::size_t scratch = 0;
    /// Queues the preceding work; may refer to nothing.
    FunctionRef<void(std::span<const void* const> tensors)> before = {};
};

/// One choice of a plan: see choose_plan.
class PlanChooser {
public:
    PlanChooser(const CudnnTarget& target, std::span<const PlanVariant> variants, const EngineRules& rules,
                PlanChoices* choices)
        : target_(target), variants_(variants), rules_(rules), choices_(choices), rejected_(variants.size()) {}

    [[gnu::cold]] ChosenPlan choose(const PlanTrial& trial) {
        if (choices_ == nullptr) {
            choose_new(trial);
        } else if (!take_kept()) {
            const std::unique_lock<std::mutex> measuring = choices_->measure();
            if (!take_kept()) choose_new(trial);  // another device may have chosen meanwhile
        }
        return std::move(result_);
    }

private:
    /// The plans of an engine: for the graph for which it is chosen, and for the graph that is used, if that differs.
    struct Plans {
        CudnnPlan of_graph, of_used = {};
    };
    /// The plans of an engine that the rules allow and that has both; otherwise nothing, and the engine is counted as
    /// rejected.
    [[nodiscard]] std::optional<Plans> plans_of(const PlanVariant& variant, const CudnnEngine& engine,
                                                EnginesDropped& dropped) {
        std::optional<CudnnPlan> of_graph = plan_of(variant, engine, dropped);
        if (!of_graph) return std::nullopt;
        Plans result{.of_graph = std::move(*of_graph)};
        if (!variant.used) return result;
        const std::optional<CudnnEngine> same = cudnn_engine(target_, variant.used, engine.choice);
        if (!same) return ++dropped.refused, std::nullopt;
        std::optional<CudnnPlan> of_used = plan_of(variant, *same, dropped);
        if (!of_used) return std::nullopt;
        result.of_used = std::move(*of_used);
        return result;
    }
    [[nodiscard]] std::optional<CudnnPlan> plan_of(const PlanVariant& variant, const CudnnEngine& engine,
                                                   EnginesDropped& dropped) {
        if (!allowed(engine, rules_, dropped)) return std::nullopt;
        std::optional<CudnnPlan> plan = CudnnPlan::make(target_, engine.config, dropped.refusal);
        if (!plan) return ++dropped.refused, std::nullopt;
        if (plan->workspace_bytes() + variant.scratch > rules_.max_workspace) return ++dropped.workspace, std::nullopt;
        return plan;
    }
    /// An engine that was timed.
    struct Candidate {
        CudnnEngine engine;
        Plans plans;
    };
    static void take(ChosenPlan& result, CudnnEngine& engine, Plans& plans) {
        result.plan = std::move(plans.of_used ? plans.of_used : plans.of_graph);
        result.choice = std::move(engine.choice);
        result.numerical_notes = std::move(engine.numerical_notes);
        result.behavior_notes = std::move(engine.behavior_notes);
    }

    [[nodiscard]] bool take_kept() {
        for (std::size_t i = 0; i < variants_.size(); ++i) {
            const PlanVariant& variant = variants_[i];
            const std::optional<EngineChoice> kept = choices_->find(variant.key);
            if (!kept || kept == rejected_[i]) continue;
            if (std::optional<CudnnEngine> engine = cudnn_engine(target_, variant.graph, *kept)) {
                if (std::optional<Plans> plans = plans_of(variant, *engine, result_.dropped)) {
                    take(result_, *engine, *plans);
                    result_.variant = i;
                    record({.source = PlanRecord::Source::kept});
                    return true;
                }
            }
            choices_->note(
                text("the kept ", engine_text(*kept), " of ", variant.key, " cannot be used: another is chosen"));
            rejected_[i] = kept;
        }
        return false;
    }

    void choose_new(const PlanTrial& trial) {
        PlanRecord best;
        double spent = 0;
        for (std::size_t i = 0; i < variants_.size(); ++i) {
            PlanTrial own = trial;
            own.tensors = variants_[i].tensors;
            // The limit is for all variants together, but each gets at least a tenth.
            own.seconds = std::max(trial.seconds - spent, trial.seconds / 10);
            PlanTimer timer(own.tensors.empty() ? nullptr : &own);
            if (choices_ != nullptr && !timer.why().empty())
                choices_->note(text("no candidate is timed for the plan of ", variants_[i].key, ": ", timer.why()));
            PlanRecord made;
            ChosenPlan offered;
            offered.variant = i;
            contest(variants_[i], timer, made, offered);
            spent += timer.spent();
            if (!offered) {
                if (i == 0) result_ = std::move(offered);
                continue;
            }
            const bool better = !result_ || is_better(offered, made, best);
            const PlanRecord& other = better ? best : made;
            const double next = other.timed > 0 ? other.seconds : 0;
            const int all_timed = best.timed + made.timed, not_timed = best.not_timed + made.not_timed;
            std::vector<TimedCandidate> candidates = std::move(best.candidates);
            candidates.insert(candidates.end(), made.candidates.begin(), made.candidates.end());
            if (better) {
                result_ = std::move(offered);
                best = made;
            }
            best.candidates = std::move(candidates);
            if (next > 0 && (best.next_seconds <= 0 || next < best.next_seconds)) best.next_seconds = next;
            best.timed = all_timed;
            best.not_timed = not_timed;
        }
        if (!result_ || choices_ == nullptr) return;
        choices_->set(variants_[result_.variant].key, result_.choice);
        record(std::move(best));
    }

    /// Whether the plan of a later variant is to replace the best so far.
    [[nodiscard]] bool is_better(const ChosenPlan& offered, const PlanRecord& made, const PlanRecord& best) const {
        const auto has_tensor_cores = [](const ChosenPlan& plan) {
            return std::ranges::count(plan.numerical_notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) > 0;
        };
        if (rules_.tensor_cores && has_tensor_cores(offered) != has_tensor_cores(result_))
            return has_tensor_cores(offered);
        const bool times = made.source == PlanRecord::Source::timed && best.source == made.source;
        if (times) return made.seconds < PlanTimer::faster * best.seconds;
        // cuDNN ranks the tensor cores first for this variant alone.
        return result_.dropped.plain > 0 && offered.dropped.plain == 0;
    }

    /// Chooses one of a variant's engines. Those with tensor cores come first, where the rules prefer them; the others
    /// are left out if there is one.
    void contest(const PlanVariant& variant, PlanTimer& timer, PlanRecord& made, ChosenPlan& result) {
        std::vector<EngineChoice> seen;
        std::vector<CudnnEngine> plain;
        std::vector<Candidate> timed;
        for (const cudnnBackendHeurMode_t mode : heuristic_modes(timer.times())) {
            for (CudnnEngine& engine : cudnn_engines(target_, variant.graph, mode, &result.dropped.refusal)) {
                if (std::ranges::find(seen, engine.choice) != seen.end()) continue;
                seen.push_back(engine.choice);
                if (rules_.tensor_cores && !engine.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) {
                    plain.push_back(std::move(engine));
                    EnginesDropped ignored;
                    result.dropped.plain += plans_of(variant, plain.back(), ignored) ? 1 : 0;
                } else if (try_engine(variant, timer, timed, made, result, engine)) {
                    return;
                }
            }
        }
        if (timed.empty()) {
            result.dropped.plain = 0;
            for (CudnnEngine& engine : plain) {
                if (try_engine(variant, timer, timed, made, result, engine)) return;
            }
        }
        if (timed.empty()) return;
        const std::size_t chosen =
            timer.choose([&](std::size_t candidate, std::byte* workspace, std::span<const void* const> tensors) {
                run(variant, timed[candidate].plans.of_graph, workspace, tensors);
            });
        take(result, timed[chosen].engine, timed[chosen].plans);
        result.plan.forget_pointers();
        made.source = PlanRecord::Source::timed;
        made.seconds = timer.seconds();
        made.next_seconds = timer.next_seconds();
        made.timed = timer.timed();
        for (std::size_t i = 0; i < made.candidates.size(); ++i) made.candidates[i].seconds = timer.seconds_of(i);
    }

    void run(const PlanVariant& variant, CudnnPlan& plan, std::byte* workspace,
             std::span<const void* const> tensors) const {
        if (variant.before) variant.before(tensors);
        plan.run(target_.handle, workspace, tensors.first(variant.graph_tensors));
    }

    /// True if the engine is used without being timed. One that is timed is added to `timed`.
    [[nodiscard]] bool try_engine(const PlanVariant& variant, PlanTimer& timer, std::vector<Candidate>& timed,
                                  PlanRecord& made, ChosenPlan& result, CudnnEngine& engine) {
        if (timer.is_over()) {
            EnginesDropped ignored;
            made.not_timed += allowed(engine, rules_, ignored) ? 1 : 0;
            return false;
        }
        std::optional<Plans> plans = plans_of(variant, engine, result.dropped);
        if (!plans) return false;
        if (!timer.times()) {
            take(result, engine, *plans);
            return true;
        }
        CudnnPlan& plan = plans->of_graph;
        const PlanTimer::Result how =
            timer.offer(plan.workspace_bytes(), [&](std::byte* workspace, std::span<const void* const> tensors) {
                run(variant, plan, workspace, tensors);
            });
        plan.forget_pointers();
        if (how == PlanTimer::Result::failed) ++result.dropped.failed;
        if (how == PlanTimer::Result::no_memory) ++result.dropped.workspace;
        if (how != PlanTimer::Result::timed) return false;
        made.candidates.push_back(
            {text(engine_text(engine.choice), engine.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ? ", tensor cores" : "",
                  variant.before ? ", padded" : "")});
        timed.push_back({std::move(engine), std::move(*plans)});
        return false;
    }

    void record(PlanRecord made) {
        made.key = variants_[result_.variant].key;
        made.choice = result_.choice;
        made.name = engine_text(result_.choice);
        choices_->record(std::move(made));
    }

    const CudnnTarget& target_;
    std::span<const PlanVariant> variants_;
    const EngineRules& rules_;
    PlanChoices* choices_;
    /// Per variant, a kept choice that cannot be used.
    std::vector<std::optional<EngineChoice>> rejected_;
    ChosenPlan result_;
};

/// The plan that `choices` has for the key of a variant. If it has none, or cuDNN or the rules no longer allow it: the
/// fastest, over all variants, of the engines that the rules allow and whose plan can be made and run, which is then
/// kept in `choices`. Where nothing is timed (PlanTimer) it is the first of them, of the first variant, or of one for
/// which cuDNN ranks no engine without tensor cores before it. `choices` may be null. The result has no plan if there
/// is no engine.
[[nodiscard, gnu::cold]] inline ChosenPlan choose_plan(const CudnnTarget& target, std::span<const PlanVariant> variants,
                                                       const EngineRules& rules, PlanChoices* choices,
                                                       const PlanTrial& trial = {}) {
    return PlanChooser(target, variants, rules, choices).choose(trial);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
