// SPDX-License-Identifier: Apache-2.0
//
// ReLU: y = max(x, 0), for any extents. After `Conv2d` or `Linear` it is computed inside that layer's operation.
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/activation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct ReLU {
    static constexpr LayerKind kind = LayerKind::activation;
    static constexpr Activation activation = Activation::relu;
    static constexpr LayerTraits traits{.backward_reads_input = false};

    static constexpr ShapeResult output(const Shape& input) { return input; }

    static constexpr GraphOperators onnx(const Shape&) { return GraphOperator("Relu"); }

    template <class BuildContext>
    static FactoryOf<ops::Relu, BuildContext> operation(const BuildContext&) {
        return {};
    }
};

}}  // namespace cupola::CUPOLA_ABI
