// SPDX-License-Identifier: Apache-2.0
//
// A layer of activations reads an input of ids.
//
// expect: layer 5 (Linear<4>) reads the Input as float32, and layer 2 (Embedding<10, 4>) as int32
// errors-at-most: 1
#include <cupola/layers/embedding.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<1>, Keep<"ids">, Embedding<10, 4>, Keep<"a">, From<"ids">, Linear<4>, Keep<"b">,
                        From<"a">, Flatten, AddFrom<"b">> {};
#else
struct Net
    : Sequential<Input<1>, Keep<"ids">, Embedding<10, 4>, Keep<"a">, From<"ids">, Embedding<10, 4>, AddFrom<"a">> {};
#endif
