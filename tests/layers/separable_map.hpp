// SPDX-License-Identifier: Apache-2.0
//
// A layer that acts on height and width separately and on each channel alone, against the products of two matrices in
// double.
#pragma once

#include "layer_run.hpp"

namespace separable_map {

/// The factor of input k of `inputs` in output i of `outputs`.
using Weight = double (*)(std::int64_t inputs, std::int64_t outputs, std::int64_t i, std::int64_t k);

template <class L, class D>
void agrees(const cupola::Shape& input, std::int64_t batch, Weight of_rows, Weight of_columns) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURES(seed, std::string(cupola::description_of<L>()));
    const auto [problem, outcome] = layer_run::run<L, D>(input, batch, seed);
    const cupola::Shape &in = problem.input, &out = problem.output;
    reference::Doubles expected(problem.dy.size()), gradient(problem.x.size());
    const auto at = [](const cupola::Shape& s, std::int64_t n, std::int64_t row, std::int64_t column) {
        return static_cast<std::size_t>(((n * s.height() + row) * s.width() + column) * s.channels());
    };
    for (std::int64_t n = 0; n < batch; ++n)
        for (std::int64_t i = 0; i < out.height(); ++i)
            for (std::int64_t j = 0; j < out.width(); ++j)
                for (std::int64_t a = 0; a < in.height(); ++a)
                    for (std::int64_t b = 0; b < in.width(); ++b) {
                        const double w =
                            of_rows(in.height(), out.height(), i, a) * of_columns(in.width(), out.width(), j, b);
                        for (std::size_t c = 0; c < static_cast<std::size_t>(in.channels()); ++c) {
                            const std::size_t x = at(in, n, a, b) + c, y = at(out, n, i, j) + c;
                            expected[y] += w * static_cast<double>(problem.x[x]);
                            gradient[x] += w * static_cast<double>(problem.dy[y]);
                        }
                    }
    CHECK(reference::distance(outcome.output, expected) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, gradient) < operation_run::tolerance<D>);
    for (const int threads : thread_counts<D>()) {
        CAPTURE(threads);
        operation_run::Problem again = problem;
        again.threads = threads;
        const operation_run::Outcome other =
            operation_run::run<D>(again, [](const auto& build) { return cupola::operation_of<L>(build); });
        CHECK(reference::same_bits(other.output, outcome.output));
        CHECK(reference::same_bits(other.input_gradient, outcome.input_gradient));
    }
}

/// A value that is not finite, in the input or in the output's gradient, reaches what depends on it and nothing else, in
/// an image of one row.
template <class L, class D>
void keeps_others_finite(std::int64_t inputs, Weight of_columns) {
    const cupola::Shape input{1, inputs, 2};
    const std::int64_t outputs = L::output(input).shape.width();
    for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        for (std::int64_t place = 0; place < std::max(inputs, outputs); ++place) {
            operation_run::Problem problem = layer_run::run<L, D>(input, 1, 1).problem;
            if (place < inputs) problem.x[static_cast<std::size_t>(2 * place)] = value;
            if (place < outputs) problem.dy[static_cast<std::size_t>(2 * place)] = value;
            const operation_run::Outcome outcome =
                operation_run::run<D>(problem, [](const auto& build) { return cupola::operation_of<L>(build); });
            CAPTURES(std::string(cupola::description_of<L>()), place);
            for (std::int64_t i = 0; i < outputs; ++i) {
                const bool reached = place < inputs && of_columns(inputs, outputs, i, place) != 0;
                CHECK(std::isfinite(outcome.output[static_cast<std::size_t>(2 * i)]) == !reached);
            }
            for (std::int64_t k = 0; k < inputs; ++k) {
                const bool reached = place < outputs && of_columns(inputs, outputs, place, k) != 0;
                CHECK(std::isfinite(outcome.input_gradient[static_cast<std::size_t>(2 * k)]) == !reached);
            }
        }
    }
}

}  // namespace separable_map
