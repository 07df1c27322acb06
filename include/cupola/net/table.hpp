// SPDX-License-Identifier: Apache-2.0
//
// A network as data: one `LayerInfo` per layer, computed once from the type list.
//
// The layers contain everything that a pass needs (shapes, parameters, kinds, traits), so passes are ordinary functions
// over a span of layers: they run at compile time for a `static_assert` and at run time for a plan, and none of them is
// instantiated per layer. A network of 400 layers costs 400 function calls at compile time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/layers/layer.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// No value: for a layer that reads only one.
inline constexpr std::size_t no_value = static_cast<std::size_t>(-1);

/// No layer: for a layer that shares no parameters, and a node into which nothing is folded.
inline constexpr std::size_t no_layer = static_cast<std::size_t>(-1);

/// The layers [begin, end) of a network, by their numbers in it: a part of the network (net/pipeline/). The default is
/// the whole network.
struct LayerRange {
    std::size_t begin = 0, end = no_layer;
    bool operator==(const LayerRange&) const = default;
};

/// One layer of a network.
struct LayerInfo {
    /// The name given with `Named`, or empty.
    std::string_view name;
    /// The layer's type as written, "Conv2d<64, 5>", and its description in a summary.
    std::string_view type, description;
    Shape input, output;
    ParameterList parameters;
    /// Where each parameter starts in the arena, in elements. Frozen parameters come after all others.
    std::array<std::int64_t, max_parameters> offsets{};
    /// The earlier layer whose parameters it computes with, instead of parameters of its own (net/tied.hpp), and
    /// whether a later layer computes with the parameters of this one too: backward then adds its gradients to those of
    /// that layer.
    std::size_t tied_to = no_layer;
    bool adds_parameter_gradients = false;
    /// The parameters that are not trained (net/frozen.hpp): they have no gradient, optimiser state or moving average.
    std::array<bool, max_parameters> frozen{};
    /// A batch normalisation that uses its running statistics in training too, and does not update them.
    bool uses_running_statistics = false;
    /// The first layer of the block that is computed again in backward (net/recompute.hpp) and to which it belongs.
    std::size_t recompute_block = no_layer;
    /// The buffers, in an array of their own.
    ParameterList buffers;
    std::array<std::int64_t, max_parameters> buffer_offsets{};
    LayerKind kind = LayerKind::plain;
    LayerKindParts kind_parts;
    LayerTraits traits;
    std::int64_t multiply_adds = 0;
    /// The values that it reads: 0 is the network's input, i + 1 the output of layer i.
    std::size_t reads = 0, also_reads = no_value;
    /// Whether it reads the first or the second of them as a reader aside: as a reader of a Fork other than the layer
    /// that follows the Fork. And, for a Fork, whether it has only readers aside.
    bool reads_aside = false, also_reads_aside = false, only_read_aside = false;
    /// Whether it is an Output (net/named_values.hpp): a Fork whose value is also read outside the network.
    bool is_output = false;
    /// For a FromInput, the column of the batch that it reads, instead of a value; otherwise empty.
    std::string_view column{};
    /// For the first layer, which stands for the network's Input, and for a FromInput: the type of their column, and
    /// for ids their limit: they are in [0, ids). A FromInput of a type other than float is a view of its column.
    ElementType column_type = ElementType::float32;
    std::int64_t ids = 0;
    /// For a layer whose traits say that it reads ids or bytes, the column that it reads.
    std::string_view reads_column{};

    /// Whether its output and its input are the same memory; a Fork is a view with several readers.
    [[nodiscard]] constexpr bool is_view() const { return kind == LayerKind::view || kind == LayerKind::fork; }
    /// The number of its parameters that are trained.
    [[nodiscard]] constexpr std::size_t trained_parameters() const {
        std::size_t count = 0;
        for (std::size_t p = 0; p < parameters.count; ++p) count += frozen[p] ? 0U : 1U;
        return count;
    }
};

/// The conflict between a layer and its kind, completing "... has the kind view and "; null if there is none.
[[nodiscard]] constexpr const char* kind_conflict(const LayerInfo& layer) {
    const auto per_channel = [&](const ParameterList& parameters, std::size_t i) {
        return parameters.list[i].shape == Shape{layer.output.channels()};
    };
    switch (layer.kind) {
        case LayerKind::view:
            return layer.output.size() == layer.input.size() ? nullptr
                                                             : "an output whose size differs from that of its input";
        case LayerKind::activation:
            return layer.output == layer.input ? nullptr : "an output whose extents differ from those of its input";
        case LayerKind::convolution: {
            const ParameterList& p = layer.parameters;
            const bool weight =
                p.count >= 1 && p.list[0].shape.rank > 0 && p.list[0].shape[0] == layer.output.channels();
            if (!weight) return "a first parameter that is not a weight of extents [channels of the output, ...]";
            return p.count == 1 || (p.count == 2 && per_channel(p, 1))
                       ? nullptr
                       : "parameters after its weight that are not one bias";
        }
        case LayerKind::batch_norm: {
            const ParameterList &p = layer.parameters, &b = layer.buffers;
            if (layer.output != layer.input) return "an output whose extents differ from those of its input";
            if (p.count != 2 || !per_channel(p, 0) || !per_channel(p, 1))
                return "parameters that are not one scale and one shift per channel";
            return b.count == 2 && per_channel(b, 0) && per_channel(b, 1)
                       ? nullptr
                       : "buffers that are not one mean and one variance per channel";
        }
        default: return nullptr;
    }
}

/// Elements of the arena that a parameter takes: its size rounded up, so that each starts on a cache line.
[[nodiscard]] constexpr std::int64_t arena_extent(std::int64_t size) {
    constexpr std::int64_t line = alignment / sizeof(float);
    return (size + line - 1) / line * line;
}

/// The layer that has the parameters with which a layer computes: itself, or the first layer of a Tied set.
[[nodiscard]] constexpr const LayerInfo& parameters_of_layer(std::span<const LayerInfo> layers, std::size_t layer) {
    return layers[layers[layer].tied_to == no_layer ? layer : layers[layer].tied_to];
}

/// Whether a layer computes with parameters of which none is trained.
[[nodiscard]] constexpr bool is_frozen(std::span<const LayerInfo> layers, std::size_t layer) {
    const LayerInfo& owner = parameters_of_layer(layers, layer);
    return owner.parameters.count > 0 && owner.trained_parameters() == 0;
}
/// Whether backward leaves out the gradients of a layer's parameters: it is frozen, and its operation can.
[[nodiscard]] constexpr bool omits_parameter_gradients(std::span<const LayerInfo> layers, std::size_t layer) {
    return is_frozen(layers, layer) && layers[layer].traits.can_omit_parameter_gradients;
}

/// Whether a part of the network is computed again in backward (net/recompute.hpp).
[[nodiscard]] constexpr bool recomputes(std::span<const LayerInfo> layers) {
    for (const LayerInfo& layer : layers) {
        if (layer.recompute_block != no_layer) return true;
    }
    return false;
}

/// Whether an input of the network is of ids or bytes.
[[nodiscard]] constexpr bool reads_other_types(std::span<const LayerInfo> layers) {
    for (const LayerInfo& layer : layers) {
        if (!layer.reads_column.empty()) return true;
    }
    return false;
}

/// The number of columns that a network reads: that of its Input, and one per FromInput.
[[nodiscard]] constexpr std::size_t count_inputs(std::span<const LayerInfo> layers) {
    std::size_t count = 1;
    for (const LayerInfo& layer : layers) count += layer.column.empty() ? 0U : 1U;
    return count;
}

/// An output of a network: a value that losses and the caller read, and whose gradient the losses write.
struct NetworkOutput {
    /// The name in its Output; empty for the end of the list if that is not an Output.
    std::string_view name;
    /// The layer whose output it is, and its extents.
    std::size_t layer = 0;
    Shape shape;
};

/// The number of outputs: one per Output, and the end of the list.
[[nodiscard]] constexpr std::size_t count_outputs(std::span<const LayerInfo> layers) {
    std::size_t count = 0;
    for (const LayerInfo& layer : layers) count += layer.is_output ? 1 : 0;
    return count + (layers.empty() || layers.back().is_output ? 0 : 1);
}

/// Writes the outputs in the order of the list, as many as count_outputs(); the last is the end of the list.
constexpr void find_outputs(std::span<const LayerInfo> layers, std::span<NetworkOutput> outputs) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        if (!layers[i].is_output && i + 1 < layers.size()) continue;
        outputs[count++] = {layers[i].is_output ? layers[i].name : std::string_view{}, i, layers[i].output};
    }
}

/// The number of parameters, without padding.
[[nodiscard]] constexpr std::int64_t count_parameters(std::span<const LayerInfo> layers) {
    std::int64_t count = 0;
    for (const LayerInfo& layer : layers) {
        for (std::size_t p = 0; p < layer.parameters.count; ++p) count += layer.parameters.list[p].shape.size();
    }
    return count;
}

/// The elements of a parameter arena, including padding.
[[nodiscard]] constexpr std::int64_t arena_elements(std::span<const LayerInfo> layers, bool only_trained = false) {
    std::int64_t count = 0;
    for (const LayerInfo& layer : layers) {
        for (std::size_t p = 0; p < layer.parameters.count; ++p)
            count += only_trained && layer.frozen[p] ? 0 : arena_extent(layer.parameters.list[p].shape.size());
    }
    return count;
}

/// Those of its part that is trained, at its beginning: the size of the arenas of gradients, states and averages.
[[nodiscard]] constexpr std::int64_t trained_elements(std::span<const LayerInfo> layers) {
    return arena_elements(layers, true);
}

/// Lays out the arena: the parameters that are trained in the order of the layers, then the frozen ones.
constexpr void lay_out_parameters(std::span<LayerInfo> layers) {
    std::int64_t offset = 0;
    for (const bool frozen : {false, true}) {
        for (LayerInfo& layer : layers) {
            for (std::size_t p = 0; p < layer.parameters.count; ++p) {
                if (layer.frozen[p] != frozen) continue;
                layer.offsets[p] = offset;
                offset += arena_extent(layer.parameters.list[p].shape.size());
            }
        }
    }
}

/// The elements of an array of all buffers, including padding.
[[nodiscard]] constexpr std::int64_t buffer_elements(std::span<const LayerInfo> layers) {
    std::int64_t count = 0;
    for (const LayerInfo& layer : layers) {
        for (std::size_t b = 0; b < layer.buffers.count; ++b) count += arena_extent(layer.buffers.list[b].shape.size());
    }
    return count;
}

/// The number of the output of that name. Throws InvalidArgument, with the existing names, if there is none.
[[nodiscard]] inline std::size_t output_of_name(std::span<const NetworkOutput> outputs, std::string_view name) {
    std::string names;
    for (std::size_t k = 0; k < outputs.size(); ++k) {
        if (outputs[k].name == name && !name.empty()) return k;
        names += text(k == 0 ? "" : ", ", outputs[k].name.empty() ? "one without a name" : outputs[k].name);
    }
    throw InvalidArgument(text("the network has no output \"", name, "\"; its outputs are: ", names));
}

namespace impl {
[[gnu::cold]] inline std::string name_in_layer(const LayerInfo& layer, std::size_t number, const char* name) {
    const std::string_view own = name;
    return text(layer.name.empty() ? text(number) : std::string(layer.name), own.empty() ? "" : ".", own);
}
}  // namespace impl

/// A parameter's full name, as in PyTorch: "conv1.weight", or "0.weight" for a layer without a name; "block.scale" for
/// a parameter without a name of the layer block.scale.
[[nodiscard, gnu::cold]] inline std::string parameter_name(std::span<const LayerInfo> layers, std::size_t layer,
                                                           std::size_t parameter) {
    return impl::name_in_layer(layers[layer], layer, layers[layer].parameters.list[parameter].name);
}

/// A buffer's full name: "bn1.running_mean".
[[nodiscard, gnu::cold]] inline std::string buffer_name(std::span<const LayerInfo> layers, std::size_t layer,
                                                        std::size_t buffer) {
    return impl::name_in_layer(layers[layer], layer, layers[layer].buffers.list[buffer].name);
}

/// The values of the buffers before the first step.
[[nodiscard, gnu::cold]] inline std::vector<float> initial_buffers(std::span<const LayerInfo> layers) {
    std::vector<float> values(static_cast<std::size_t>(buffer_elements(layers)));
    for (const LayerInfo& layer : layers) {
        for (std::size_t b = 0; b < layer.buffers.count; ++b) {
            const Parameter& buffer = layer.buffers.list[b];
            initialize({values.data() + layer.buffer_offsets[b], static_cast<std::size_t>(buffer.shape.size())},
                       buffer.initializer, buffer.fan_in, buffer.fan_out, 0, 0);
        }
    }
    return values;
}

/// A layer's running statistics in the array of buffers, for a policy that updates them. A batch's statistics lie at
/// the same offsets of a separate array: the mean, and the biased variance over all elements of a channel. The running
/// variance is the unbiased one: n / (n - 1) times that, where n is the number of elements of a channel in the batch.
struct RunningStatistics {
    std::size_t layer = 0;
    std::int64_t mean = 0, variance = 0, channels = 0;
    double decay = 0;
    /// Elements per sample and channel.
    std::int64_t elements_per_sample = 0;

    /// The factor between the variances for a batch of this many samples; 1 where a channel has one element.
    [[nodiscard]] constexpr double unbiased(std::int64_t samples) const {
        const auto count = static_cast<double>(samples * elements_per_sample);
        return count > 1 ? count / (count - 1) : 1.0;
    }
};

[[nodiscard, gnu::cold]] inline FixedArray<RunningStatistics> running_statistics(std::span<const LayerInfo> layers) {
    FixedArray<RunningStatistics> result(layers.size());
    std::size_t count = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const LayerInfo& layer = layers[i];
        if (layer.kind != LayerKind::batch_norm) continue;
        const std::int64_t channels = layer.buffers.list[0].shape.size();
        result[count++] = {i,        layer.buffer_offsets[0],           layer.buffer_offsets[1],
                           channels, layer.kind_parts.batch_norm.decay, layer.input.size() / channels};
    }
    result.keep_first(count);
    return result;
}

/// The layers of a range: the end of the default is that of the network.
[[nodiscard]] constexpr std::span<const LayerInfo> layers_of_range(std::span<const LayerInfo> layers,
                                                                   const LayerRange& range) {
    const std::size_t end = std::min(range.end, layers.size()), begin = std::min(range.begin, end);
    return layers.subspan(begin, end - begin);
}

/// The first element of the arena's trained parameters that a layer from `layer` on has: where the gradients of a part
/// that begins there begin. Parameters lie in the order of the layers.
[[nodiscard, gnu::cold]] constexpr std::int64_t trained_begin(std::span<const LayerInfo> layers, std::size_t layer) {
    return layer < layers.size() ? trained_elements(layers.first(layer)) : trained_elements(layers);
}

}}  // namespace cupola::CUPOLA_ABI
