// SPDX-License-Identifier: Apache-2.0
//
// A number of layers that no residual network for CIFAR has.
//
// expect: ResNet<45> is not possible: the number of layers must be 6 n + 2 (8, 14, 20, 26, 32, 38, 44, ...)
// errors-at-most: 1
#include <cupola/models/resnet.hpp>

using namespace cupola;

#ifdef WITH_ERROR
static_assert(ResNet<45>::parameter_count > 0);
#else
static_assert(ResNet<44>::parameter_count == 658'651);
#endif
