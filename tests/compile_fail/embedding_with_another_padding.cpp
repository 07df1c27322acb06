// SPDX-License-Identifier: Apache-2.0
//
// The padding is one of the ids.
//
// expect: layer 1 (Embedding<10, 4>) has a padding that is not one of its ids; its input is 3 from the Input
// errors-at-most: 1
#include <cupola/layers/embedding.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<3>, Embedding<10, 4, padding_id(10)>> {};
#else
struct Net : Sequential<Input<3>, Embedding<10, 4, padding_id(9)>> {};
#endif
