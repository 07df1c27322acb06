// SPDX-License-Identifier: Apache-2.0
//
// A network says what it takes.
//
// expect: a Sequential must have exactly one Input; this one has 0
// alone: the message is that of empty_list in cases/layers.cpp, and one unit says it once
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Linear<8>, Linear<2>> {};
#else
struct Net : Sequential<Input<4>, Linear<8>, Linear<2>> {};
#endif
