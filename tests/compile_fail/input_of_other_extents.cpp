// SPDX-License-Identifier: Apache-2.0
//
// Another input whose extents do not fit the value that it is added to.
//
// expect: layer 4 (AddFrom<a>) cannot add: its input is 4 from layer 3 (FromInput<age>), and a is 5 from layer 1 (Linear<5>)
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age", 4>, AddFrom<"a">> {};
#else
struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age", 4>, Linear<5>, AddFrom<"a">> {};
#endif
