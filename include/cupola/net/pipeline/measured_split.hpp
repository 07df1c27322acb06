// SPDX-License-Identifier: Apache-2.0
//
// The best cuts of a network by measured times of its operations, as names for SplitAt (net/pipeline/split.hpp). Split
// has counts instead, by which parts of ResNet-44 differ by a fifth in time. profile() measures the times
// (train/profile.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/pipeline/split.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Parts of a network and their times.
struct MeasuredSplit {
    /// The names at which the parts begin, except the first part: the parameters of SplitAt.
    std::vector<std::string> names;
    /// The time of each part.
    std::vector<double> seconds;

    /// The time of the longest part over the mean of all; a pipeline of many batches needs that much more time.
    [[nodiscard]] double largest_over_mean() const {
        const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
        return sum > 0 ? *std::ranges::max_element(seconds) * static_cast<double>(seconds.size()) / sum : 1;
    }
};

namespace impl {

/// The shortest name by which SplitAt begins a part at a layer; empty if there is none.
[[nodiscard, gnu::cold]] inline std::string_view cut_name(std::span<const LayerInfo> layers, std::size_t begin) {
    std::size_t named = begin;
    while (named + 1 < layers.size() && layers[named].is_view() && layers[named].name.empty()) ++named;
    const std::string_view full = layers[named].name;
    for (std::size_t length = 1; length <= full.size(); ++length) {
        const bool whole = length == full.size() || full[length] == '.';
        if (whole && first_layer_of(layers, full.substr(0, length)) == begin) return full.substr(0, length);
    }
    return {};
}

/// Throws InvalidArgument unless each node has a time, and all together fit in 64 bits of nanoseconds.
[[gnu::cold]] inline void check_node_seconds(std::span<const LayerInfo> layers, bool fusion,
                                             std::span<const double> seconds) {
    FixedArray<NodeInfo> nodes(layers.size());
    const std::size_t count = fuse(layers, fusion, nodes);
    require(seconds.size() == count, "measured_split needs the times of the ", count,
            " operations of the network, not ", seconds.size(), seconds.size() == 1 ? " time" : " times");
    constexpr double most = 9e9;
    double sum = 0;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
        require(is_finite(seconds[i]) && seconds[i] >= 0, "the seconds of operation ", i, " must be at least 0, not ",
                seconds[i]);
        sum += seconds[i];
    }
    require(sum <= most, "the seconds of all operations must be at most ", most, " together, not ", sum);
}

}  // namespace impl

/// Divides the network so that the longest part is as short as the places for cuts that have a name allow. `seconds`
/// has the time of each node of fuse(layers, fusion). Without parts if there are fewer places than `parts` - 1. Throws
/// InvalidArgument for no parts, for another number of times, for a time that is negative or not finite, and for times
/// of more than 9e9 seconds together.
[[nodiscard, gnu::cold]] inline MeasuredSplit measured_split(std::span<const LayerInfo> layers, bool fusion,
                                                             std::span<const double> seconds, std::size_t parts) {
    require(parts >= 1, "a network has at least one part, not 0");
    impl::check_node_seconds(layers, fusion, seconds);
    constexpr double nanoseconds = 1e9;
    const impl::Segments segments = impl::find_segments(
        layers, fusion,
        [&](std::size_t i, const NodeInfo&) { return static_cast<std::int64_t>(seconds[i] * nanoseconds); },
        [&](std::size_t layer) { return !impl::cut_name(layers, layer).empty(); });
    MeasuredSplit result;
    if (segments.begins.size() < parts) return result;
    FixedArray<std::size_t> begins(parts);
    impl::balance_segments(segments.cost_before, begins.span());
    for (std::size_t k = 0; k < parts; ++k) {
        const std::size_t end = k + 1 < parts ? begins[k + 1] : segments.begins.size();
        if (k > 0) result.names.emplace_back(impl::cut_name(layers, segments.begins[begins[k]]));
        result.seconds.push_back(static_cast<double>(segments.cost_before[end] - segments.cost_before[begins[k]]) /
                                 nanoseconds);
    }
    return result;
}

/// "SplitAt<Net, "layer2"> is the best of 2 parts: the longest has 1.01 of the mean time".
[[nodiscard, gnu::cold]] inline std::string to_string(const MeasuredSplit& split) {
    std::string line = "SplitAt<Net";
    for (const std::string& name : split.names) line += text(", \"", name, '"');
    return text(line, "> is the best of ", split.seconds.size(), " parts: the longest has ",
                Decimals{split.largest_over_mean(), 2}, " of the mean time");
}

}}  // namespace cupola::CUPOLA_ABI
