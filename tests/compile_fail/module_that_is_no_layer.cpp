// SPDX-License-Identifier: Apache-2.0
//
// Something in the list that is not a layer.
//
// expect: layer 2 (Softplus) is not a layer: it lacks `static constexpr ShapeResult output(const Shape&)`
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

struct Softplus {};

#ifdef WITH_ERROR
struct Net : Sequential<Input<4>, Linear<8>, Softplus, Linear<2>> {};
#else
struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<2>> {};
#endif
