// SPDX-License-Identifier: Apache-2.0
//
// Frozen<Net, "pattern", ...>: the same network, in which the parameters whose full names match a pattern
// (core/glob.hpp) are not trained. They have no gradient, no optimiser state and no moving average, and backward ends
// above the lowest layer that is trained. Checkpoints contain all parameters.
//
//   struct Tuned : Frozen<Net, "body.*"> {};   norms in body use their running statistics, or those of each batch:
//   struct Tuned : Frozen<Net, FrozenNorms::batch_statistics, "body.*"> {};
//
// A batch normalisation whose scale and shift are frozen is a frozen norm. With running statistics it computes in
// training what it computes in evaluation, and its statistics do not change; with batch statistics it normalises with
// those of the batch, and its running statistics are updated. A summary says which. A pattern that matches no
// parameter, and patterns that leave no parameter to train, do not compile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/glob.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The statistics that frozen batch normalisations use in training.
enum class FrozenNorms : std::uint8_t { running_statistics, batch_statistics };

/// An argument of Frozen: a pattern or a FrozenNorms.
struct FrozenArgument {
    static constexpr std::size_t capacity = 96;
    char pattern[capacity]{};
    std::size_t size = 0;
    FrozenNorms norms = FrozenNorms::running_statistics;
    bool names_norms = false;

    template <std::size_t N>
    consteval FrozenArgument(const char (&literal)[N]) : size(N - 1) {  // NOLINT: a literal converts
        static_assert(N <= capacity, "a pattern of Frozen has at most 95 characters");
        for (std::size_t i = 0; i < N; ++i) pattern[i] = literal[i];
    }
    consteval FrozenArgument(FrozenNorms chosen) : norms(chosen), names_norms(true) {}  // NOLINT: a value converts
#ifdef __CUDACC__
    // nvcc writes such an argument into the host's code as FrozenArgument{{'b', 'o', 'd', 'y', ...}, 4UL, ..., false}.
    consteval FrozenArgument(const char (&characters)[capacity], std::size_t length, FrozenNorms chosen, bool named)
        : size(length), norms(chosen), names_norms(named) {
        for (std::size_t i = 0; i < capacity; ++i) pattern[i] = characters[i];
    }
#endif

    [[nodiscard]] constexpr std::string_view text() const { return {pattern, size}; }
    bool operator==(const FrozenArgument&) const = default;
};

namespace impl {

/// Writes `parameter_name(layers, layer, p)` in constant evaluation.
constexpr void write_parameter_name(CompileTimeMessage& text, std::span<const LayerInfo> layers, std::size_t layer,
                                    std::size_t p) {
    if (layers[layer].name.empty()) {
        text << static_cast<std::int64_t>(layer);
    } else {
        text << layers[layer].name;
    }
    const std::string_view own = layers[layer].parameters.list[p].name;
    if (!own.empty()) text << "." << own;
}

/// Whether a pattern matches the name of a parameter.
[[nodiscard]] constexpr bool matches_parameter(std::string_view pattern, std::span<const LayerInfo> layers,
                                               std::size_t layer, std::size_t p) {
    CompileTimeMessage name;
    write_parameter_name(name, layers, layer, p);
    return glob_matches(pattern, {name.characters, name.size});
}

/// As many of the parameters' names as fit in a message.
constexpr void list_parameters(CompileTimeMessage& message, std::span<const LayerInfo> layers) {
    constexpr std::size_t most = CompileTimeMessage::capacity - 120;
    std::int64_t more = 0;
    bool first = true;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        for (std::size_t p = 0; p < layers[i].parameters.count; ++p) {
            if (message.size > most) {
                ++more;
                continue;
            }
            message << (first ? "" : ", ");
            first = false;
            write_parameter_name(message, layers, i, p);
        }
    }
    if (more > 0) message << " and " << more << " others";
}

template <std::size_t layer_count>
struct FrozenLayers {
    std::array<LayerInfo, layer_count> layers{};
    std::int64_t trained_count = 0, trained_elements = 0;
    CompileTimeMessage diagnostic{};
};

template <std::size_t layer_count>
[[nodiscard]] constexpr FrozenLayers<layer_count> freeze(std::span<const LayerInfo> layers,
                                                         std::span<const FrozenArgument> arguments) {
    FrozenLayers<layer_count> result;
    for (std::size_t i = 0; i < layer_count; ++i) result.layers[i] = layers[i];
    FrozenNorms norms = FrozenNorms::running_statistics;
    bool named_norms = false, any_pattern = false;
    for (const FrozenArgument& argument : arguments) {
        if (argument.names_norms) {
            if (named_norms) result.diagnostic << "Frozen names a FrozenNorms twice";
            named_norms = true;
            norms = argument.norms;
            continue;
        }
        any_pattern = true;
        bool matched = false;
        for (std::size_t i = 0; i < layer_count; ++i) {
            for (std::size_t p = 0; p < layers[i].parameters.count; ++p) {
                if (!matches_parameter(argument.text(), layers, i, p)) continue;
                matched = result.layers[i].frozen[p] = true;
            }
        }
        if (matched || !result.diagnostic.empty()) continue;
        result.diagnostic << "Frozen's pattern '" << argument.text() << "' matches none of the parameters ";
        list_parameters(result.diagnostic, layers);
    }
    if (!any_pattern && result.diagnostic.empty())
        result.diagnostic << "Frozen names no parameters; name at least one pattern, as in Frozen<Net, 'body.*'>";
    lay_out_parameters(result.layers);
    result.trained_elements = trained_elements(result.layers);
    for (std::size_t i = 0; i < layer_count; ++i) {
        LayerInfo& layer = result.layers[i];
        for (std::size_t p = 0; p < layer.parameters.count; ++p)
            result.trained_count += layer.frozen[p] ? 0 : layer.parameters.list[p].shape.size();
        // What a Frozen inside this one says of a norm holds, unless this one names a FrozenNorms too.
        if (layer.kind != LayerKind::batch_norm || (is_frozen(layers, i) && !named_norms)) continue;
        layer.uses_running_statistics = is_frozen(result.layers, i) && norms == FrozenNorms::running_statistics;
    }
    if (result.trained_elements == 0 && result.diagnostic.empty()) {
        result.diagnostic << "Frozen leaves no parameter to train: its patterns match all of the network's";
    }
    return result;
}

}  // namespace impl

/// See the head of this file. `Net` may be frozen in part already.
template <Network Net, FrozenArgument... arguments>
struct Frozen : Net {
private:
    static constexpr std::array<FrozenArgument, sizeof...(arguments)> list{arguments...};
    static constexpr auto frozen = impl::freeze<Net::layers.size()>(Net::layers, list);
    static_assert(!Net::valid || static_assert_message<frozen.diagnostic>());

public:
    static constexpr bool valid = Net::valid && frozen.diagnostic.empty();
    static constexpr std::span<const LayerInfo> layers{frozen.layers};
    static constexpr std::int64_t trained_count = frozen.trained_count;
    static constexpr std::int64_t trained_elements = frozen.trained_elements;
};

}}  // namespace cupola::CUPOLA_ABI
