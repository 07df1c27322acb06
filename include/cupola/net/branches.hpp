// SPDX-License-Identifier: Apache-2.0
//
// Blocks of branches, modules of a `Sequential` like a layer. Every branch computes on the value before the block:
//
//   Concat<branches...>    the channels of the branches' outputs, in their order; their other extents are equal
//   Add<branches...>       the sum of the branches' outputs, which have the same extents
//   Multiply<branches...>  their product; one of them may have the others' channels in one position, and is repeated
//
//   Concat<Branch<Conv2d<16, 1>, ReLU>, Branch<Conv2d<8, 1>, ReLU, Conv2d<16, 5>, ReLU>, MaxPool2d<3, 1>>
//   Multiply<Identity, Branch<GlobalAvgPool2d, Linear<4>, ReLU, Linear<16>, Sigmoid>>
//
// A branch is a Branch<modules...>, a single module, or Identity, which is the value before the block. There are two
// branches or more. A block is not a network inside a network. It adds its layers to the flat list, in this order:
// Fork, those of the branches, and the layers Add, Concat or Multiply, one fewer than there are branches. In a block of
// three branches or more, each branch but the first begins with a layer `Branch`, a view that costs nothing in forward
// and adds its gradient in backward. The last of the layers that join has the block's name, which is prepended to the
// names inside, as is that of a Branch: `Named<"mixed", Concat<Named<"wide", Branch<Named<"conv", Conv2d<16, 5>>>>,
// Identity>>` has "mixed.wide.conv.weight". Residual (net/residual.hpp) is such a block of two branches. Modules in a
// branch may keep values and read named ones (net/named_values.hpp).
#pragma once

#include <cupola/net/named_values.hpp>
#include <cupola/net/residual.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// See the head of this file.
template <class... Branches>
struct Concat {
    using BlockBranches = impl::ModuleList<Branches...>;
    using BlockJoint = impl::Concatenation;
};

/// See the head of this file.
template <class... Branches>
struct Add {
    using BlockBranches = impl::ModuleList<Branches...>;
    using BlockJoint = impl::Add;
};

/// See the head of this file.
template <class... Branches>
struct Multiply {
    using BlockBranches = impl::ModuleList<Branches...>;
    using BlockJoint = impl::Product;
};

}}  // namespace cupola::CUPOLA_ABI
