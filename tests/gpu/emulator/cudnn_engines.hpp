// SPDX-License-Identifier: Apache-2.0
//
// The engines of the cuDNN stand-in and their ranking. They include one engine of each kind that a caller may have to skip,
// and each engine computes different bits, so a wrong choice changes the results.
#pragma once

#include "../../standard.hpp"
#include "cudnn_program.hpp"

namespace cupola::emulator {

/// The knobs of a configuration with their values.
using CudnnKnobs = std::vector<std::pair<cudnnBackendKnobType_t, std::int64_t>>;

struct CudnnConfiguration {
    std::int64_t engine = 0;
    CudnnKnobs knobs;
};

enum CudnnEngineIndex : std::int64_t {
    /// An engine for every problem, without knobs.
    plain_engine = 0,
    tensor_core_engine = 1,
    nondeterministic_engine = 2,
    tiled_engine = 3,
    short_sums_engine = 4,
    compiled_engine = 5,
    large_workspace_engine = 6,
    refused_engine = 7,
    down_convert_engine = 8,
    engine_count = 9
};

/// An engine with this size of a tile takes this share of its time.
inline constexpr std::int64_t fast_tile = 8;
inline constexpr double fast_tile_time = 0.9;

/// As in cuDNN 9.19, the heuristics of mode B offer more settings of an engine for a gradient of weights than those of mode A:
/// those with tiles of 5 to 7 and 4 stages.
[[nodiscard]] inline CudnnKnobs only_of_mode_b(std::int64_t tile) {
    return {{CUDNN_KNOB_TYPE_TILE_SIZE, tile}, {CUDNN_KNOB_TYPE_STAGES, 4}};
}
inline constexpr std::int64_t first_of_mode_b = 5, last_of_mode_b = 7;

/// The share of its time that an engine takes with these settings.
[[nodiscard]] inline double time_with(const CudnnKnobs& knobs) {
    for (std::int64_t tile = first_of_mode_b; tile <= last_of_mode_b; ++tile) {
        if (knobs == only_of_mode_b(tile)) return 1 - 0.1 * static_cast<double>(tile - first_of_mode_b + 1);
    }
    const auto tile = std::ranges::find(knobs, CUDNN_KNOB_TYPE_TILE_SIZE, &CudnnKnobs::value_type::first);
    return tile != knobs.end() && tile->second == fast_tile ? fast_tile_time : 1;
}

/// As in cuDNN, few channels of 16 bits are not what the tensor cores are best for: an engine without them is ranked first,
/// and one with them takes longer.
[[nodiscard]] inline bool has_few_channels(const CudnnConvolution& convolution) {
    return convolution.w.kind != ElementKind::float32 && convolution.x.extents[1] < 8;
}
inline constexpr double few_channels_time = 3;

/// `element` is the type of the tensors of the convolution.
[[nodiscard]] inline CudnnEngineKind cudnn_engine_kind(std::int64_t index, ElementKind element) {
    using Factors = CudnnEngineKind::Factors;
    using Order = CudnnEngineKind::Order;
    const Factors tensor_core = element == ElementKind::float32 ? Factors::tf32 : Factors::exact;
    CudnnEngineKind kind{.index = index};
    switch (index) {
        case tensor_core_engine:
            kind.factors = tensor_core;
            kind.seconds = 100e-6;
            kind.uses_workspace = true;
            kind.numerical_notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
            break;
        case nondeterministic_engine:
            kind.order = Order::random;
            kind.seconds = 150e-6;
            kind.uses_workspace = true;
            kind.numerical_notes = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
            break;
        case tiled_engine:
            kind.order = Order::backward;
            kind.seconds = 200e-6;
            kind.uses_workspace = true;
            break;
        case short_sums_engine:
            kind.factors = tensor_core;
            kind.short_sums = true;
            kind.seconds = 50e-6;
            kind.numerical_notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION};
            break;
        case compiled_engine:
            kind.behavior_notes = {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION};
            kind.refuses = true;  // the emulator has no run-time compiler
            break;
        case large_workspace_engine:
            kind.more_workspace = std::int64_t{3} << 30;
            kind.seconds = 60e-6;
            break;
        case refused_engine: kind.refuses = true; break;
        case down_convert_engine:
            kind.factors = Factors::bfloat16;
            kind.seconds = 80e-6;
            kind.numerical_notes = {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS};
            break;
        default: break;
    }
    return kind;
}

/// The compute capability of the first GPUs with TF32 and bfloat16 in their tensor cores is 8.0.
[[nodiscard]] inline bool has_cudnn_engine(std::int64_t index, ElementKind element, int compute_capability) {
    if (index < 0 || index >= engine_count) return false;
    if (compute_capability >= 800) return true;
    if (element == ElementKind::bfloat16) return false;
    const bool tensor_cores = index == tensor_core_engine || index == short_sums_engine;
    return element == ElementKind::float16 || !tensor_cores;
}

/// The configurations for a problem, best first.
[[nodiscard]] inline std::vector<CudnnConfiguration> ranked_cudnn_engines(const CudnnProgram& program,
                                                                          cudnnBackendHeurMode_t mode,
                                                                          int compute_capability) {
    const auto tile = [](std::int64_t size, std::int64_t stages) {
        return CudnnKnobs{{CUDNN_KNOB_TYPE_TILE_SIZE, size}, {CUDNN_KNOB_TYPE_STAGES, stages}};
    };
    const CudnnConvolution& convolution = program.convolution;
    std::vector<CudnnConfiguration> ranked;
    if (mode == CUDNN_HEUR_MODE_FALLBACK) {
        ranked = {{plain_engine, {}}};
    } else {
        ranked = {{short_sums_engine, tile(1, 4)}, {compiled_engine, tile(2, 2)},    {large_workspace_engine, {}},
                  {refused_engine, tile(3, 2)},    {tensor_core_engine, tile(4, 3)}, {tensor_core_engine, tile(8, 3)}};
        if (convolution.w.kind == ElementKind::float32) ranked.push_back({down_convert_engine, {}});
        if (convolution.direction != CudnnDirection::forward) ranked.push_back({nondeterministic_engine, tile(4, 2)});
        ranked.insert(has_few_channels(convolution) ? ranked.begin() : ranked.end(), {tiled_engine, tile(2, 2)});
        // As in cuDNN, a convolution alone has engines that one with a bias has not, and the other way round.
        if (convolution.direction == CudnnDirection::forward && program.after.empty())
            ranked.insert(ranked.begin(), {plain_engine, {}});
        if (mode == CUDNN_HEUR_MODE_B && convolution.direction == CudnnDirection::backward_filter) {
            const bool wide = convolution.w.kind == ElementKind::float32;
            for (std::int64_t size = first_of_mode_b; size <= last_of_mode_b; ++size)
                ranked.push_back({wide ? tiled_engine : tensor_core_engine, only_of_mode_b(size)});
        }
    }
    std::erase_if(ranked, [&](const CudnnConfiguration& configuration) {
        return !has_cudnn_engine(configuration.engine, convolution.w.kind, compute_capability);
    });
    return ranked;
}

/// Whether the engine has these knobs and accepts these values.
[[nodiscard]] inline bool takes_knobs(std::int64_t engine, const CudnnKnobs& knobs) {
    if (engine == plain_engine || engine == large_workspace_engine || engine == down_convert_engine)
        return knobs.empty();
    for (const auto& [knob, value] : knobs) {
        const bool known = knob == CUDNN_KNOB_TYPE_TILE_SIZE || knob == CUDNN_KNOB_TYPE_STAGES;
        if (!known || value < 0 || value > 8) return false;
    }
    return true;
}

}  // namespace cupola::emulator
