// SPDX-License-Identifier: Apache-2.0
//
// One column as two inputs.
//
// expect: layer 7 (FromInput<age>) reads a column for the second time: keep the output of layer 3 (FromInput<age>) and read that
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age", 4>, Linear<5>, AddFrom<"a">, Keep<"b">,
                        FromInput<"age", 4>, ConcatWith<"b">> {};
#else
struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age", 4>, Keep<"age">, Linear<5>, AddFrom<"a">,
                        ConcatWith<"age">> {};
#endif
