// SPDX-License-Identifier: Apache-2.0
//
// The figures of a network in parts (net/pipeline/split.hpp) before it is trained: what a step of several batches costs
// in a pipeline of one part per device, as constant expressions.
//
//   struct Halves : Split<ResNet<44>, 2> {};
//   static_assert(pipeline<Halves>({.batches = 8}).bubble < 0.15);
//
// Costs are counts, as Split counts them, and backward costs twice as much as forward; copies cost nothing, and so does
// what Recompute (net/recompute.hpp) computes again, whose memory is that of the parts' plans.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/memory_plan.hpp>
#include <cupola/net/pipeline/node_range.hpp>
#include <cupola/net/pipeline/split.hpp>
#include <cupola/net/pipeline/timetable.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A step of a pipeline: its batches, at least 1, which may be fewer than the parts, and the samples of each.
struct PipelineOptions {
    std::int64_t batches = 1, batch_size = 128;
};

/// The figures of a step in `parts` parts.
template <std::size_t parts>
struct PipelineFigures {
    /// The fraction of the devices' time in which they wait, from 0 to 1.
    double bubble = 0;
    /// The time of the step and the sum of the times of all passes, as counts of multiply-adds.
    std::int64_t length = 0, busy = 0;
    /// Per part: its layers, the cost of its forward pass for one sample, and how many batches it keeps at a time.
    std::array<LayerRange, parts> layers{};
    std::array<std::int64_t, parts> cost{}, slot_count{};
    /// Per part, in bytes: the activations and gradients of one batch, which are PlanBytes::activations of its plan;
    /// the value that enters it, as floats (0 for the first part); and both for all its slots.
    std::array<std::size_t, parts> activations{}, entering{}, bytes{};
    /// The copies between devices in a step, and their bytes.
    std::int64_t copies = 0;
    std::size_t copied_bytes = 0;
};

namespace impl {

/// What follows from the network alone. Constants of their own, because compilers limit the steps of each constant.
template <Network Net>
struct PipelineNodes {
    static constexpr std::size_t parts = part_count<Net>;
    /// The fused nodes, part after part, with the values numbered in each part.
    struct Nodes {
        std::array<NodeInfo, Net::layers.size()> list{};
        std::array<std::size_t, parts + 1> begins{};
        std::array<bool, parts> input_gradient{};
        std::array<std::int64_t, parts> cost{};
    };
    static constexpr Nodes nodes = [] {
        Nodes result;
        const std::size_t count = fuse(Net::layers, Net::fusion, result.list);
        const std::span<const NodeInfo> all = std::span<const NodeInfo>(result.list).first(count);
        const std::size_t lowest = lowest_node(all, false);
        std::size_t part = 0;
        for (std::size_t i = 0; i < count; ++i) {
            if (part + 1 < parts && all[i].layer == part_layers<Net>(part + 1).begin) result.begins[++part] = i;
            result.cost[part] = saturating_sum(result.cost[part], node_cost(Net::layers, all[i]));
        }
        result.begins[parts] = count;
        for (std::size_t k = 1; k < parts; ++k)
            result.input_gradient[k] = needs_gradient(all, result.begins[k], lowest, false);
        for (std::size_t k = 0; k < parts; ++k) {
            for (std::size_t i = result.begins[k]; i < result.begins[k + 1]; ++i)
                number_in_part(result.list[i], result.begins[k]);
        }
        return result;
    }();
};

/// The members that depend on the batch size.
template <Network Net, std::size_t parts>
constexpr void fill_figures(PipelineFigures<parts>& figures, const PipelineOptions& options) {
    using T = typename Net::Precision::Activation;
    constexpr const auto& nodes = PipelineNodes<Net>::nodes;
    for (std::size_t k = 0; k < parts; ++k) {
        figures.layers[k] = part_layers<Net>(k);
        const std::span<const LayerInfo> layers = layers_of_range(Net::layers, figures.layers[k]);
        require_countable(layers, Net::fusion, options.batch_size, true, sizeof(T));
        const auto own =
            std::span<const NodeInfo>(nodes.list).subspan(nodes.begins[k], nodes.begins[k + 1] - nodes.begins[k]);
        FixedArray<Lifetime> lifetimes(lifetimes_of(own.size(), recomputes(layers)));
        figures.activations[k] =
            plan_activations(own, options.batch_size, true, nodes.input_gradient[k], lifetimes, sizeof(T));
        if constexpr (!std::same_as<T, float>)
            figures.activations[k] +=
                plan_ends(layers, options.batch_size, true, nodes.input_gradient[k], sizeof(T)).bytes;
        if (k == 0) continue;
        figures.entering[k] = static_cast<std::size_t>(options.batch_size * own[0].input.size()) * sizeof(float);
        const std::int64_t copies = options.batches * (nodes.input_gradient[k] ? 2 : 1);
        figures.copies += copies;
        figures.copied_bytes += static_cast<std::size_t>(copies) * figures.entering[k];
    }
    figures.cost = nodes.cost;
}

}  // namespace impl

/// The figures of `Net` with a timetable. Throws InvalidArgument for fewer than one batch or sample, and with the
/// message of `timetable` for a timetable that cannot be run; in a constant expression that does not compile.
template <CutNetwork Net, Timetable S = TimetableOf<Net>>
[[nodiscard]] constexpr auto pipeline(const PipelineOptions& options = {}) {
    constexpr std::size_t parts = part_count<Net>;
    if (options.batches < 1 || options.batch_size < 1)
        throw InvalidArgument("a pipeline needs at least one batch, and one sample per batch");
    PipelineFigures<parts> figures;
    impl::fill_figures<Net>(figures, options);
    const TimetableRun run = run_timetable<S>(figures.cost, options.batches, figures.slot_count);
    if (run.error != TimetableError::none) {
        const CompileTimeMessage message = timetable_diagnostic<S>(run, parts, options.batches);
        throw InvalidArgument(std::string(message.characters, message.size));
    }
    figures.length = run.length;
    figures.busy = run.busy;
    figures.bubble = run.bubble(S::devices(parts));
    for (std::size_t k = 0; k < parts; ++k)
        figures.bytes[k] =
            static_cast<std::size_t>(figures.slot_count[k]) * (figures.activations[k] + aligned(figures.entering[k]));
    return figures;
}

namespace impl {

template <class Net>
struct PipelineText {
    static constexpr std::size_t count = part_count<Net>;

    /// "part 1 of 2: from layer 1 (conv1), 0.52 of the cost, 42.0 MB of activations", a line per part.
    [[nodiscard, gnu::cold]] static std::string parts(std::int64_t batch_size) {
        PipelineFigures<count> figures;
        fill_figures<Net>(figures, {.batch_size = batch_size});
        std::int64_t all = 0;
        for (const std::int64_t cost : figures.cost) all = saturating_sum(all, cost);
        std::string lines;
        for (std::size_t k = 0; k < count; ++k) {
            const LayerInfo& first = Net::layers[figures.layers[k].begin];
            lines += text("part ", k + 1, " of ", count, ": from layer ", figures.layers[k].begin + 1, " (",
                          first.name.empty() ? first.type : first.name, "), ",
                          Decimals{static_cast<double>(figures.cost[k]) / static_cast<double>(all), 2},
                          " of the cost, ", ByteCount{figures.activations[k]}, " of activations");
            if (k > 0) lines += text(", ", ByteCount{figures.entering[k]}, " from part ", k);
            lines += '\n';
        }
        return lines;
    }

    /// "pipeline: 2 parts by 1F1B, 8 batches per step: the devices wait in 0.11 of the time, ...".
    [[nodiscard, gnu::cold]] static std::string step(std::int64_t batches, std::int64_t batch_size) {
        const PipelineFigures<count> figures = pipeline<Net>({.batches = batches, .batch_size = batch_size});
        std::string in_flight;
        for (std::size_t k = 0; k < count; ++k) in_flight += text(k == 0 ? "" : ", ", figures.slot_count[k]);
        return text("pipeline: ", count, count == 1 ? " part by " : " parts by ", TimetableOf<Net>::name, ", ", batches,
                    batches == 1 ? " batch" : " batches", " per step: the devices wait in ",
                    Decimals{figures.bubble, 2}, " of the time; batches in flight: ", in_flight, "; ", figures.copies,
                    figures.copies == 1 ? " copy" : " copies", " between parts, ", ByteCount{figures.copied_bytes});
    }
};

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
