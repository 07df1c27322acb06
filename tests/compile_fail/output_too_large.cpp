// SPDX-License-Identifier: Apache-2.0
//
// An output whose number of elements has more than 64 bits.
//
// expect: layer 1 (Upsample2d<1073741824>) has an output of more than 2^40 elements per sample; its input is 4 x 4 x 3 from the Input
// errors-at-most: 1
#include <cupola/layers/upsample2d.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4, 4, 3>, Upsample2d<std::int64_t{1} << 30>> {};
#else
struct Net : Sequential<Input<4, 4, 3>, Upsample2d<std::int64_t{1} << 10>> {};
#endif
