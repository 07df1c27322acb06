// SPDX-License-Identifier: Apache-2.0
//
// One input as bytes and as ids.
//
// expect: layer 2 (FromBytes<>) reads the Input as uint8, and layer 5 (Embedding<10, 1>) as int32
// errors-at-most: 1
#include <cupola/layers/embedding.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/from_bytes.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net
    : Sequential<Input<1>, Keep<"x">, FromBytes<>, Keep<"a">, From<"x">, Embedding<10, 1>, Flatten, AddFrom<"a">> {};
#else
struct Net : Sequential<Input<1>, FromBytes<>, Keep<"a">, FromInput<"y", 1>, Embedding<10, 1>, Flatten, AddFrom<"a">> {
};
#endif
