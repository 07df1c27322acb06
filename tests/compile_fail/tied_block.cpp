// SPDX-License-Identifier: Apache-2.0
//
// A block whose parameters shall be shared.
//
// expect: the Tied at layer 1 (step) takes a single layer without a name: tie the layers inside a block one by one
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net
    : Sequential<Input<8>, Tied<"step", Residual<Identity, Linear<8>>>, Tied<"step", Residual<Identity, Linear<8>>>> {};
#else
struct Net
    : Sequential<Input<8>, Residual<Identity, Tied<"step", Linear<8>>>, Residual<Identity, Tied<"step", Linear<8>>>> {};
#endif
