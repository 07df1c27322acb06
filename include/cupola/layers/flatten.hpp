// SPDX-License-Identifier: Apache-2.0
//
// Flatten: views height x width x channels as one extent, in that order (feature = (y * width + x) * channels + c);
// files have (c, h, w), PyTorch's (layers/flatten_channels_last.hpp). Output and input are the same memory.
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct Flatten {
    static constexpr LayerKind kind = LayerKind::view;
    static constexpr LayerTraits traits{
        .backward_reads_input = false, .backward_reads_output = false, .flattens = true};

    static constexpr ShapeResult output(const Shape& input) { return Shape{input.size()}; }

    static constexpr GraphOperators onnx(const Shape&) { return GraphOperator("Flatten"); }

    /// A view computes nothing.
    struct Nothing {
        template <class Args>
        void forward(const Args&) const {}
        template <class Args>
        void backward(const Args&) const {}
    };
    template <class BuildContext>
    static Nothing operation(const BuildContext&) {
        return {};
    }
};

}}  // namespace cupola::CUPOLA_ABI
