// SPDX-License-Identifier: Apache-2.0
//
// A layer in the list that says that it is an end of a residual block.
//
// expect: Both has the kind sum, which only the ends of a Residual have
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

struct Both {
#ifdef WITH_ERROR
    static constexpr LayerKind kind = LayerKind::sum;
#endif
    static constexpr ShapeResult output(const Shape& input) { return input; }
};
struct Net : Sequential<Input<4>, Linear<8>, Both, Linear<2>> {};
