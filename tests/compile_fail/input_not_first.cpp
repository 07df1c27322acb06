// SPDX-License-Identifier: Apache-2.0
//
// The Input comes before every layer.
//
// expect: the Input must be the first module of a Sequential
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Linear<8>, Input<4>, Linear<2>> {};
#else
struct Net : Sequential<Input<4>, Linear<8>, Linear<2>> {};
#endif
