// SPDX-License-Identifier: Apache-2.0
//
// An end of a network is of activations, not of ids.
//
// expect: layer 3 (copy, Output<copy>) reads FromInput<word> as float32, and layer 4 (Embedding<10, 4>) as int32
// errors-at-most: 1
#include <cupola/layers/embedding.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<3>, Keep<"x">, FromInput<"word", 1>, Output<"copy">, Embedding<10, 4>, Output<"words">,
                        From<"x">, Linear<4>> {};
#else
struct Net
    : Sequential<Input<3>, Keep<"x">, FromInput<"word", 1>, Embedding<10, 4>, Output<"words">, From<"x">, Linear<4>> {};
#endif
