// SPDX-License-Identifier: Apache-2.0
//
// A list of layers without the Branch around them is several branches; a Branch alone is one.
//
// expect: the Concat that begins at layer 2 (mixed) has one branch: it needs two or more
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
using Block = Concat<Branch<Conv2d<4, 3>, ReLU>>;
#else
using Block = Concat<Branch<Conv2d<4, 3>, ReLU>, Identity>;
#endif
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Named<"mixed", Block>> {};
