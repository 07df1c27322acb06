// SPDX-License-Identifier: Apache-2.0
//
// An empty branch.
//
// expect: the Concat of layers 2 to 4 has no layers in branch 2: use Identity
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
using Second = Branch<>;
#else
using Second = Identity;
#endif
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Concat<Conv2d<4, 3>, Second>> {};
