// SPDX-License-Identifier: Apache-2.0
//
// Tied<"name", Layer>: layers that share their parameters. All layers of a list that are tied by one name compute with
// one set of parameters, which is named "name.weight" and so on.
//
//   Sequential<Input<16>, Tied<"step", Linear<16>>, Sigmoid, Tied<"step", Linear<16>>, Sigmoid, Linear<3>>
//
// The first of them has the name, the parameters and their initialisers; each further one has parameters of the same
// names and extents, and at least two layers share a set. The name is the network's: no name of a block precedes it, so
// that layers in different blocks can share a set. The layer inside has no other name and is a single layer. If it has
// buffers (running statistics), those are each layer's own.
//
// The set is in the arenas, in a checkpoint and in the state of an optimiser once, and its gradient is the sum over its
// layers: in backward the last of them writes it and the others add to it. An error is one compiler diagnostic.
#pragma once

#include <string_view>

#include <cupola/core/fixed_string.hpp>
#include <cupola/net/impl/tied_parameters.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// See the head of this file.
template <FixedString set_name, class Layer>
struct Tied {
    static constexpr std::string_view name = set_name.view();
    using TiedLayer = Layer;
};

}}  // namespace cupola::CUPOLA_ABI
