// SPDX-License-Identifier: Apache-2.0
//
// A residual block whose first layer stands where the shortcut is: without this error it would be the way around.
//
// expect: the Residual that begins at layer 2 (block) has Conv2d<3, 3> in place of its shortcut: write Identity before it, or Projection<Conv2d<3, 3>> if it is the shortcut
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
using Block = Residual<Named<"conv", Conv2d<3, 3>>, ReLU>;
#else
using Block = Residual<Identity, Named<"conv", Conv2d<3, 3>>, ReLU>;
#endif
struct Net : Sequential<Input<4, 4, 3>, Conv2d<3, 1>, Named<"block", Block>> {};
