// SPDX-License-Identifier: Apache-2.0
//
// Recompute<Net, "pattern", ...>: the same network, in which blocks are computed again in backward, so that their inner
// values need no memory from forward to backward (Chen et al. 2016). Parameters, checkpoints and results do not change:
// a training has the bits of the network without it.
//
//   struct Small : Recompute<ResNet<44>, "layer?.*"> {};     each residual block
//   struct Smaller : Recompute<ResNet<44>, "layer?"> {};     each stage as one block
//   static_assert(activation_bytes<Small>(128) < 200 << 20);
//
// A block is all layers whose names begin with the same name, up to a dot, that a pattern matches (core/glob.hpp); the
// shortest such name counts. To it belong the layers without names between them, and layers without a name and without
// parameters directly before it, such as a pool, an upsampling or a ConcatWith, unless they are read outside the block
// too. Before backward of a block its operations run forward again, as far as backward needs their outputs; the last
// value of a block is kept where a later layer needs it, and so are the values from outside that it reads. Dropout
// drops the same elements again, and batch normalisation computes the statistics of the batch again without updating
// the running ones. Outside training nothing changes.
//
// What does not compile: a pattern that matches no name; a block that contains a layer of another name, or of another
// block; a block with a value other than its last that a later layer, or a loss, reads: end the block at the Keep.
// A training whose batch normalisations are Synchronized refuses those in a block.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/checked_product.hpp>
#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/fixed_string.hpp>
#include <cupola/net/fusion.hpp>
#include <cupola/net/impl/recompute_blocks.hpp>
#include <cupola/net/memory_plan.hpp>
#include <cupola/net/pass_list.hpp>
#include <cupola/net/sequential.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// See the head of this file.
template <Network Net, FixedString... patterns>
struct Recompute : Net {
private:
    static constexpr std::array<std::string_view, sizeof...(patterns)> list{patterns.view()...};
    // Of a network that has an error no more than that one is shown.
    static constexpr auto marked = impl::RecomputeMarks<Net::layers.size()>(Net::layers, list).run(Net::valid);
    static_assert(!Net::valid || static_assert_message<marked.diagnostic>());

public:
    static constexpr bool valid = Net::valid && marked.diagnostic.empty();
    static constexpr std::span<const LayerInfo> layers{marked.layers};
};

/// What is computed again in a training step, and what it saves.
struct RecomputationFigures {
    /// The blocks of which an operation is computed again, and those operations.
    std::size_t blocks = 0, operations = 0;
    /// The multiply-adds that are added per sample, and those of one forward pass; backward has about twice as many as
    /// forward.
    std::int64_t multiply_adds = 0, forward_multiply_adds = 0;
};

namespace impl {

[[nodiscard, gnu::cold]] constexpr RecomputationFigures count_recomputed(std::span<const LayerInfo> layers,
                                                                         bool fusion) {
    RecomputationFigures figures;
    FixedArray<NodeInfo> nodes(layers.size());
    nodes.keep_first(fuse(layers, fusion, nodes));
    const FixedArray<bool> recomputed = find_recomputed(nodes, false);
    std::size_t block = no_layer;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        std::int64_t multiply_adds = 0;
        for (std::size_t k = nodes[i].layer; k < nodes[i].layer + nodes[i].layers; ++k)
            multiply_adds = saturating_sum(multiply_adds, layers[k].multiply_adds);
        figures.forward_multiply_adds = saturating_sum(figures.forward_multiply_adds, multiply_adds);
        if (!recomputed[i]) continue;
        figures.multiply_adds = saturating_sum(figures.multiply_adds, multiply_adds);
        ++figures.operations;
        if (nodes[i].recompute_block != block) ++figures.blocks;
        block = nodes[i].recompute_block;
    }
    return figures;
}

}  // namespace impl

/// What `Net` computes again; zeros for a network without Recompute. Its memory is `activation_bytes<Net>(batch)`.
template <Network Net>
[[nodiscard]] constexpr RecomputationFigures recomputation() {
    return impl::count_recomputed(Net::layers, Net::fusion);
}

}}  // namespace cupola::CUPOLA_ABI
