// SPDX-License-Identifier: Apache-2.0
//
// Reshape<extents...>: the same elements, in their order in memory, with other extents; one of them may be -1, which
// stands for what the others leave. Nothing is copied: output and input are the same memory.
//
//   input   any extents
//   output  the extents, which have as many elements
//
// The order is height, width, channels. PyTorch's `view(channels, height, width)` of features has them channels first:
// Reshape<channels, height, width> and then Permute<1, 2, 0>. Reshape<-1> is Flatten, and weights that read its output
// have their columns in the order of PyTorch's `x.view(N, -1)` in files (layers/flatten_channels_last.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/extents.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t... extents>
struct Reshape {
    static constexpr LayerKind kind = LayerKind::view;
    static constexpr std::size_t rank = sizeof...(extents);
    static constexpr LayerTraits traits{
        .backward_reads_input = false, .backward_reads_output = false, .flattens = rank == 1};
    static constexpr std::int64_t given[rank + 1] = {extents..., 0};
    static constexpr int open = (0 + ... + (extents == -1 ? 1 : 0));
    static constexpr bool positive = ((extents >= 1 || extents == -1) && ...);
    /// The number of elements, or what it is a multiple of.
    static constexpr std::int64_t known = positive ? saturating_product(1, 1, (extents == -1 ? 1 : extents)...) : 1;

    static constexpr LayerDescription description = [] {
        LayerDescription result("Reshape");
        for (std::size_t i = 0; i != rank; ++i) result = result.add_if(true, i == 0 ? " " : " x ", given[i]);
        return result;
    }();
    static constexpr LayerDescription size_error = [] {
        LayerDescription result("expects as many elements as in ");
        for (std::size_t i = 0; i != rank; ++i) {
            result = given[i] == -1 ? result.add_if(true, i == 0 ? "" : " x ", "n")
                                    : result.add_if(true, i == 0 ? "" : " x ", given[i]);
        }
        return result;
    }();

    static constexpr ShapeResult output(const Shape& input) {
        if (rank < 1 || rank > max_rank || !positive || open > 1)
            return ShapeError{"expects one to four extents, each at least 1, or -1 for one of them"};
        const std::int64_t left = input.size() / known;
        if (left * known != input.size() || left < 1 || (open == 0 && left != 1)) return ShapeError{size_error.c_str()};
        Shape result;
        result.rank = rank;
        for (std::size_t i = 0; i != rank && i < max_rank; ++i) result.extents[i] = given[i] == -1 ? left : given[i];
        return result;
    }

    static constexpr GraphOperators onnx(const Shape& input) {
        const Shape to = output(input).shape;
        if (to.rank == 1) return GraphOperator("Flatten");
        GraphOperators result;
        if (input.rank == 3) result.add(graph_channels_last());
        GraphOperator reshape("Reshape");
        switch (to.rank) {
            case 2: reshape.previous().constant(std::int64_t{0}, to[0], to[1]); break;
            case 3: reshape.previous().constant(std::int64_t{0}, to[0], to[1], to[2]); break;
            default: reshape.previous().constant(std::int64_t{0}, to[0], to[1], to[2], to[3]); break;
        }
        result.add(reshape);
        if (to.rank == 3) result.add(graph_channels_first());
        return result;
    }

    template <class BuildContext>
    static Flatten::Nothing operation(const BuildContext&) {
        return {};
    }
};

}}  // namespace cupola::CUPOLA_ABI
