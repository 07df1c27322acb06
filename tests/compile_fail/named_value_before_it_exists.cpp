// SPDX-License-Identifier: Apache-2.0
//
// A value that is read before the Keep that names it.
//
// expect: layer 2 (ConcatWith<skip>) reads a value before it exists: its Keep is further down in the list
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, ConcatWith<"skip">, Conv2d<4, 3>, Keep<"skip">, ReLU> {};
#else
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<4, 3>, ConcatWith<"skip">, ReLU> {};
#endif
