// SPDX-License-Identifier: Apache-2.0
//
// A network has one Input.
//
// expect: a Sequential must have exactly one Input; this one has 2
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4>, Linear<8>, Input<8>, Linear<2>> {};
#else
struct Net : Sequential<Input<4>, Linear<8>, Linear<2>> {};
#endif
