// SPDX-License-Identifier: Apache-2.0
//
// A view whose output does not fit into its input's memory.
//
// expect: layer 2 (Padded) has the kind view and an output whose size differs from that of its input; its output is 9; its input is 8 from layer 1 (Linear<8>)
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

struct Padded {
    static constexpr LayerKind kind = LayerKind::view;
#ifdef WITH_ERROR
    static constexpr ShapeResult output(const Shape& input) { return Shape{input.size() + 1}; }
#else
    static constexpr ShapeResult output(const Shape& input) { return Shape{input.size()}; }
#endif
};
struct Net : Sequential<Input<4>, Linear<8>, Padded, Linear<2>> {};
