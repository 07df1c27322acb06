// SPDX-License-Identifier: Apache-2.0
//
// AdaptiveAvgPool2d<rows, columns = rows>: means over windows that divide any image into rows x columns
// (ops/resampling.hpp), as PyTorch's. Window i of n covers rows floor(i height / n) to ceil((i + 1) height / n), the
// last not included; neighbouring windows overlap where n does not divide the height.
//
//   input   height x width x channels
//   output  rows x columns x channels
//
// AdaptiveAvgPool2d<1> has the values of GlobalAvgPool2d up to rounding, with height and width of 1. ONNX has no such
// operator: it is an AveragePool of an image whose extents are multiples of the output's, and two products else.
#pragma once

#include <cstdint>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/resampling.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t rows, std::int64_t columns = rows>
struct AdaptiveAvgPool2d {
    static constexpr LayerTraits traits{.backward_reads_input = false, .backward_reads_output = false};
    static constexpr LayerDescription description = LayerDescription("AdaptiveAvgPool2d ", rows, " x ", columns);
    static constexpr LayerDescription wrong_size =
        impl::size_error({{"number of rows", rows}, {"number of columns", columns}});

    static constexpr ResamplingShape shape(const Shape& input) {
        return {{ResamplingKind::mean, input.height(), rows},
                {ResamplingKind::mean, input.width(), columns},
                input.channels()};
    }

    static constexpr ShapeResult output(const Shape& input) {
        if (!wrong_size.empty()) return ShapeError{wrong_size.c_str()};
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        if (!are_window_extents({input.height(), input.width(), rows, columns}))
            return ShapeError{"has an input or an output of more than 2^29 rows or columns"};
        constexpr std::int64_t most = std::int64_t{1} << 31;  // ResampledAxis
        if ((input.height() + 1) * (rows + 1) > most || (input.width() + 1) * (columns + 1) > most)
            return ShapeError{"has an input whose rows or columns times those of the output are more than 2^31"};
        return Shape{rows, columns, input.channels()};
    }

    /// Windows that differ in size or overlap are products with matrices of means: [rows, height] and [width, columns].
    static constexpr GraphOperators onnx(const Shape& input) {
        const std::int64_t height = input.height() / rows, width = input.width() / columns;
        if (height * rows != input.height() || width * columns != input.width()) {
            GraphNumbers of_rows{.type = GraphNumbers::Type::float32, .rows = rows, .columns = input.height()};
            of_rows.element = [](const GraphNumbers& matrix, std::int64_t row, std::int64_t column) {
                return share(ResampledAxis(ResamplingKind::mean, matrix.columns, matrix.rows), row, column);
            };
            GraphNumbers of_columns{.type = GraphNumbers::Type::float32, .rows = input.width(), .columns = columns};
            of_columns.element = [](const GraphNumbers& matrix, std::int64_t row, std::int64_t column) {
                return share(ResampledAxis(ResamplingKind::mean, matrix.rows, matrix.columns), column, row);
            };
            return {GraphOperator("MatMul").constant(of_rows).input(),
                    GraphOperator("MatMul").previous().constant(of_columns)};
        }
        return GraphOperator("AveragePool")
            .window(window_axis(input.height(), height, height, Padding::valid),
                    window_axis(input.width(), width, width, Padding::valid));
    }

    template <class BuildContext>
    static FactoryOf<ops::Resampling, BuildContext, ResamplingShape> operation(const BuildContext& build) {
        return {shape(build.input)};
    }

private:
    /// The factor of input k in output i of an axis.
    static double share(const ResampledAxis& axis, std::int64_t i, std::int64_t k) {
        const auto output = static_cast<std::int32_t>(i), input = static_cast<std::int32_t>(k);
        const ResampledAxis::Range range = axis.inputs(output);
        return input >= range.begin && input < range.end ? static_cast<double>(axis.weight(output, input)) : 0.0;
    }
};

}}  // namespace cupola::CUPOLA_ABI
