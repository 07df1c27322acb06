// SPDX-License-Identifier: Apache-2.0
//
// Layers without parameters have none to share.
//
// expect: layer 2 (ReLU) has no parameters to share: Tied is for layers that have some
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8>, Linear<8>, Tied<"act", ReLU>, Linear<8>, Tied<"act", ReLU>> {};
#else
struct Net : Sequential<Input<8>, Tied<"step", Linear<8>>, ReLU, Tied<"step", Linear<8>>, ReLU> {};
#endif
