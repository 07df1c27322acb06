// SPDX-License-Identifier: Apache-2.0
//
// Embedding<count, width, options...>: each id of an input of the network becomes a row of a table (ops/embedding.hpp).
//
//   input   ids (int32) in [0, count), of any extents: the network's Input or a FromInput, whose type becomes int32
//   output  the extents of the input, and then width
//   weight  [count, width], normal with deviation 1 (PyTorch's) unless set with `weights(...)`
//
//   Input<16>, Embedding<1000, 64>, Flatten, ...                16 ids per sample, 16 x 64 numbers
//   Input<1, 16>, Embedding<1000, 64>, GlobalAvgPool2d, ...     1 x 16 x 64 is shaped as an image: a bag of ids
//   Keep<"words">, FromInput<"country", 1>, Embedding<250, 8>, Flatten, ConcatWith<"words">, ...
//
// With `padding_id(id)` the positions of that id become zeros, and its row is neither read nor trained. A batch with an
// id that is out of range is rejected with InvalidArgument.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <cupola/core/element_type.hpp>
#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/ops/embedding.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t count, std::int64_t width, auto... options>
struct Embedding {
    static constexpr bool options_known =
        (impl::one_of<std::remove_cvref_t<decltype(options)>, PaddingIdOption, WeightsOption> && ...);
    static constexpr bool has_padding = (impl::one_of<std::remove_cvref_t<decltype(options)>, PaddingIdOption> || ...);
    static constexpr EmbeddingShape shape{count, width, impl::option_or(PaddingIdOption{}, options...).value};

    static constexpr LayerTraits traits{.backward_reads_output = false,
                                        .can_omit_parameter_gradients = true,
                                        .reads = ElementType::int32,
                                        .ids = count};
    static constexpr LayerDescription description =
        LayerDescription("Embedding ", count, " x ", width).add_if(has_padding, ", padding ", shape.padding);
    static constexpr LayerDescription wrong_size = impl::size_error({{"number of ids", count}, {"width", width}});

    static constexpr ShapeResult output(const Shape& input) {
        if (!options_known) return ShapeError{"accepts only the options padding_id(...) and weights(...)"};
        if (!impl::given_once(options...)) return ShapeError{"is given an option twice"};
        if (!wrong_size.empty()) return ShapeError{wrong_size.c_str()};
        if (count > std::numeric_limits<std::int32_t>::max()) return ShapeError{"has more ids than int32 has numbers"};
        if (has_padding && (shape.padding < 0 || shape.padding >= count))
            return ShapeError{"has a padding that is not one of its ids"};
        if (input.rank == max_rank) return ShapeError{"adds an extent to its input, which has the most already"};
        Shape result = input;
        result.extents[result.rank++] = width;
        return result;
    }

    static constexpr Parameters parameters(const Shape&) {
        return Parameter{.name = "weight",
                         .shape = {count, width},
                         .initializer = impl::option_or(WeightsOption{normal(1.0)}, options...).value,
                         .fan_in = count,
                         .fan_out = width};
    }

    static constexpr GraphOperators onnx(const Shape& input) {
        GraphOperators result = GraphOperator("Gather").parameter("weight", shape.padding).input();
        // Its output is an image, whose channels are first in ONNX.
        if (input.rank == 2) result.add(graph_channels_first());
        return result;
    }

    template <class BuildContext>
    static FactoryOf<ops::Embedding, BuildContext, EmbeddingShape> operation(const BuildContext&) {
        return {shape};
    }
};

}}  // namespace cupola::CUPOLA_ABI
