// SPDX-License-Identifier: Apache-2.0
//
// A pooling window of nothing.
//
// expect: layer 1 (MaxPool2d<0, 1>) has a size of zero; its input is 4 x 4 x 3 from the Input
// errors-at-most: 1
#include <cupola/layers/max_pool2d.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4, 4, 3>, MaxPool2d<0, 1>> {};
#else
struct Net : Sequential<Input<4, 4, 3>, MaxPool2d<1, 1>> {};
#endif
