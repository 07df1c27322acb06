// SPDX-License-Identifier: Apache-2.0
//
// A value with a name that nothing reads: a reader has been forgotten.
//
// expect: layer 2 (skip, Keep<skip>) keeps a value that nothing reads: AddFrom, ConcatWith and From read one
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<4, 3>, ReLU> {};
#else
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<4, 3>, AddFrom<"skip">, ReLU> {};
#endif
