// SPDX-License-Identifier: Apache-2.0
//
// A device's loop over rows: softmax and layer normalisation as formulas of a row, and the gradient of a normalisation's scale as
// a sum over rows, against plain loops in double.
#include <cupola/ops/rows.hpp>
#include "../devices.hpp"
#include "../reference/compare.hpp"
#include "../test.hpp"
#include "operation_run.hpp"

using operation_run::Guarded;
using reference::Doubles, reference::Floats;

// Not in an unnamed namespace: emulated/every_kernel finds kernels by their symbols.
namespace formulas_of_rows {

/// to = exp(from - largest) / sum, and the place of the largest.
struct SoftmaxOfRow {
    const float* from;
    float *to, *places;
    std::int64_t width;

    template <class Lanes>
    CUPOLA_HOST_DEVICE void operator()(const Lanes& lanes, std::int64_t n) const {
        const std::int64_t count = lanes.count(width);
        const float* const row = from + n * width;
        const impl::RowTop top = lanes.largest(count, [&](std::int64_t c) { return row[c]; });
        double sum = 0;
        for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step)
            sum += std::exp(static_cast<double>(row[c] - top.value));
        sum = lanes.sum(sum);
        for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step)
            to[n * width + c] = static_cast<float>(std::exp(static_cast<double>(row[c] - top.value)) / sum);
        if (lanes.first()) places[n] = static_cast<float>(top.place);
    }
};

/// to = (from - mean) / sqrt(variance + 1e-5).
struct NormOfRow {
    const float* from;
    float* to;
    std::int64_t width;

    template <class Lanes>
    CUPOLA_HOST_DEVICE void operator()(const Lanes& lanes, std::int64_t n) const {
        const std::int64_t count = lanes.count(width);
        const float* const row = from + n * width;
        double mean = 0, variance = 0;
        for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step) mean += static_cast<double>(row[c]);
        mean = lanes.sum(mean) / static_cast<double>(width);
        for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step)
            variance += (static_cast<double>(row[c]) - mean) * (static_cast<double>(row[c]) - mean);
        const double factor = 1.0 / std::sqrt(lanes.sum(variance) / static_cast<double>(width) + 1e-5);
        for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step)
            to[n * width + c] = static_cast<float>((static_cast<double>(row[c]) - mean) * factor);
    }
};

/// The gradient of a scale per column.
struct ScaleGradient {
    const float *output_gradient, *normalized;
    std::int64_t width;

    CUPOLA_HOST_DEVICE double operator()(std::int64_t n, std::int64_t c) const {
        return static_cast<double>(output_gradient[n * width + c]) * static_cast<double>(normalized[n * width + c]);
    }
};

}  // namespace formulas_of_rows
namespace {

using namespace formulas_of_rows;

constexpr std::int64_t widths[] = {1, 3, 8, 9, 16, 17, 33, 1000}, row_counts[] = {1, 3, 31, 257};

}  // namespace

TYPED_TEST_CASE("softmax as a formula of a row agrees with plain loops for any width, rows and threads", D, Devices) {
    for (const std::int64_t width : widths) {
        for (const std::int64_t rows : row_counts) {
            const Floats from = reference::Random(static_cast<std::uint64_t>(width + rows)).normal(rows * width, 3.0);
            Floats first;
            for (const int threads : thread_counts<D>()) {
                CAPTURES(width, rows, threads);
                const CaseContext<D> of_case(threads);
                typename D::Context& context = of_case.get();
                Guarded<D> in(context, from), to(context, from.size() * sizeof(float)),
                    places(context, static_cast<std::size_t>(rows) * sizeof(float));
                for_each_row(context, rows, width, SoftmaxOfRow{in.data(), to.data(), places.data(), width});
                const Floats result = to.read(), tops = places.read();
                CHECK(to.guards_intact());
                CHECK(places.guards_intact());
                Doubles expected;
                for (std::int64_t n = 0; n < rows; ++n) {
                    const float* const row = from.data() + n * width;
                    std::int64_t top = 0;
                    for (std::int64_t c = 1; c < width; ++c) top = row[c] > row[top] ? c : top;
                    double sum = 0;
                    for (std::int64_t c = 0; c < width; ++c) sum += std::exp(static_cast<double>(row[c]));
                    for (std::int64_t c = 0; c < width; ++c)
                        expected.push_back(std::exp(static_cast<double>(row[c])) / sum);
                    CHECK(tops[static_cast<std::size_t>(n)] == static_cast<float>(top));
                }
                CHECK(reference::distance(result, expected) < reference::tolerance);
                if (first.empty()) first = result;
                CHECK(reference::same_bits(result, first));
            }
        }
    }
}

TYPED_TEST_CASE("a normalisation and the gradient of its scale are formulas of rows and columns", D, Devices) {
    for (const std::int64_t width : widths) {
        for (const std::int64_t rows : row_counts) {
            reference::Random random(static_cast<std::uint64_t>(width * rows));
            const Floats from = random.normal(rows * width, 3.0), output_gradient = random.normal(rows * width);
            Floats first;
            for (const int threads : thread_counts<D>()) {
                CAPTURES(width, rows, threads);
                const CaseContext<D> of_case(threads);
                typename D::Context& context = of_case.get();
                Guarded<D> in(context, from), by(context, output_gradient), to(context, from.size() * sizeof(float)),
                    sums(context, static_cast<std::size_t>(width) * sizeof(float));
                for_each_row(context, rows, width, NormOfRow{in.data(), to.data(), width});
                sum_columns(context, rows, width, ScaleGradient{by.data(), to.data(), width}, sums.data());
                const Floats normalized = to.read(), gradient = sums.read();
                CHECK(to.guards_intact());
                CHECK(sums.guards_intact());
                Doubles expected, of_scale(static_cast<std::size_t>(width)), terms(of_scale.size());
                for (std::int64_t n = 0; n < rows; ++n) {
                    const float* const row = from.data() + n * width;
                    double mean = 0, variance = 0;
                    for (std::int64_t c = 0; c < width; ++c)
                        mean += static_cast<double>(row[c]) / static_cast<double>(width);
                    for (std::int64_t c = 0; c < width; ++c)
                        variance += std::pow(static_cast<double>(row[c]) - mean, 2) / static_cast<double>(width);
                    for (std::int64_t c = 0; c < width; ++c) {
                        const auto at = static_cast<std::size_t>(c), i = static_cast<std::size_t>(n * width + c);
                        expected.push_back((static_cast<double>(row[c]) - mean) / std::sqrt(variance + 1e-5));
                        const double term =
                            static_cast<double>(output_gradient[i]) * static_cast<double>(normalized[i]);
                        of_scale[at] += term;
                        terms[at] += std::abs(term);
                    }
                }
                CHECK(reference::distance(normalized, expected) < reference::tolerance);
                for (std::size_t c = 0; c < gradient.size(); ++c)
                    CHECK(std::abs(static_cast<double>(gradient[c]) - of_scale[c]) <= 1e-7 * terms[c]);
                if (first.empty()) first = gradient;
                CHECK(reference::same_bits(gradient, first));
            }
        }
    }
}

TYPED_TEST_CASE("of equal largest values the first counts, and a row of NaNs has a place of its own", D, Devices) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    constexpr std::int64_t width = 40;
    Floats from(2 * width, 1.0F);
    from[7] = from[8] = from[39] = 5.0F;
    for (std::size_t c = width; c < from.size(); ++c) from[c] = nan;
    const CaseContext<D> of_case(1);
    typename D::Context& context = of_case.get();
    Guarded<D> in(context, from), to(context, from.size() * sizeof(float)), places(context, 2 * sizeof(float));
    for_each_row(context, 2, width, SoftmaxOfRow{in.data(), to.data(), places.data(), width});
    const Floats tops = places.read();
    CHECK(tops[0] == 7.0F);
    CHECK(tops[1] >= 0.0F);
    CHECK(tops[1] < static_cast<float>(width));
}
