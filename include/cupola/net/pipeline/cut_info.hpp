// SPDX-License-Identifier: Apache-2.0
//
// What a training needs of a network in parts (net/pipeline/split.hpp): the parts and their timetable as values, so
// that the code that runs them does not depend on the network's type. CutInfoOf makes them:
// net/pipeline/timetable_of.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/fixed_array.hpp>
#include <cupola/net/node_info.hpp>
#include <cupola/net/pipeline/cut_choice.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// What a device does in one action. `parameter_gradients` exists only where a timetable splits backward.
enum class PipelineWork : std::uint8_t { forward, backward, parameter_gradients };

/// One pass of a part for one batch of the step.
struct PipelineAction {
    PipelineWork work = PipelineWork::forward;
    std::size_t part = 0;
    std::int64_t batch = 0;
    bool operator==(const PipelineAction&) const = default;
};

/// In net/pipeline/timetable.hpp.
struct TimetableRun;

/// The functions are those of the network's timetable (net/pipeline/timetable.hpp).
struct CutInfo {
    /// The network: its layers, whether they are fused, and the bytes of an element of an activation.
    std::span<const LayerInfo> layers{};
    bool fusion = true;
    std::size_t element_bytes = sizeof(float);
    /// The first layer of each part.
    std::span<const std::size_t> begins{};
    std::string_view timetable{};
    /// The devices of a group, which has all parts; at least one.
    std::size_t devices = 1;
    std::size_t (*device_of)(std::size_t part, std::size_t parts) = nullptr;
    std::int64_t (*slot_count)(std::size_t part, std::size_t parts, std::int64_t batches) = nullptr;
    std::int64_t (*actions)(std::size_t device, std::size_t parts, std::int64_t batches) = nullptr;
    PipelineAction (*action)(std::size_t device, std::int64_t i, std::size_t parts, std::int64_t batches) = nullptr;
    bool splits_backward = false;
    /// Why the timetable cannot be run with this many batches; empty if it can.
    std::string (*problem)(std::size_t parts, std::int64_t batches) = nullptr;
    /// That of net/pipeline/timetable.hpp.
    TimetableRun (*run)(std::span<const std::int64_t> costs, std::int64_t batches,
                        std::span<std::int64_t> max_in_flight) = nullptr;
    /// Those of net/pipeline/pipeline.hpp.
    std::string (*write_parts)(const CutInfo& cut, std::int64_t batch_size) = nullptr;
    std::string (*write_step)(const CutInfo& cut, std::int64_t batches, std::int64_t batch_size) = nullptr;
    /// That of PlanOptions.
    std::size_t (*keep_layers)(std::span<const LayerInfo> layers, bool fusion, std::span<NodeInfo> nodes,
                               const LayerRange& range, bool& input_gradient) = nullptr;

    [[nodiscard]] std::size_t parts() const { return begins.size(); }
    [[nodiscard]] std::size_t part_of(std::size_t layer) const {
        std::size_t part = 0;
        while (part + 1 < begins.size() && begins[part + 1] <= layer) ++part;
        return part;
    }
    [[nodiscard]] LayerRange layers_of(std::size_t part) const {
        return {begins[part], part + 1 < begins.size() ? begins[part + 1] : no_layer};
    }
    /// A line per part of a plan for a batch; and the figures of a step of so many batches in each group.
    [[nodiscard]] std::string parts_text(std::int64_t batch_size) const { return write_parts(*this, batch_size); }
    [[nodiscard]] std::string step_text(std::int64_t batches, std::int64_t batch_size) const {
        return write_step(*this, batches, batch_size);
    }
};

namespace impl {

/// The cut of a CutChoice; no parts for a network without cuts.
struct ChosenCut {
    FixedArray<std::size_t> begins{};
    CutInfo info{};

    [[nodiscard]] const CutInfo* cut() const { return begins.empty() ? nullptr : &info; }
};

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
