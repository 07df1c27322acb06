// SPDX-License-Identifier: Apache-2.0
//
// Softmax: the channels of each position, the last extent, as probabilities; LogSoftmax: their logarithms
// (ops/softmax.hpp has the formulas). CrossEntropy contains them and expects logits.
//
//   input    any extents
//   output   the same
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/softmax.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <bool logarithm>
struct SoftmaxLayer {
    static constexpr LayerTraits traits{.backward_reads_input = false};

    static constexpr ShapeResult output(const Shape& input) { return input; }
    static constexpr GraphOperators onnx(const Shape& input) {
        return GraphOperator(logarithm ? "LogSoftmax" : "Softmax").integer("axis", graph_channel_axis(input));
    }

    template <class BuildContext>
    static FactoryOf<ops::Softmax, BuildContext, SoftmaxShape> operation(const BuildContext& build) {
        return {SoftmaxShape{.channels = build.input.channels(), .logarithm = logarithm}};
    }
};

}  // namespace impl

struct Softmax : impl::SoftmaxLayer<false> {};
struct LogSoftmax : impl::SoftmaxLayer<true> {};

}}  // namespace cupola::CUPOLA_ABI
