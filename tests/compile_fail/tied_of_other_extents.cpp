// SPDX-License-Identifier: Apache-2.0
//
// Layers that share their parameters, with inputs of other sizes.
//
// expect: layer 4 (Linear<6>) cannot share the parameters of layer 2 (step, Linear<6>): its weight is 6 x 5, and that one's weight is 6 x 8
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8>, ReLU, Tied<"step", Linear<6>>, Linear<5>, Tied<"step", Linear<6>>> {};
#else
struct Net : Sequential<Input<8>, ReLU, Tied<"step", Linear<6>>, Linear<8>, Tied<"step", Linear<6>>> {};
#endif
