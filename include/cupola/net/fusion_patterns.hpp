// SPDX-License-Identifier: Apache-2.0
//
// The table of fusions: which two neighbouring layers become one node, by their kinds, and under which conditions.
// There are two sorts. `InFirstOperation`: the operation of the first layer also does the work of the second, as given
// by BuildContext. `OneOperation<Op>`: the node runs an operation made from the shapes of both layers, `Op<Device,
// T>(build, first, second)`, which every device with the operations of both kinds has.
//
// To add a fusion, write its row here, a struct with
//
//   static constexpr FusedKinds kinds                          of the first and of the second layer
//   static constexpr bool applies(const FusionCandidate&)      the conditions in addition to the kinds
//
// and add it to `FusionPatterns`. A row of the first sort also has `fuse`, which marks in the node the work that its
// operation takes over. A row of the second sort states which tensors backward reads in addition to those that forward
// saved, and whether the operation can mask its gradient for a ReLU in the preceding node.
// The second layer is always the next in the list, and reads the output of the node. The rows are tried in their order,
// each once per node; a row of the second sort applies only to a node of one layer.
#pragma once

#include <array>
#include <cstddef>

#include <cupola/net/node_info.hpp>
#include <cupola/net/table.hpp>
#include <cupola/ops/lrn_then_pool.hpp>
#include <cupola/ops/pool_then_lrn.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The kinds of the two layers; the constructor with one argument accepts any kind of first layer.
struct FusedKinds {
    LayerKind first, second;
    bool any_first = false;

    constexpr FusedKinds(LayerKind a, LayerKind b) : first(a), second(b) {}
    explicit constexpr FusedKinds(LayerKind b) : first(LayerKind::plain), second(b), any_first(true) {}
    [[nodiscard]] constexpr bool match(LayerKind a, LayerKind b) const {
        return b == second && (any_first || a == first);
    }
};

/// The arguments of a row's conditions.
struct FusionCandidate {
    /// The node so far, and the layer whose operation it runs.
    const NodeInfo& node;
    const LayerInfo& first;
    const LayerInfo& second;
    /// The number of the second layer in the network.
    std::size_t second_layer = 0;
    /// Whether the plan is for training.
    bool training = true;
};

/// The shape from which the operation of a layer of this kind is made.
template <LayerKind kind>
[[nodiscard]] constexpr auto kind_shape(const LayerInfo& layer) {
    static_assert(kind == LayerKind::pooling || kind == LayerKind::local_response_norm,
                  "no operation of two layers is made from this kind yet: add its shape to LayerKindParts");
    if constexpr (kind == LayerKind::pooling) {
        return layer.kind_parts.pooling(layer.input);
    } else {
        return layer.kind_parts.local_response_norm(layer.input);
    }
}

namespace impl {

/// The rows.
namespace fusions {

struct InFirstOperation {
    static constexpr bool one_operation = false;
};

template <template <class, class> class Op>
struct OneOperation {
    static constexpr bool one_operation = true;
    template <class Device, class T>
    using Operation = Op<Device, T>;
};

/// Outside training, a convolution's weight and bias contain the following batch normalisation:
/// net/impl/folded_norm.hpp.
struct FoldedBatchNorm : InFirstOperation {
    static constexpr FusedKinds kinds{LayerKind::convolution, LayerKind::batch_norm};
    static constexpr bool applies(const FusionCandidate& c) { return !c.training; }
    static constexpr void fuse(NodeInfo& node, const FusionCandidate& c) { node.folded_norm = c.second_layer; }
};

/// The operation applies the activation as it writes its output.
struct ActivationInside : InFirstOperation {
    static constexpr FusedKinds kinds{LayerKind::activation};
    static constexpr bool applies(const FusionCandidate& c) {
        return c.first.traits.absorbs_relu && c.second.kind_parts.activation == Activation::relu;
    }
    static constexpr void fuse(NodeInfo& node, const FusionCandidate& c) {
        node.activation = c.second.kind_parts.activation;
        node.backward_reads_output = true;  // the mask is where the output is positive
    }
};

/// MaxPool2d, LocalResponseNorm: the pooled values, which the normalisation reads in backward, are saved.
struct PoolThenLrn : OneOperation<ops::PoolThenLrn> {
    static constexpr FusedKinds kinds{LayerKind::pooling, LayerKind::local_response_norm};
    static constexpr bool applies(const FusionCandidate& c) {
        return place_is_a_byte(kind_shape<LayerKind::pooling>(c.first));
    }
    static constexpr bool backward_reads_input = false, backward_reads_output = false, can_apply_relu_mask = true;
};

/// LocalResponseNorm, MaxPool2d.
struct LrnThenPool : OneOperation<ops::LrnThenPool> {
    static constexpr FusedKinds kinds{LayerKind::local_response_norm, LayerKind::pooling};
    static constexpr bool applies(const FusionCandidate& c) {
        return place_is_a_byte(kind_shape<LayerKind::pooling>(c.second));
    }
    static constexpr bool backward_reads_input = true, backward_reads_output = false, can_apply_relu_mask = true;
};

}  // namespace fusions

template <class... Rows>
struct PatternList {};

/// The table.
using FusionPatterns =
    PatternList<fusions::FoldedBatchNorm, fusions::ActivationInside, fusions::PoolThenLrn, fusions::LrnThenPool>;

}  // namespace impl

/// A row of the table in the form that the pass reads.
struct FusionPattern {
    FusedKinds kinds;
    bool one_operation;
    bool (*applies)(const FusionCandidate&);
    void (*fuse)(NodeInfo&, const FusionCandidate&);
};

namespace impl {

template <class Row>
constexpr void fuse_into_one_operation(NodeInfo& node, const FusionCandidate& c) {
    node.output = c.second.output;
    node.backward_reads_input = Row::backward_reads_input;
    node.backward_reads_output = Row::backward_reads_output;
    node.can_apply_relu_mask = Row::can_apply_relu_mask;
}

template <class Row>
[[nodiscard]] consteval FusionPattern pattern_of() {
    if constexpr (Row::one_operation) {
        return {Row::kinds, true, &Row::applies, &fuse_into_one_operation<Row>};
    } else {
        return {Row::kinds, false, &Row::applies, &Row::fuse};
    }
}

template <class... Rows>
[[nodiscard]] consteval std::array<FusionPattern, sizeof...(Rows)> patterns_of(PatternList<Rows...>) {
    return {pattern_of<Rows>()...};
}

}  // namespace impl

/// The table as data; NodeInfo::pattern is an index into it.
inline constexpr auto fusion_patterns = impl::patterns_of(impl::FusionPatterns{});

}}  // namespace cupola::CUPOLA_ABI
