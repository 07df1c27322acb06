// SPDX-License-Identifier: Apache-2.0
//
// The column of the Input as another input.
//
// expect: layer 3 (FromInput<input>) reads the column of the network's Input: keep that with a Keep after the Input
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"input", 3>, ConcatWith<"a">> {};
#else
struct Net : Sequential<Input<3>, Keep<"input">, Linear<5>, Keep<"a">, From<"input">, ConcatWith<"a">> {};
#endif
