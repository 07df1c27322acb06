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

/// The fused nodes of a network in parts: part after part in `list`, with the values numbered in each part. The other
/// spans have an element per part, `begins` one more.
struct NodesInParts {
    std::span<NodeInfo> list;
    std::span<std::size_t> begins;
    std::span<bool> input_gradient;
    std::span<std::int64_t> cost;

    [[nodiscard]] constexpr std::span<const NodeInfo> of(std::size_t part) const {
        return std::span<const NodeInfo>(list).subspan(begins[part], begins[part + 1] - begins[part]);
    }
};
constexpr void divide_nodes(std::span<const LayerInfo> layers, bool fusion, std::span<const std::size_t> part_begins,
                            const NodesInParts& to) {
    const std::size_t parts = part_begins.size(), count = fuse(layers, fusion, to.list);
    const std::span<const NodeInfo> all = std::span<const NodeInfo>(to.list).first(count);
    const std::size_t lowest = lowest_node(all, false);
    std::size_t part = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (part + 1 < parts && all[i].layer == part_begins[part + 1]) to.begins[++part] = i;
        to.cost[part] = saturating_sum(to.cost[part], node_cost(layers, all[i]));
    }
    to.begins[parts] = count;
    for (std::size_t k = 1; k < parts; ++k) to.input_gradient[k] = needs_gradient(all, to.begins[k], lowest, false);
    for (std::size_t k = 0; k < parts; ++k) {
        for (std::size_t i = to.begins[k]; i < to.begins[k + 1]; ++i) number_in_part(to.list[i], to.begins[k]);
    }
}

/// A part's figures that depend on the batch size: see PipelineFigures.
struct PartBytes {
    std::size_t activations = 0, entering = 0;
    /// The copies of a batch to and from the part before.
    std::int64_t copies = 0;
};
[[nodiscard]] constexpr PartBytes bytes_of_part(std::span<const LayerInfo> network, bool fusion,
                                                std::size_t element_bytes, const LayerRange& range,
                                                std::span<const NodeInfo> nodes, bool input_gradient,
                                                std::int64_t batch_size) {
    const std::span<const LayerInfo> layers = layers_of_range(network, range);
    require_countable(layers, fusion, batch_size, true, element_bytes);
    FixedArray<Lifetime> lifetimes(lifetimes_of(nodes.size(), recomputes(layers)));
    PartBytes bytes{.activations = plan_activations(nodes, batch_size, true, input_gradient, lifetimes, element_bytes)};
    if (element_bytes != sizeof(float))
        bytes.activations += plan_ends(layers, batch_size, true, input_gradient, element_bytes).bytes;
    if (range.begin == 0) return bytes;
    bytes.entering = static_cast<std::size_t>(batch_size * nodes[0].input.size()) * sizeof(float);
    bytes.copies = input_gradient ? 2 : 1;
    return bytes;
}

/// What follows from the network alone. Constants of their own, because compilers limit the steps of each constant.
template <Network Net>
struct PipelineNodes {
    static constexpr std::size_t parts = part_count<Net>;
    struct Nodes {
        std::array<NodeInfo, Net::layers.size()> list{};
        std::array<std::size_t, parts + 1> begins{};
        std::array<bool, parts> input_gradient{};
        std::array<std::int64_t, parts> cost{};
    };
    static constexpr Nodes nodes = [] {
        Nodes result;
        divide_nodes(Net::layers, Net::fusion, Net::part_begins,
                     {result.list, result.begins, result.input_gradient, result.cost});
        return result;
    }();
};

/// The members that depend on the batch size.
template <Network Net, std::size_t parts>
constexpr void fill_figures(PipelineFigures<parts>& figures, const PipelineOptions& options) {
    constexpr const auto& nodes = PipelineNodes<Net>::nodes;
    for (std::size_t k = 0; k < parts; ++k) {
        figures.layers[k] = part_layers<Net>(k);
        const auto own =
            std::span<const NodeInfo>(nodes.list).subspan(nodes.begins[k], nodes.begins[k + 1] - nodes.begins[k]);
        const PartBytes bytes = bytes_of_part(Net::layers, Net::fusion, sizeof(typename Net::Precision::Activation),
                                              figures.layers[k], own, nodes.input_gradient[k], options.batch_size);
        figures.activations[k] = bytes.activations;
        figures.entering[k] = bytes.entering;
        figures.copies += options.batches * bytes.copies;
        figures.copied_bytes += static_cast<std::size_t>(options.batches * bytes.copies) * bytes.entering;
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

/// The figures of a cut when the program runs.
class CutFigures {
public:
    explicit CutFigures(const CutInfo& cut)
        : cut_(&cut),
          list_(cut.layers.size()),
          begins_(cut.parts() + 1),
          input_gradient_(cut.parts()),
          cost_(cut.parts()) {
        divide_nodes(cut.layers, cut.fusion, cut.begins, nodes());
    }

    [[nodiscard]] std::span<const std::int64_t> cost() const { return cost_.span(); }
    [[nodiscard]] PartBytes bytes(std::size_t part, std::int64_t batch_size) {
        return bytes_of_part(cut_->layers, cut_->fusion, cut_->element_bytes, cut_->layers_of(part), nodes().of(part),
                             input_gradient_[part], batch_size);
    }

private:
    [[nodiscard]] NodesInParts nodes() { return {list_.span(), begins_.span(), input_gradient_.span(), cost_.span()}; }

    const CutInfo* cut_;
    FixedArray<NodeInfo> list_;
    FixedArray<std::size_t> begins_;
    FixedArray<bool> input_gradient_;
    FixedArray<std::int64_t> cost_;
};

/// "part 1 of 2: from layer 1 (conv1), 0.52 of the cost, 42.0 MB of activations", a line per part.
[[nodiscard, gnu::cold]] inline std::string write_parts(const CutInfo& cut, std::int64_t batch_size) {
    CutFigures figures(cut);
    std::int64_t all = 0;
    for (const std::int64_t cost : figures.cost()) all = saturating_sum(all, cost);
    std::string lines;
    for (std::size_t k = 0; k < cut.parts(); ++k) {
        const LayerInfo& first = cut.layers[cut.begins[k]];
        const PartBytes bytes = figures.bytes(k, batch_size);
        lines += text("part ", k + 1, " of ", cut.parts(), ": from layer ", cut.begins[k] + 1, " (",
                      first.name.empty() ? first.type : first.name, "), ",
                      Decimals{static_cast<double>(figures.cost()[k]) / static_cast<double>(all), 2}, " of the cost, ",
                      ByteCount{bytes.activations}, " of activations");
        if (k > 0) lines += text(", ", ByteCount{bytes.entering}, " from part ", k);
        lines += '\n';
    }
    return lines;
}

/// "pipeline: 2 parts by 1F1B, 8 batches per step: the devices wait in 0.11 of the time, ...".
[[nodiscard, gnu::cold]] inline std::string write_step(const CutInfo& cut, std::int64_t batches,
                                                       std::int64_t batch_size) {
    CutFigures figures(cut);
    FixedArray<std::int64_t> slot_counts(cut.parts());
    const TimetableRun run = cut.run(figures.cost(), batches, slot_counts.span());
    std::int64_t copies = 0;
    std::size_t copied = 0;
    std::string in_flight;
    for (std::size_t k = 0; k < cut.parts(); ++k) {
        const PartBytes bytes = figures.bytes(k, batch_size);
        copies += batches * bytes.copies;
        copied += static_cast<std::size_t>(batches * bytes.copies) * bytes.entering;
        in_flight += text(k == 0 ? "" : ", ", slot_counts[k]);
    }
    return text("pipeline: ", cut.parts(), cut.parts() == 1 ? " part by " : " parts by ", cut.timetable, ", ", batches,
                batches == 1 ? " batch" : " batches", " per step: the devices wait in ",
                Decimals{run.bubble(cut.devices), 2}, " of the time; batches in flight: ", in_flight, "; ", copies,
                copies == 1 ? " copy" : " copies", " between parts, ", ByteCount{copied});
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
