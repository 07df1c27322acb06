// SPDX-License-Identifier: Apache-2.0
//
// LocalResponseNorm<radius, alpha, beta, bias>: divides each channel by a power of the sum of squares of the channels
// around it (ops/local_response_norm.hpp has the formula). The window is 2 radius + 1 channels; the defaults are those
// of TensorFlow's CIFAR-10 tutorial.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/local_response_norm.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t radius, Number alpha = 0.001 / 9.0, Number beta = 0.75, Number bias = 1.0>
struct LocalResponseNorm {
    static constexpr LayerKind kind = LayerKind::local_response_norm;
    static constexpr LayerTraits traits{.backward_reads_output = false};
    static constexpr LayerDescription description =
        LayerDescription("LocalResponseNorm, radius ", radius)
            .add_if(alpha != Number(0.001 / 9.0), ", alpha ", static_cast<double>(alpha))
            .add_if(beta != Number(0.75), ", beta ", static_cast<double>(beta))
            .add_if(bias != Number(1.0), ", bias ", static_cast<double>(bias));

    static constexpr LocalResponseNormShape shape(const Shape& input) {
        return {input.channels(), radius, static_cast<float>(bias), static_cast<float>(alpha),
                static_cast<float>(beta)};
    }

    static constexpr ShapeResult output(const Shape& input) {
        if (radius < 0) return ShapeError{"has a negative radius"};
        if (radius > max_elements) return ShapeError{"has a radius of more than 2^40"};
        for (const Number each : {alpha, beta, bias}) {
            if (!each.is_finite_float() || each < 0.0)
                return ShapeError{"has an alpha, a beta or a bias that is not a finite number of at least 0"};
        }
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        return input;
    }

    static constexpr GraphOperators onnx(const Shape& input) {
        // A wider window has the same channels, and ONNX divides alpha by its size.
        const std::int64_t size = 2 * std::min(radius, input.channels()) + 1;
        return GraphOperator("LRN")
            .integer("size", size)
            .number("alpha", alpha * static_cast<double>(size))
            .number("beta", beta)
            .number("bias", bias);
    }

    template <class BuildContext>
    static FactoryOf<ops::LocalResponseNorm, BuildContext, LocalResponseNormShape> operation(
        const BuildContext& build) {
        return {shape(build.input)};
    }
};

}}  // namespace cupola::CUPOLA_ABI
