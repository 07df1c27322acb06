// SPDX-License-Identifier: Apache-2.0
//
// A sum of branches of other channels.
//
// expect: the Add of layers 2 to 4 cannot add: branch 1 is 8 x 8 x 4 from layer 1 (Conv2d<4, 3>), and branch 2 is 8 x 8 x 8 from layer 3 (Conv2d<8, 3>)
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Add<Identity, Conv2d<8, 3>>> {};
#else
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Concat<Identity, Conv2d<8, 3>>> {};
#endif
