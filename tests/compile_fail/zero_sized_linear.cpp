// SPDX-License-Identifier: Apache-2.0
//
// A layer without outputs.
//
// expect: layer 1 (Linear<0>) has a size of zero; its input is 4 from the Input
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4>, Linear<0>> {};
#else
struct Net : Sequential<Input<4>, Linear<1>> {};
#endif
