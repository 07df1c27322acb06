// SPDX-License-Identifier: Apache-2.0
//
// Weights of a size that each may have, and all together not.
//
// expect: layer 2 (Linear<1048575>) has parameters that together with those of the layers before it are more than 2^40 elements
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<1 << 20>, Linear<1 << 20, no_bias>, Linear<(1 << 20) - 1>> {};
#else
struct Net : Sequential<Input<1 << 20>, Linear<1 << 20, no_bias>> {};
#endif
