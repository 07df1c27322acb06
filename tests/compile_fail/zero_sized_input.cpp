// SPDX-License-Identifier: Apache-2.0
//
// An Input without values.
//
// expect: the Input has a size of zero
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<0>, Linear<2>> {};
#else
struct Net : Sequential<Input<1>, Linear<2>> {};
#endif
