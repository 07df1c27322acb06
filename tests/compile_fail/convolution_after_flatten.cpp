// SPDX-License-Identifier: Apache-2.0
//
// A convolution of features that have no height and width.
//
// expect: layer 2 (Conv2d<8, 3>) expects height x width x channels; its input is 192 from layer 1 (Flatten)
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8, 8, 3>, Flatten, Conv2d<8, 3>> {};
#else
struct Net : Sequential<Input<8, 8, 3>, Conv2d<8, 3>, Flatten> {};
#endif
