// SPDX-License-Identifier: Apache-2.0
//
// An input without extents.
//
// expect: layer 3 (FromInput<age>) has a size of zero: it needs the extents of a sample after the column's name
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age">, Linear<5>, AddFrom<"a">> {};
#else
struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age", 4>, Linear<5>, AddFrom<"a">> {};
#endif
