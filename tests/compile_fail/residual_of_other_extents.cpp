// SPDX-License-Identifier: Apache-2.0
//
// A block that changes the extents around which the input goes as it is: both extents are named, and where they come from.
//
// expect: the Residual of layers 3 to 8 (layer2.0) cannot add: the block's output is 16 x 16 x 32 from layer 7 (layer2.0.bn2, BatchNorm2d
// expect: ), and its shortcut's is 32 x 32 x 16 from layer 2 (ReLU)
// errors-at-most: 1
#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/option_a_shortcut.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
using Shortcut = Identity;
#else
using Shortcut = OptionAShortcut<32, 2>;
#endif
struct Net : Sequential<Input<32, 32, 3>, Conv2d<16, 3>, ReLU,
                        Named<"layer2.0", Residual<Shortcut, Conv2d<32, 3, stride(2), pad(1)>, ReLU, Conv2d<32, 3>,
                                                   Named<"bn2", BatchNorm2d<>>>>,
                        ReLU> {};
