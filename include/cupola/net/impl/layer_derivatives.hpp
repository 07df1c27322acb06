// SPDX-License-Identifier: Apache-2.0
//
// Compares a layer's gradients with differences of its outputs. See net/check_gradients.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cupola/net/impl/layer_case.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D>
class LayerDerivatives {
public:
    explicit LayerDerivatives(LayerCase<D>& c) : c_(c) {}

    void run() {
        const double tolerance = c_.options.tolerance > 0 ? c_.options.tolerance : 3e-3;
        for (std::size_t t = c_.first_tensor(); t < c_.tensors(); ++t) {
            const double step = (c_.options.step > 0 ? c_.options.step : 3e-3) * check_size(c_.value_of(t));
            Measured measured = measure(t, step);
            TriedSteps tried(step);
            for (const double fraction : TriedSteps::fractions) {
                if (measured.is_smooth() && measured.derivatives.agree(tolerance)) break;
                tried.add(fraction * step);
                const Measured shorter = measure(t, fraction * step);
                // The noise must be small: differences that are mostly noise may agree with a wrong gradient.
                if (shorter.is_smooth() && shorter.derivatives.clear(tolerance) &&
                    (shorter.derivatives.agree(tolerance) ||
                     2 * shorter.derivatives.error() < measured.derivatives.error()))
                    measured = shorter;
            }
            c_.result.add({c_.prefix + (t == 0 ? "input" : c_.name_of(t)),
                           DirectionalDerivatives::two_digits(measured.derivatives.error())});
            if (!measured.is_smooth()) {
                c_.fail("most outputs change too abruptly with ", c_.name_of(t), " for a derivative at a step of ",
                        measured.step, tried.description());
            }
            if (!measured.derivatives.agree(tolerance)) {
                c_.fail("the gradient of ", c_.name_of(t), " ", measured.derivatives.diagnosis(tolerance), "; ",
                        worst(t, measured.step), tried.description());
            }
        }
    }

private:
    static constexpr std::uint32_t first_direction = 64;

    struct Measured {
        double step = 0;
        DirectionalDerivatives derivatives{};
        /// The number of outputs for which a step crosses a kink, and of all outputs, both over all directions.
        std::size_t left_out = 0, outputs = 0;
        [[nodiscard]] bool is_smooth() const { return 2 * left_out <= outputs; }
    };

    /// The derivatives along all directions, from steps of this size.
    Measured measure(std::size_t t, double step) {
        const Floats& values = c_.value_of(t);
        Measured measured{.step = step, .outputs = c_.output.size() * static_cast<std::size_t>(c_.options.directions)};
        for (int k = 0; k < c_.options.directions; ++k) {
            const auto stream = first_direction + static_cast<std::uint32_t>(t) * 4096 + static_cast<std::uint32_t>(k);
            const Floats direction = check_normal(c_.options.seed, stream, static_cast<std::int64_t>(values.size()));
            Floats low = values, high = values;
            for (std::size_t i = 0; i < values.size(); ++i) {
                low[i] -= static_cast<float>(step) * direction[i];
                high[i] += static_cast<float>(step) * direction[i];
            }
            const Difference numeric = difference(t, low, high);
            measured.left_out +=
                static_cast<std::size_t>(std::count(numeric.weighting.begin(), numeric.weighting.end(), 0.0F));
            const LayerGradients gradients = c_.gradients(numeric.weighting);
            const Floats& gradient = c_.gradient_of(gradients, t);
            double analytic = 0;
            for (std::size_t i = 0; i < values.size(); ++i) {
                analytic +=
                    static_cast<double>(gradient[i]) * (static_cast<double>(high[i]) - static_cast<double>(low[i]));
            }
            measured.derivatives.add(numeric.derivative, analytic, numeric.noise);
        }
        return measured;
    }

    /// The output with tensor number `tensor` set to `values`.
    Floats output_at(std::size_t tensor, const Floats& values) {
        if (tensor == 0) return c_.bench.forward(values, c_.parameters);
        std::vector<Floats> moved = c_.parameters;
        moved[tensor - 1] = values;
        return c_.bench.forward(c_.input, moved);
    }

    struct Difference {
        double derivative = 0, noise = 0;
        /// The weighting, zero for outputs for which the step crosses a kink.
        Floats weighting;
    };

    /// The change of the weighted outputs between the two ends of a step.
    Difference difference(std::size_t tensor, const Floats& low, const Floats& high) {
        const Floats below = output_at(tensor, low), above = output_at(tensor, high);
        Difference result{0, 0, c_.weighting};
        for (std::size_t i = 0; i < c_.output.size(); ++i) {
            const auto y0 = static_cast<double>(c_.output[i]), y1 = static_cast<double>(below[i]),
                       y2 = static_cast<double>(above[i]);
            // Where the function is smooth, the ratio of the second difference to the first is of the order of the
            // step.
            constexpr double bend = 0.01, rounding = 4e-6;
            if (std::abs(y2 - 2 * y0 + y1) > bend * std::abs(y2 - y1) + rounding * std::abs(y0)) {
                result.weighting[i] = 0;
                continue;
            }
            constexpr double float_error = 1e-6;  // of a sum of some hundred products
            const auto weight = static_cast<double>(c_.weighting[i]);
            result.derivative += weight * (y2 - y1);
            result.noise += std::pow(weight * y0 * float_error, 2);
        }
        result.noise = std::sqrt(result.noise);
        return result;
    }

    /// Moves each element separately to find the one with the largest error.
    std::string worst(std::size_t tensor, double step) {
        constexpr std::size_t at_most = 200;
        const Floats& values = c_.value_of(tensor);
        const std::size_t stride = (values.size() + at_most - 1) / at_most;
        WorstElement element;
        for (std::size_t i = 0; i < values.size(); i += stride) {
            Floats low = values, high = values;
            low[i] -= static_cast<float>(step);
            high[i] += static_cast<float>(step);
            const Difference numeric = difference(tensor, low, high);
            const LayerGradients gradients = c_.gradients(numeric.weighting);
            element.add(i, numeric.derivative / (static_cast<double>(high[i]) - static_cast<double>(low[i])),
                        static_cast<double>(c_.gradient_of(gradients, tensor)[i]));
        }
        return element.describe(tensor == 0 ? c_.layer.input : c_.layer.parameters.list[tensor - 1].shape, tensor == 0);
    }

    LayerCase<D>& c_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
