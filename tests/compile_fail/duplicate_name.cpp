// SPDX-License-Identifier: Apache-2.0
//
// Two layers of one name would be one entry in a checkpoint.
//
// expect: layers 1 and 3 have the same name, hidden
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4>, Named<"hidden", Linear<8>>, ReLU, Named<"hidden", Linear<2>>> {};
#else
struct Net : Sequential<Input<4>, Named<"hidden", Linear<8>>, ReLU, Named<"output", Linear<2>>> {};
#endif
