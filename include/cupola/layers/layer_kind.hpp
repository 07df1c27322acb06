// SPDX-License-Identifier: Apache-2.0
//
// The kinds of layers that the passes over a network recognise. A layer states its kind in `static constexpr LayerKind
// kind`; the default is `plain`. A kind may require more members, with these names:
//
//   kind                   meaning                                          required members
//   plain                  not recognised by any pass                       none
//   view                   output and input are the same memory             none; both have the same size
//   activation             a function of each element                       none; `activation` if an operation may
//                                                                           compute it
//   convolution            a weight [out, ...] and a bias per channel       parameters: the weight, then at most the
//                                                                           bias [out]
//   pooling                ops/pooling.hpp and nothing else                 shape(input), a PoolingShape
//   local_response_norm    ops/local_response_norm.hpp and nothing else     shape(input), a LocalResponseNormShape
//   batch_norm             ops/batch_norm.hpp and nothing else              statistics, a BatchNormStatistics;
//                                                                           parameters: scale and shift; buffers:
//                                                                           running mean and variance
//   fork, sum              the two ends of a residual block                 none; not for a list of layers
//                          (net/residual.hpp)
//
// A layer that lacks a member required by its kind is reported in one compiler diagnostic.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/layers/parameters.hpp>
#include <cupola/ops/local_response_norm.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// See the head of this file.
enum class LayerKind : std::uint8_t {
    plain,
    view,
    activation,
    convolution,
    pooling,
    local_response_norm,
    batch_norm,
    fork,
    sum
};

/// The constants of a batch normalisation. `decay` is the weight of the old value when a running statistic r is updated
/// with a batch's statistic b: r = decay r + (1 - decay) b.
struct BatchNormStatistics {
    double epsilon = 1e-5, decay = 0.9;
};

/// The kind of a layer and the members that this kind requires; the members of other kinds are not set.
struct LayerKindParts {
    Activation activation = Activation::none;
    PoolingShape (*pooling)(const Shape& input) = nullptr;
    LocalResponseNormShape (*local_response_norm)(const Shape& input) = nullptr;
    BatchNormStatistics batch_norm{};
};

template <class L>
concept HasKind = requires {
    { L::kind } -> std::convertible_to<LayerKind>;
};

template <class L>
[[nodiscard]] constexpr LayerKind kind_of() {
    if constexpr (HasKind<L>) {
        return L::kind;
    } else {
        return LayerKind::plain;
    }
}

/// The activation, if a preceding operation may compute it; Activation::none otherwise.
template <class L>
concept NamesActivation = requires {
    { L::activation } -> std::convertible_to<Activation>;
};

template <class L>
concept NamesStatistics = requires {
    { L::statistics } -> std::convertible_to<BatchNormStatistics>;
};

template <class L, class S>
concept NamesShape = requires(const Shape& input) {
    { L::shape(input) } -> std::same_as<S>;
};

/// One concept per kind: the members that a layer of this kind needs.
template <class L>
concept ConvolutionLayer = HasParameters<L>;
template <class L>
concept PoolingLayer = NamesShape<L, PoolingShape>;
template <class L>
concept LocalResponseNormLayer = NamesShape<L, LocalResponseNormShape>;
template <class L>
concept BatchNormLayer = NamesStatistics<L> && HasParameters<L> && HasBuffers<L>;

/// Whether a layer has every member that its kind needs.
template <class L>
concept CompletesItsKind = (kind_of<L>() != LayerKind::convolution || ConvolutionLayer<L>)&&(
    kind_of<L>() != LayerKind::pooling ||
    PoolingLayer<L>)&&(kind_of<L>() != LayerKind::local_response_norm ||
                       LocalResponseNormLayer<L>)&&(kind_of<L>() != LayerKind::batch_norm || BatchNormLayer<L>);

[[nodiscard]] constexpr std::string_view to_string(LayerKind kind) {
    constexpr std::string_view names[] = {
        "plain", "view", "activation", "convolution", "pooling", "local_response_norm", "batch_norm", "fork", "sum"};
    return names[static_cast<std::size_t>(kind)];
}

namespace impl {

/// Completes "layer 3 (MyPool) ...": lists every member that `L` lacks for its kind. `L` does not satisfy
/// CompletesItsKind.
template <class L>
constexpr void describe_missing_members(CompileTimeMessage& message) {
    constexpr LayerKind kind = kind_of<L>();
    message << "has the kind " << to_string(kind) << " and lacks ";
    bool first = true;
    const auto missing = [&](bool lacks, std::string_view member) {
        if (!lacks) return;
        message << (first ? "`" : ", `") << member << "`";
        first = false;
    };
    if constexpr (kind == LayerKind::pooling) {
        missing(true, "static constexpr PoolingShape shape(const Shape&)");
    } else if constexpr (kind == LayerKind::local_response_norm) {
        missing(true, "static constexpr LocalResponseNormShape shape(const Shape&)");
    } else {
        missing(kind == LayerKind::batch_norm && !NamesStatistics<L>,
                "static constexpr BatchNormStatistics statistics");
        missing(!HasParameters<L>, "static constexpr Parameters parameters(const Shape&)");
        missing(kind == LayerKind::batch_norm && !HasBuffers<L>, "static constexpr Parameters buffers(const Shape&)");
    }
}

}  // namespace impl

/// The kind of `L` and the members that this kind requires.
template <class L>
    requires CompletesItsKind<L>
[[nodiscard]] constexpr LayerKindParts kind_parts_of() {
    LayerKindParts parts;
    if constexpr (kind_of<L>() == LayerKind::activation) {
        if constexpr (NamesActivation<L>) parts.activation = L::activation;
    } else if constexpr (kind_of<L>() == LayerKind::pooling) {
        parts.pooling = &L::shape;
    } else if constexpr (kind_of<L>() == LayerKind::local_response_norm) {
        parts.local_response_norm = &L::shape;
    } else if constexpr (kind_of<L>() == LayerKind::batch_norm) {
        parts.batch_norm = L::statistics;
    }
    return parts;
}

}}  // namespace cupola::CUPOLA_ABI
