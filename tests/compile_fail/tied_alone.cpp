// SPDX-License-Identifier: Apache-2.0
//
// A name that is misspelt: each set has one layer.
//
// expect: layer 1 (step, Linear<8>) is tied to no other layer: a second one has the same name in its Tied
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8>, Tied<"step", Linear<8>>, Tied<"stop", Linear<8>>> {};
#else
struct Net : Sequential<Input<8>, Tied<"step", Linear<8>>, Tied<"step", Linear<8>>> {};
#endif
