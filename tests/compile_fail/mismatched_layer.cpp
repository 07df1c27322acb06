// SPDX-License-Identifier: Apache-2.0
//
// A Linear layer after images that were not flattened: the first error is reported, with the extents on both sides, and
// nothing after it.
//
// expect: layer 3 (local3, Linear<384>) expects one extent, the features: put Flatten before it; its input is 12 x 12 x 64 from layer 2 (MaxPool2d<3, 2>)
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/max_pool2d.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<24, 24, 3>, Conv2d<64, 5>, MaxPool2d<3, 2>, Named<"local3", Linear<384>>, Linear<10>> {};
#else
struct Net
    : Sequential<Input<24, 24, 3>, Conv2d<64, 5>, MaxPool2d<3, 2>, Flatten, Named<"local3", Linear<384>>, Linear<10>> {
};
#endif
