// SPDX-License-Identifier: Apache-2.0
//
// Ids are read from an input of the network, not from activations.
//
// expect: layer 2 (Embedding<10, 4>) reads an input of the network, of int32: put it after the Input or a FromInput; its input is 5 from layer 1 (Linear<5>)
// errors-at-most: 1
#include <cupola/layers/embedding.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<3>, Linear<5>, Embedding<10, 4>> {};
#else
struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"word", 5>, Embedding<10, 1>, Flatten, AddFrom<"a">> {
};
#endif
