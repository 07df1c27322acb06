// SPDX-License-Identifier: Apache-2.0
//
// A residual block that is a shortcut alone.
//
// expect: the Residual of layers 1 to 2 has no layers besides its shortcut
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4, 4, 3>, Residual<Identity>> {};
#else
struct Net : Sequential<Input<4, 4, 3>, Residual<Identity, Conv2d<3, 3>>> {};
#endif
