// SPDX-License-Identifier: Apache-2.0
//
// A convolution that never moves on.
//
// expect: layer 1 (Conv2d<8, 3>) has a size of zero; its input is 4 x 4 x 3 from the Input
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 3, stride(0)>> {};
#else
struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 3, stride(1)>> {};
#endif
