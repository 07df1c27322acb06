// SPDX-License-Identifier: Apache-2.0
//
// An Input whose number of elements has more than 64 bits.
//
// expect: the Input, 4294967296 x 4294967296, has more than 2^40 elements
// errors-at-most: 1
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<std::int64_t{1} << 32, std::int64_t{1} << 32>, Flatten, Linear<2>> {};
#else
struct Net : Sequential<Input<1 << 16, 1 << 16>, Flatten, Linear<2>> {};
#endif
