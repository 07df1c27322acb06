// SPDX-License-Identifier: Apache-2.0
//
// Layers that share their parameters, of which one has no bias.
//
// expect: layer 2 (Linear<8>) cannot share the parameters of layer 1 (step, Linear<8>): it has 2 parameters, and that one has 1
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8>, Tied<"step", Linear<8, no_bias>>, Tied<"step", Linear<8>>> {};
#else
struct Net : Sequential<Input<8>, Tied<"step", Linear<8>>, Tied<"step", Linear<8>>> {};
#endif
