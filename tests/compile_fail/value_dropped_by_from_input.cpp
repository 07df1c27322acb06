// SPDX-License-Identifier: Apache-2.0
//
// A branch whose end is not kept before the list goes on with another input.
//
// expect: layer 2 (FromInput<age>) goes on with another value, and nothing reads the output of layer 1 (Linear<5>): keep that with a Keep before it
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<3>, Linear<5>, FromInput<"age", 4>, Linear<5>> {};
#else
struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age", 4>, Linear<5>, AddFrom<"a">> {};
#endif
