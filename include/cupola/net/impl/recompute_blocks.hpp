// SPDX-License-Identifier: Apache-2.0
//
// Finds the blocks of Recompute (net/recompute.hpp) in a network's table, and the first error of its patterns.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/glob.hpp>
#include <cupola/net/impl/add_layer.hpp>
#include <cupola/net/impl/inner_name.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A block: the layers [first, last], and its name in the network.
struct RecomputeBlock {
    std::string_view name;
    std::uint64_t hash = 0;
    std::size_t first = 0, last = 0;
};

/// The name of the outermost block that contains a layer and matches a pattern, or the layer's own name if only that
/// matches: a beginning of `name` that ends before a dot. Empty if none does. Sets `used` of the patterns that match.
[[nodiscard]] constexpr std::string_view recomputed_name(std::string_view name,
                                                         std::span<const std::string_view> patterns,
                                                         std::span<bool> used) {
    std::string_view result;
    for (std::size_t end = 1; end <= name.size(); ++end) {
        if (end < name.size() && name[end] != '.') continue;
        for (std::size_t k = 0; k < patterns.size(); ++k) {
            if (!glob_matches(patterns[k], name.substr(0, end))) continue;
            used[k] = true;
            if (result.empty()) result = name.substr(0, end);
        }
    }
    return result;
}

/// The Fork whose branches a layer joins, or the layer itself: a block of branches begins there.
[[nodiscard]] constexpr std::size_t begin_of_joined(std::span<const LayerInfo> layers, std::size_t joint) {
    std::size_t value = layers[joint].also_reads;
    if (value == no_value) return joint;
    for (bool aside = layers[joint].also_reads_aside; value > 0;) {
        const LayerInfo& source = layers[value - 1];
        // A named Fork is a Keep, whose readers are no block.
        if (aside) return source.kind == LayerKind::fork && source.name.empty() ? value - 1 : joint;
        aside = source.reads_aside;
        value = source.reads;
    }
    return joint;
}

/// The value whose memory a value uses, before fusion.
[[nodiscard]] constexpr std::size_t storage_before_fusion(std::span<const LayerInfo> layers, std::size_t value) {
    while (value > 0 && layers[value - 1].is_view() && layers[value - 1].column.empty())
        value = layers[value - 1].reads;
    return value;
}

/// "conv1, layer1, fc": the outermost names.
constexpr void list_outermost_names(CompileTimeMessage& message, std::span<const LayerInfo> layers) {
    constexpr std::size_t most = CompileTimeMessage::capacity - 60;
    std::string_view before;
    std::int64_t more = 0;
    for (const LayerInfo& layer : layers) {
        const std::string_view name(layer.name.begin(), std::ranges::find(layer.name, '.'));
        if (name.empty() || name == before) continue;
        if (message.size > most) {
            ++more;
        } else {
            message << (before.empty() ? "" : ", ") << name;
        }
        before = name;
    }
    if (before.empty()) message << "none";
    if (more > 0) message << " and " << more << " others";
}

template <std::size_t layer_count>
struct RecomputedLayers {
    std::array<LayerInfo, layer_count> layers{};
    CompileTimeMessage diagnostic{};
};

/// Marks the blocks of a network.
template <std::size_t layer_count>
class RecomputeMarks {
public:
    constexpr RecomputeMarks(std::span<const LayerInfo> layers, std::span<const std::string_view> patterns)
        : layers_(layers), patterns_(patterns) {
        for (std::size_t i = 0; i < layer_count; ++i) result_.layers[i] = layers[i];
    }

    /// Marks nothing in a network that is not valid, whose table ends at its error.
    constexpr RecomputedLayers<layer_count> run(bool valid) {
        if (!valid) return result_;
        if (patterns_.empty())
            result_.diagnostic
                << "Recompute names no block; name at least one pattern, as in Recompute<Net, 'layer1.*'>";
        if (good()) find_named();
        if (good()) find_readers();
        for (std::size_t b = 0; b < count_ && good(); ++b) mark(b);
        if (good()) check_readers();
        return result_;
    }

private:
    [[nodiscard]] constexpr bool good() const { return result_.diagnostic.empty(); }

    /// Finds the blocks by the names of their layers.
    constexpr void find_named() {
        FixedArray<bool> used(patterns_.size());
        for (std::size_t i = 0; i < layer_count; ++i) {
            if (layers_[i].name.empty()) continue;
            const std::string_view name = recomputed_name(layers_[i].name, patterns_, used);
            if (name.empty()) continue;
            const std::uint64_t hash = name_hash(name);
            std::size_t b = count_;
            while (b > 0 && blocks_[b - 1].hash != hash) --b;
            if (b == 0) {
                blocks_[count_] = {name, hash, i, i};
                b = ++count_;
            }
            RecomputeBlock& block = blocks_[b - 1];
            block.first = std::min(block.first, begin_of_joined(layers_, i));
            block.last = i;
        }
        for (std::size_t k = 0; k < patterns_.size() && good(); ++k) {
            if (used[k]) continue;
            result_.diagnostic << "Recompute's pattern '" << patterns_[k]
                               << "' matches no layer and no block of the network; its outermost names are: ";
            list_outermost_names(result_.diagnostic, layers_);
        }
    }

    constexpr void find_readers() {
        for (std::size_t i = 0; i < layer_count; ++i) {
            if (layers_[i].reads > 0) last_reader_[layers_[i].reads - 1] = i;
            if (layers_[i].also_reads != no_value && layers_[i].also_reads > 0)
                last_reader_[layers_[i].also_reads - 1] = i;
        }
    }

    constexpr void begin_diagnostic(const RecomputeBlock& block) {
        result_.diagnostic << "Recompute's block '" << block.name << "' ";
    }

    constexpr void mark(std::size_t b) {
        RecomputeBlock& block = blocks_[b];
        // What prepares its input, such as a pool, an upsampling or a concatenation, belongs to it too.
        while (block.first > 0 && belongs_to(block.first - 1, block)) --block.first;
        for (std::size_t i = block.first; i <= block.last; ++i) {
            LayerInfo& layer = result_.layers[i];
            const bool foreign = !layer.name.empty() && !layer.is_view() &&
                                 !(layer.name.starts_with(block.name) &&
                                   (layer.name.size() == block.name.size() || layer.name[block.name.size()] == '.'));
            if (foreign || layer.recompute_block != no_layer) {
                begin_diagnostic(block);
                describe(result_.diagnostic << "contains ", i + 1, layer);
                result_.diagnostic << (foreign ? ", which has another name"
                                               : ", which is in another block that is computed again");
                return;
            }
            layer.recompute_block = block.first;
        }
    }

    [[nodiscard]] constexpr bool belongs_to(std::size_t i, const RecomputeBlock& block) const {
        const LayerInfo& layer = result_.layers[i];
        return layer.name.empty() && layer.parameters.count == 0 && layer.tied_to == no_layer &&
               layer.recompute_block == no_layer && last_reader_[i] <= block.last;
    }

    /// The number of the block that a layer belongs to; count_ for none of these.
    [[nodiscard]] constexpr std::size_t block_of(std::size_t layer) const {
        const std::size_t first = result_.layers[layer].recompute_block;
        std::size_t b = first == no_layer ? count_ : 0;
        while (b < count_ && blocks_[b].first != first) ++b;
        return b;
    }

    /// A value inside a block that is read after it would have to be kept.
    constexpr void check_readers() {
        for (std::size_t i = 0; i < layer_count && good(); ++i) {
            const LayerInfo& layer = result_.layers[i];
            if (layer.is_output) check_value(i + 1, no_layer);
            check_value(layer.reads, i);
            if (layer.also_reads != no_value) check_value(layer.also_reads, i);
        }
    }

    constexpr void check_value(std::size_t value, std::size_t reader) {
        if (value == 0 || result_.layers[value - 1].recompute_block == no_layer || !good()) return;
        if (reader != no_layer && result_.layers[reader].recompute_block == result_.layers[value - 1].recompute_block)
            return;
        const std::size_t b = block_of(value - 1);
        if (b == count_) return;  // of a Recompute inside this one
        const RecomputeBlock& block = blocks_[b];
        const std::size_t storage = storage_before_fusion(layers_, value);
        if (storage <= block.first || storage == storage_before_fusion(layers_, block.last + 1)) return;
        begin_diagnostic(block);
        describe(result_.diagnostic << "computes ", value, layers_[value - 1]);
        if (reader == no_layer) {
            result_.diagnostic << ", which is an output of the network";
        } else {
            describe(result_.diagnostic << ", which ", reader + 1, layers_[reader]);
            result_.diagnostic << " reads outside the block";
        }
        result_.diagnostic << ": only the last value of a block can be read behind it";
    }

    std::span<const LayerInfo> layers_;
    std::span<const std::string_view> patterns_;
    RecomputedLayers<layer_count> result_{};
    std::array<RecomputeBlock, layer_count> blocks_{};
    std::size_t count_ = 0;
    std::array<std::size_t, layer_count> last_reader_{};
};

}}}  // namespace cupola::CUPOLA_ABI::impl
