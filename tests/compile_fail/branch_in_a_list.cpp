// SPDX-License-Identifier: Apache-2.0
//
// A Branch outside a block.
//
// expect: layer 2 is a Branch or a Projection, which has no meaning outside Concat, Add and Residual
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
using Module = Branch<Conv2d<4, 3>>;
#else
using Module = Concat<Branch<Conv2d<4, 3>>, Identity>;
#endif
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Module> {};
