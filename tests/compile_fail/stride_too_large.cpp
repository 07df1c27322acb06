// SPDX-License-Identifier: Apache-2.0
//
// A stride whose sum with the image's height has more than 64 bits.
//
// expect: layer 1 (Conv2d<4, 3>) has an input, a kernel, a stride or a padding of more than 2^29 rows or columns
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3, stride(INT64_MAX)>> {};
#else
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3, stride(1 << 29)>> {};
#endif
