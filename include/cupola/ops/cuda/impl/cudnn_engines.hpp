// SPDX-License-Identifier: Apache-2.0
//
// The choice of one of the engines that cuDNN offers for a graph: the first that satisfies the rules and becomes a
// plan, in the order in which cuDNN ranks them for the device, followed by cuDNN's fallbacks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/device/plan_choices.hpp>
#include <cupola/ops/cuda/impl/cudnn_graph.hpp>
#include <cupola/ops/cuda/impl/cudnn_plan.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// The rules for an engine. An engine that accumulates in less than float is never allowed.
struct EngineRules {
    /// Whether it may round the factors of a product to fewer bits.
    bool rounded_factors = true;
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
        workspace = 0, refused = 0;
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

    explicit operator bool() const { return static_cast<bool>(plan); }
};

/// The plan that `choices` has for `key`. Without one, or where cuDNN or the rules no longer allow it, the first engine
/// that the rules allow and that becomes a plan, which is then kept in `choices`. `choices` may be null. If there is no
/// such engine, the result has no plan.
[[nodiscard, gnu::cold]] inline ChosenPlan choose_plan(const CudnnTarget& target, const CudnnDescriptor& graph,
                                                       const EngineRules& rules, PlanChoices* choices,
                                                       const std::string& key) {
    ChosenPlan result;
    const auto take = [&](CudnnEngine& engine) {
        if (!allowed(engine, rules, result.dropped)) return false;
        std::optional<CudnnPlan> plan = CudnnPlan::make(target, engine.config, result.dropped.refusal);
        if (!plan) return ++result.dropped.refused, false;
        if (plan->workspace_bytes() > rules.max_workspace) return ++result.dropped.workspace, false;
        result.plan = std::move(*plan);
        result.choice = std::move(engine.choice);
        result.numerical_notes = std::move(engine.numerical_notes);
        result.behavior_notes = std::move(engine.behavior_notes);
        return true;
    };
    if (choices != nullptr) {
        if (const std::optional<EngineChoice> kept = choices->find(key)) {
            if (std::optional<CudnnEngine> engine = cudnn_engine(target, graph, *kept); engine && take(*engine))
                return result;
        }
    }
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
        for (CudnnEngine& engine : cudnn_engines(target, graph, mode, &result.dropped.refusal)) {
            if (!take(engine)) continue;
            if (choices != nullptr) choices->set(key, result.choice);
            return result;
        }
    }
    return result;
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
