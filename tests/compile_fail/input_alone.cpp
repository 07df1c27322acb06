// SPDX-License-Identifier: Apache-2.0
//
// An Input alone is no network.
//
// expect: a Sequential must have at least one layer after its Input
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4>> {};
#else
struct Net : Sequential<Input<4>, Linear<2>> {};
#endif
