// SPDX-License-Identifier: Apache-2.0
//
// An initialiser with a negative deviation.
//
// expect: layer 1 (Linear<3>) has an initialiser with a deviation or a limit below 0; its input is 4 from the Input
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4>, Linear<3, weights(normal(-1))>> {};
#else
struct Net : Sequential<Input<4>, Linear<3, weights(normal(1))>> {};
#endif
