// SPDX-License-Identifier: Apache-2.0
//
// FromBytes<options...>: an input of bytes, such as an image as it is in its file, becomes activations on the device
// (ops/from_bytes.hpp): y = (x - mean) / deviation. A batch of bytes has a quarter of the size of one of floats.
//
//   input   bytes (uint8) of any extents: the network's Input or a FromInput, whose type becomes uint8
//   output  the same extents
//
//   Input<32, 32, 3>, FromBytes<>, ...                                               x / 255
//   Input<32, 32, 3>, FromBytes<means(128), deviations(128)>, ...                    x / 128 - 1
//   Input<32, 32, 3>, FromBytes<means(125.3, 123.0, 113.9), deviations(63.0, 62.1, 66.7)>, ...   per channel
//
// `means` and `deviations` are in units of a byte, one for all or one per channel (at most 4); by default 0 and 255.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include <cupola/core/element_type.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/ops/from_bytes.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <auto... options>
struct FromBytes {
    static constexpr bool options_known =
        (impl::one_of<std::remove_cvref_t<decltype(options)>, MeansOption, DeviationsOption> && ...);
    static constexpr impl::NumbersOption mean = impl::option_or(means(0), options...).value;
    static constexpr impl::NumbersOption deviation = impl::option_or(deviations(255), options...).value;
    static constexpr std::size_t constants = mean.count > deviation.count ? mean.count : deviation.count;

    static constexpr LayerTraits traits{
        .backward_reads_input = false, .backward_reads_output = false, .reads = ElementType::uint8};

    static constexpr LayerDescription description = [] {
        LayerDescription result("FromBytes");
        for (std::size_t c = 0; c < mean.count && mean != means(0).value; ++c)
            result = result.add_if(true, c == 0 ? ", means " : " ", static_cast<double>(mean.value[c]));
        for (std::size_t c = 0; c < deviation.count && deviation != deviations(255).value; ++c)
            result = result.add_if(true, c == 0 ? ", deviations " : " ", static_cast<double>(deviation.value[c]));
        return result;
    }();

    static constexpr ShapeResult output(const Shape& input) {
        if constexpr (!options_known) {
            return ShapeError{"accepts only the options means(...) and deviations(...)"};
        } else if constexpr (!impl::given_once(options...)) {
            return ShapeError{"is given an option twice"};
        } else if constexpr (mean.count == 0 || deviation.count == 0) {
            return ShapeError{"takes 1 to 4 means and deviations, one for all channels or one per channel"};
        } else {
            for (std::size_t c = 0; c < constants; ++c) {
                if (impl::is_nan(deviation.at(c)) || deviation.at(c) <= 0)
                    return ShapeError{"has a deviation that is not above 0"};
                const double scale = 1 / deviation.at(c);
                if (!Number(mean.at(c)).is_finite_float() || !Number(scale).is_finite_float() ||
                    scale < static_cast<double>(std::numeric_limits<float>::min()))
                    return ShapeError{"has a mean, a deviation or its reciprocal that is not a finite float"};
            }
            for (const impl::NumbersOption& each : {mean, deviation}) {
                if (each.count > 1 && static_cast<std::int64_t>(each.count) != input.channels())
                    return ShapeError{"has means or deviations that are not one for all or one per channel"};
            }
            return input;
        }
    }

    static constexpr BytesShape shape() {
        BytesShape result;
        result.constants = static_cast<int>(constants);
        for (std::size_t c = 0; c < constants; ++c) {
            result.mean[c] = static_cast<float>(mean.at(c));
            result.scale[c] = static_cast<float>(1 / deviation.at(c));
        }
        return result;
    }

    static constexpr GraphOperators onnx(const Shape& input) {
        const BytesShape s = shape();
        const auto each = [&](const auto& numbers) {
            GraphNumbers result{.type = GraphNumbers::Type::float32, .trailing_ones = input.rank == 3 ? 2U : 0U};
            for (std::size_t c = 0; c < constants; ++c) result.list.add(static_cast<double>(numbers[c]));
            return result;
        };
        return {GraphOperator("Cast").integer("to", 1),  // float
                GraphOperator("Sub").previous().constant(each(s.mean)),
                GraphOperator("Mul").previous().constant(each(s.scale))};
    }

    template <class BuildContext>
    static FactoryOf<ops::FromBytes, BuildContext, BytesShape> operation(const BuildContext&) {
        return {shape()};
    }
};

}}  // namespace cupola::CUPOLA_ABI
