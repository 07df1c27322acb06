// SPDX-License-Identifier: Apache-2.0
//
// A pooling window larger than what reaches it.
//
// expect: layer 2 (MaxPool2d<3, 2>) has a window larger than its input; its input is 2 x 2 x 3 from layer 1 (MaxPool2d<3, 2>)
// errors-at-most: 1
#include <cupola/layers/max_pool2d.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4, 4, 3>, MaxPool2d<3, 2>, MaxPool2d<3, 2>> {};
#else
struct Net : Sequential<Input<4, 4, 3>, MaxPool2d<3, 2>, MaxPool2d<2, 2>> {};
#endif
