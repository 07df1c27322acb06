// SPDX-License-Identifier: Apache-2.0
//
// The checks of one layer: the contract's clauses, then the figures. See net/check_gradients.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cupola/net/impl/layer_bench.hpp>
#include <cupola/net/impl/slopes.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class D>
class LayerCheck {
public:
    LayerCheck(const Row& row, StageMaker<D> make, Activation activation, const GradientCheckOptions& options,
               const typename D::Options& device, GradientCheck& result)
        : row_(row),
          make_(make),
          activation_(activation),
          options_(options),
          device_(device),
          result_(result),
          inside_(activation == Activation::relu ? "with a ReLU inside, " : ""),
          bench_(row, make, activation, options, device),
          input_(check_normal(options.seed, 0, options.batch * row.input.size())),
          weighting_(check_normal(options.seed, 1, options.batch * row.output.size())) {
        for (std::size_t p = 0; p < row.parameters.count; ++p) {
            // Around the initial values, far enough from them to be no special case (a bias of zero is one).
            const Parameter& parameter = row.parameters.list[p];
            Floats values(static_cast<std::size_t>(parameter.shape.size()));
            const auto number = static_cast<std::uint32_t>(p);
            initialize(values, parameter.initializer, parameter.fan_in, parameter.fan_out, options.seed, number);
            const Floats noise = check_normal(options.seed, first_parameter + number, parameter.shape.size());
            const float deviation = 1.0F / std::sqrt(static_cast<float>(std::max<std::int64_t>(1, parameter.fan_in)));
            for (std::size_t i = 0; i < values.size(); ++i) values[i] += deviation * noise[i];
            parameters_.push_back(std::move(values));
        }
    }

    void run() {
        output_ = bench_.forward(input_, parameters_);
        if (!check_forward()) return;
        gradients_ = bench_.backward(weighting_);
        check_unchanged("backward");
        if (check_written()) {
            check_calls();
            check_figures();
        }
        for (const std::string& name : bench_.overrun(row_)) fail("something was written outside ", name);
    }

private:
    static constexpr std::uint32_t first_parameter = 16, first_direction = 64;

    template <class... Parts>
    void fail(const Parts&... parts) {
        result_.fail(text(inside_, parts...));
    }

    [[nodiscard]] std::string name_of(std::size_t tensor) const {
        return tensor == 0 ? "the input" : row_.parameters.list[tensor - 1].name;
    }
    [[nodiscard]] const Floats& gradient_of(const LayerGradients& gradients, std::size_t tensor) const {
        return tensor == 0 ? gradients.input : gradients.parameters[tensor - 1];
    }
    [[nodiscard]] std::size_t tensors() const { return parameters_.size() + 1; }

    bool check_forward() {
        for (std::size_t i = 0; i < output_.size(); ++i) {
            if (std::isfinite(output_[i])) continue;
            fail("forward left element ", i, " of the output at ", output_[i], ": not written, or not a number");
            return false;
        }
        check_unchanged("forward");
        if (!same_bits(bench_.forward(input_, parameters_), output_)) {
            fail("forward gave another output the second time, from the same input and the same random numbers");
            return false;
        }
        if (row_.traits.activation == Activation::relu) {
            for (std::size_t i = 0; i < output_.size(); ++i) {
                if (output_[i] == std::max(input_[i], 0.0F)) continue;
                fail("the traits say that this is a ReLU, and its output for ", input_[i], " is ", output_[i]);
                break;
            }
        }
        return true;
    }

    void check_unchanged(const char* direction) {
        if (!same_bits(bench_.input(), input_)) fail(direction, " changed its input");
        if (!same_bits(bench_.output(), output_)) fail(direction, " changed its output");
        for (std::size_t p = 0; p < parameters_.size(); ++p) {
            if (!same_bits(bench_.parameter(p), parameters_[p])) fail(direction, " changed ", name_of(p + 1));
        }
    }

    /// Every gradient began as NaN, so what is one still was not written, or was added to.
    bool check_written() {
        bool complete = true;
        LayerGradients from_zero;
        for (std::size_t t = 0; t < tensors(); ++t) {
            const Floats& gradient = gradient_of(gradients_, t);
            const auto bad = std::find_if(gradient.begin(), gradient.end(), [](float g) { return !std::isfinite(g); });
            if (bad == gradient.end()) continue;
            complete = false;
            if (t > 0 && from_zero.parameters.empty()) {
                static_cast<void>(bench_.forward(input_, parameters_));
                from_zero = bench_.backward(weighting_, {.before = 0.0F});
            }
            const std::size_t at = static_cast<std::size_t>(bad - gradient.begin());
            if (t > 0 && std::isfinite(gradient_of(from_zero, t)[at]) && gradient_of(from_zero, t)[at] != 0.0F) {
                fail("backward adds to the gradient of ", name_of(t), " where `accumulate` is not set and it is to overwrite");
            } else {
                fail("backward left element ", at, " of the gradient of ", name_of(t), " at ", *bad,
                     ": not written, or not a number");
            }
        }
        return complete;
    }

    /// Calls backward in all the ways that a network may.
    void check_calls() {
        expect_same({}, "backward gave another gradient of ", " the second time");
        expect_same({.input_gradient = false}, "without an input gradient to write, backward gives another gradient of ", "");
        if (!row_.traits.backward_reads_input) {
            expect_same({.without_input = true}, "the traits say that backward does not read the input, and without it the gradient of ",
                        " is another");
        }
        if (!row_.traits.backward_reads_output && activation_ == Activation::none) {
            expect_same({.without_output = true},
                        "the traits say that backward does not read the output, and without it the gradient of ", " is another");
        }
        LayerBench<D> first(row_, make_, activation_, options_, device_, false);
        static_cast<void>(first.forward(input_, parameters_));
        compare(first.backward(weighting_, {.input_gradient = false}), false,
                "made for a site whose input gradient nobody wants, backward gives another gradient of ", "");
        check_accumulate();
    }

    void expect_same(const BackwardCall& how, const char* before, const char* after) {
        static_cast<void>(bench_.forward(input_, parameters_));
        compare(bench_.backward(weighting_, how), how.input_gradient, before, after);
    }

    void compare(const LayerGradients& again, bool with_input, const char* before, const char* after) {
        for (std::size_t t = with_input ? 0 : 1; t < tensors(); ++t) {
            if (!same_bits(gradient_of(again, t), gradient_of(gradients_, t))) fail(before, name_of(t), after);
        }
    }

    void check_accumulate() {
        if (parameters_.empty()) return;
        constexpr float before = 0.5F;
        static_cast<void>(bench_.forward(input_, parameters_));
        const LayerGradients added = bench_.backward(weighting_, {.accumulate = true, .before = before});
        for (std::size_t t = 1; t < tensors(); ++t) {
            const Floats &alone = gradient_of(gradients_, t), &sum = gradient_of(added, t);
            double to_sum = 0, to_alone = 0, size = 0;
            for (std::size_t i = 0; i < alone.size(); ++i) {
                const auto expected = static_cast<double>(before) + static_cast<double>(alone[i]);
                to_sum += std::pow(static_cast<double>(sum[i]) - expected, 2);
                to_alone += std::pow(static_cast<double>(sum[i] - alone[i]), 2);
                size += std::pow(static_cast<double>(before), 2) + std::pow(static_cast<double>(alone[i]), 2);
            }
            constexpr double rounding = 1e-10;  // a relative 1e-5, squared
            if (to_sum <= rounding * size) continue;
            if (to_alone <= rounding * size) {
                fail("backward overwrites the gradient of ", name_of(t), " where `accumulate` asks it to add");
            } else {
                fail("backward does not add its gradient of ", name_of(t), " to what is there where `accumulate` is set");
            }
        }
    }

    // The figures.

    /// The tensors with number `tensor` moved to `values`, and the output there.
    Floats output_at(std::size_t tensor, const Floats& values) {
        if (tensor == 0) return bench_.forward(values, parameters_);
        std::vector<Floats> moved = parameters_;
        moved[tensor - 1] = values;
        return bench_.forward(input_, moved);
    }

    struct Difference {
        double slope = 0, noise = 0;
        /// The weighting, zero for outputs that the step takes over a kink.
        Floats weighting;
    };

    /// The change of the weighted outputs between the two ends of a step.
    Difference difference(std::size_t tensor, const Floats& low, const Floats& high) {
        const Floats below = output_at(tensor, low), above = output_at(tensor, high);
        Difference result{0, 0, weighting_};
        for (std::size_t i = 0; i < output_.size(); ++i) {
            const double y0 = output_[i], y1 = below[i], y2 = above[i];
            // Where the function is smooth, the second difference is smaller than the first by the step.
            constexpr double bend = 0.01, rounding = 4e-6;
            if (std::abs(y2 - 2 * y0 + y1) > bend * std::abs(y2 - y1) + rounding * std::abs(y0)) {
                result.weighting[i] = 0;
                continue;
            }
            constexpr double float_error = 1e-6;  // of a sum of some hundred products
            const auto weight = static_cast<double>(weighting_[i]);
            result.slope += weight * (y2 - y1);
            result.noise += std::pow(weight * y0 * float_error, 2);
        }
        result.noise = std::sqrt(result.noise);
        return result;
    }

    void check_figures() {
        const double tolerance = options_.tolerance > 0 ? options_.tolerance : 1e-3;
        for (std::size_t t = 0; t < tensors(); ++t) {
            const Floats& values = t == 0 ? input_ : parameters_[t - 1];
            const double step = (options_.step > 0 ? options_.step : 3e-3) * check_size(values);
            Slopes slopes;
            std::size_t left_out = 0;
            for (int k = 0; k < options_.directions; ++k) {
                const auto stream = first_direction + static_cast<std::uint32_t>(t) * 4096 + static_cast<std::uint32_t>(k);
                const Floats direction = check_normal(options_.seed, stream, static_cast<std::int64_t>(values.size()));
                Floats low = values, high = values;
                for (std::size_t i = 0; i < values.size(); ++i) {
                    low[i] -= static_cast<float>(step) * direction[i];
                    high[i] += static_cast<float>(step) * direction[i];
                }
                const Difference numeric = difference(t, low, high);
                left_out += static_cast<std::size_t>(std::count(numeric.weighting.begin(), numeric.weighting.end(), 0.0F));
                static_cast<void>(bench_.forward(input_, parameters_));
                const LayerGradients gradients = bench_.backward(numeric.weighting);
                const Floats& gradient = gradient_of(gradients, t);
                double analytic = 0;
                for (std::size_t i = 0; i < values.size(); ++i) {
                    analytic += static_cast<double>(gradient[i]) * (static_cast<double>(high[i]) - static_cast<double>(low[i]));
                }
                slopes.add(numeric.slope, analytic, numeric.noise);
            }
            result_.add({inside_ + (t == 0 ? "input" : name_of(t)), Slopes::two_digits(slopes.error())});
            if (2 * left_out > output_.size() * static_cast<std::size_t>(options_.directions)) {
                fail("most outputs change too abruptly with ", name_of(t), " for a derivative at a step of ", step);
            }
            if (!slopes.agree(tolerance)) {
                fail("the gradient of ", name_of(t), " ", slopes.diagnosis(tolerance), "; ", worst(t, step));
            }
        }
    }

    /// Moves one element after another to find the one that is most wrong.
    std::string worst(std::size_t tensor, double step) {
        constexpr std::size_t at_most = 200;
        const Floats& values = tensor == 0 ? input_ : parameters_[tensor - 1];
        const std::size_t stride = (values.size() + at_most - 1) / at_most;
        WorstElement element;
        for (std::size_t i = 0; i < values.size(); i += stride) {
            Floats low = values, high = values;
            low[i] -= static_cast<float>(step);
            high[i] += static_cast<float>(step);
            const Difference numeric = difference(tensor, low, high);
            static_cast<void>(bench_.forward(input_, parameters_));
            const LayerGradients gradients = bench_.backward(numeric.weighting);
            element.add(i, numeric.slope / (static_cast<double>(high[i]) - static_cast<double>(low[i])),
                        static_cast<double>(gradient_of(gradients, tensor)[i]));
        }
        return element.describe(tensor == 0 ? row_.input : row_.parameters.list[tensor - 1].shape, tensor == 0);
    }

    const Row& row_;
    StageMaker<D> make_;
    Activation activation_;
    GradientCheckOptions options_;
    typename D::Options device_;
    GradientCheck& result_;
    std::string inside_;
    LayerBench<D> bench_;
    Floats input_, weighting_, output_;
    std::vector<Floats> parameters_;
    LayerGradients gradients_;
};

/// Instantiated for each device, not for each layer.
template <class D>
[[nodiscard]] GradientCheck check_layer(const Row& row, StageMaker<D> make, const GradientCheckOptions& options,
                                        const typename D::Options& device) {
    require(options.batch >= 1, "a check of gradients takes a batch of at least 1 sample, not ", options.batch);
    require(options.directions >= 1, "a check of gradients takes at least 1 direction, not ", options.directions);
    GradientCheck result(text(row.type, " on ", to_string(row.input), ", batch ", options.batch, ", on ", D::name));
    if (row.traits.view) {
        if (row.output.size() != row.input.size()) {
            result.fail(text("the traits say that this is a view, and its output of ", to_string(row.output),
                             " has another size than its input of ", to_string(row.input)));
        }
        return result;  // nothing of it is ever run
    }
    LayerCheck<D>(row, make, Activation::none, options, device, result).run();
    if (row.traits.absorbs_relu) LayerCheck<D>(row, make, Activation::relu, options, device, result).run();
    return result;
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
