// SPDX-License-Identifier: Apache-2.0
//
// Lists of losses by name, in checkpoints and logs, separate the names by spaces.
//
// expect: the name my layer contains a space, but lists of losses separate their names by spaces
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4>, Named<"my layer", Linear<2>>> {};
#else
struct Net : Sequential<Input<4>, Named<"my_layer", Linear<2>>> {};
#endif
