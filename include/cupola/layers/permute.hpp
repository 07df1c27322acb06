// SPDX-License-Identifier: Apache-2.0
//
// Permute<axes...>: another order of the axes of a sample (ops/permutation.hpp), as PyTorch's `permute` without the
// batch: axis i of the output is axis axes[i] of the input. Axes are counted from 0; those of an image are height,
// width, channels, so Permute<2, 0, 1> makes channels x height x width, and Permute<1, 0, 2> transposes an image.
//
//   input   any extents, as many as axes
//   output  the same in the new order
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/extents.hpp>
#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/permutation.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t... axes>
struct Permute {
    static constexpr LayerTraits traits{.backward_reads_input = false, .backward_reads_output = false};
    static constexpr std::size_t rank = sizeof...(axes);
    static constexpr std::int64_t given[rank + 1] = {axes..., 0};
    static constexpr LayerDescription description = [] {
        LayerDescription result("Permute");
        for (std::size_t i = 0; i != rank; ++i) result = result.add_if(true, i == 0 ? " " : ", ", given[i]);
        return result;
    }();
    static constexpr LayerDescription rank_error{"permutes ", static_cast<std::int64_t>(rank),
                                                 " axes, and its input has another number of them"};

    /// Whether each axis occurs once.
    static constexpr bool is_permutation = [] {
        bool result = rank >= 1 && rank <= max_rank;
        for (std::size_t axis = 0; axis != rank; ++axis) {
            int times = 0;
            for (std::size_t i = 0; i != rank; ++i) times += given[i] == static_cast<std::int64_t>(axis) ? 1 : 0;
            result = result && times == 1;
        }
        return result;
    }();

    static constexpr PermutationShape shape(const Shape& input) {
        PermutationShape result{input, {}};
        for (std::size_t i = 0; i != rank; ++i) result.axes[i] = static_cast<std::size_t>(given[i]);
        return result;
    }

    static constexpr ShapeResult output(const Shape& input) {
        if constexpr (!is_permutation) {
            return ShapeError{"expects each axis of its input once, from 0 on"};
        } else {
            if (input.rank != rank) return ShapeError{rank_error.c_str()};
            for (std::size_t i = 0; i != rank; ++i) {
                if (!are_window_extents({input[i]})) return ShapeError{"has an extent of more than 2^29"};
            }
            return shape(input).output();
        }
    }

    static constexpr GraphOperators onnx(const Shape&) {
        // In a graph an image has its channels first.
        constexpr std::int64_t own[] = {2, 0, 1}, place[] = {1, 2, 0};
        std::int64_t perm[max_rank] = {};
        for (std::size_t i = 0; i != rank; ++i)
            perm[i] = 1 + (rank == 3 ? place[given[own[rank == 3 ? i : 0]]] : given[i]);
        GraphOperator result("Transpose");
        switch (rank) {
            case 1: return result.integers("perm", 0, 1);
            case 2: return result.integers("perm", std::int64_t{0}, perm[0], perm[1]);
            case 3: return result.integers("perm", std::int64_t{0}, perm[0], perm[1], perm[2]);
            default: return result.integers("perm", std::int64_t{0}, perm[0], perm[1], perm[2], perm[3]);
        }
    }

    template <class BuildContext>
    static FactoryOf<ops::Permutation, BuildContext, PermutationShape> operation(const BuildContext& build) {
        return {shape(build.input)};
    }
};

}}  // namespace cupola::CUPOLA_ABI
