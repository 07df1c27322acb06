// SPDX-License-Identifier: Apache-2.0
//
// An error in a block's shortcut: the layer has its full name, and its input is the block's.
//
// expect: layer 4 (b.downsample, Linear<10>) expects one extent, the features: put Flatten before it; its input is 4 x 4 x 3 from layer 1 (Conv2d<3, 1>)
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
using Inside = Linear<10>;
#else
using Inside = Conv2d<3, 1>;
#endif
struct Net : Sequential<Input<4, 4, 3>, Conv2d<3, 1>,
                        Named<"b", Residual<Projection<Named<"downsample", Inside>>, Conv2d<3, 3>>>> {};
