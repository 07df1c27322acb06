// SPDX-License-Identifier: Apache-2.0
//
// An empty list of layers.
//
// expect: a Sequential must have exactly one Input; this one has 0
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<> {};
#else
struct Net : Sequential<Input<4>, Linear<2>> {};
#endif
