// SPDX-License-Identifier: Apache-2.0
//
// A sum of values with other extents: both are named, and where they come from.
//
// expect: layer 4 (AddFrom<skip>) cannot add: its input is 8 x 8 x 8 from layer 3 (Conv2d<8, 3>), and skip is 8 x 8 x 4 from layer 1 (Conv2d<4, 3>)
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<8, 3>, AddFrom<"skip">, ReLU> {};
#else
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<8, 3>, ConcatWith<"skip">, ReLU> {};
#endif
