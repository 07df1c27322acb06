// SPDX-License-Identifier: Apache-2.0
//
// A layer of the kind batch normalisation without the members that passes over the network read: everything that is
// missing is named at once.
//
// expect: layer 2 (norm, Normalise) has the kind batch_norm and lacks `static constexpr BatchNormStatistics statistics`, `static constexpr Parameters buffers(const Shape&)`
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

struct Normalise {
    static constexpr LayerKind kind = LayerKind::batch_norm;
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static constexpr Parameters parameters(const Shape& input) {
        return {Parameter{.name = "scale", .shape = {input.channels()}},
                Parameter{.name = "shift", .shape = {input.channels()}}};
    }
#ifndef WITH_ERROR
    static constexpr BatchNormStatistics statistics{.epsilon = 1e-5, .decay = 0.9};
    static constexpr Parameters buffers(const Shape& input) { return parameters(input); }
#endif
};
struct Net : Sequential<Input<8, 8, 3>, Conv2d<8, 3>, Named<"norm", Normalise>> {};
