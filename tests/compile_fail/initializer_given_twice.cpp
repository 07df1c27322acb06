// SPDX-License-Identifier: Apache-2.0
//
// Two initialisers of the same weights.
//
// expect: layer 1 (Linear<5>) is given an option twice; its input is 4 from the Input
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4>, Linear<5, weights(normal(1)), weights(he_normal())>> {};
#else
struct Net : Sequential<Input<4>, Linear<5, weights(he_normal()), biases(constant(1))>> {};
#endif
