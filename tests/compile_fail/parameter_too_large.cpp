// SPDX-License-Identifier: Apache-2.0
//
// A weight whose number of elements has more than 64 bits.
//
// expect: layer 1 (Linear<1099511627776>) has a parameter of more than 2^40 elements; its input is 1099511627776 from the Input
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<std::int64_t{1} << 40>, Linear<std::int64_t{1} << 40>> {};
#else
struct Net : Sequential<Input<std::int64_t{1} << 19>, Linear<std::int64_t{1} << 19>> {};
#endif
