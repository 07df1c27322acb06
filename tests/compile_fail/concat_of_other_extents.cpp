// SPDX-License-Identifier: Apache-2.0
//
// Branches of other heights: both are named, and where they come from.
//
// expect: the Concat of layers 1 to 8 (mixed) cannot concatenate along channels: branch 1 is 8 x 8 x 4 from layer 2 (Conv2d<4, 3>), and branch 3 is 4 x 4 x 3 from layer 6 (MaxPool2d<2
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/max_pool2d.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
using Pool = MaxPool2d<2>;
#else
using Pool = MaxPool2d<2, 1>;
#endif
struct Net : Sequential<Input<8, 8, 3>, Named<"mixed", Concat<Conv2d<4, 3>, Conv2d<8, 1>, Pool>>> {};
