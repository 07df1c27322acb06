// SPDX-License-Identifier: Apache-2.0
//
// A projection without layers.
//
// expect: the Residual of layers 2 to 4 (a) has a Projection without layers: use Identity
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
using Shortcut = Projection<>;
#else
using Shortcut = Identity;
#endif
struct Net : Sequential<Input<4, 4, 3>, Conv2d<3, 1>, Named<"a", Residual<Shortcut, Conv2d<3, 3>>>> {};
