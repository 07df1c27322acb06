// SPDX-License-Identifier: Apache-2.0
//
// Checks of the rules of the contract for one layer. See net/check_gradients.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include <cupola/core/finite.hpp>
#include <cupola/net/impl/layer_case.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D>
class LayerContract {
public:
    explicit LayerContract(LayerCase<D>& c) : c_(c) {}

    /// Writes each broken rule to the case's result; returns false where the gradients' errors would be meaningless.
    bool run() {
        c_.output = c_.bench.forward(c_.input, c_.parameters);
        if (!check_forward()) return false;
        gradients_ = c_.bench.backward(c_.weighting);
        check_unchanged("backward");
        if (!check_written()) return false;
        check_calls();
        return true;
    }

private:
    bool check_forward() {
        for (std::size_t i = 0; i < c_.output.size(); ++i) {
            if (is_finite(c_.output[i])) continue;
            c_.fail("forward left element ", i, " of the output at ", c_.output[i], ": not written, or not a number");
            return false;
        }
        check_unchanged("forward");
        if (!same_bits(c_.bench.forward(c_.input, c_.parameters), c_.output)) {
            c_.fail("forward gave a different output the second time, from the same input and the same random numbers");
            return false;
        }
        if (c_.activation != Activation::none && !check_inside_activation()) return false;
        const Activation own = c_.layer.kind_parts.activation;
        if (own == Activation::none) return true;
        for (std::size_t i = 0; i < c_.output.size(); ++i) {
            if (c_.output[i] == applied(own, c_.input[i])) continue;
            c_.fail("its kind is a ", to_string(own), ", but its output for ", c_.input[i], " is ", c_.output[i]);
            break;
        }
        return true;
    }

    template <class Number>
    [[nodiscard]] static Number applied(Activation activation, Number x) {
        return activation == Activation::relu6 ? std::clamp(x, Number(0), Number(6)) : std::max(x, Number(0));
    }

    /// With a fused activation, the output is that of the activation for the output without it.
    bool check_inside_activation() {
        LayerBench<D> without(c_.layer, c_.make, {}, c_.options, c_.device);
        const Floats plain = without.forward(c_.input, c_.parameters);
        const double close = 1e-5 * check_size(plain);
        for (std::size_t i = 0; i < plain.size(); ++i) {
            const double expected = applied(c_.activation, static_cast<double>(plain[i]));
            if (std::abs(static_cast<double>(c_.output[i]) - expected) <= close) continue;
            c_.fail("element ", i, " of the output is ", c_.output[i], ", and without it ", plain[i]);
            return false;
        }
        return true;
    }

    void check_unchanged(const char* direction) {
        if (!same_bits(c_.bench.input(), c_.input)) c_.fail(direction, " changed its input");
        if (!same_bits(c_.bench.output(), c_.output)) c_.fail(direction, " changed its output");
        for (std::size_t p = 0; p < c_.parameters.size(); ++p) {
            if (!same_bits(c_.bench.parameter(p), c_.parameters[p])) c_.fail(direction, " changed ", c_.name_of(p + 1));
        }
    }

    /// Every gradient is initially NaN, so an element that is still NaN was not written, or was added to.
    bool check_written() {
        bool complete = true;
        LayerGradients from_zero;
        for (std::size_t t = c_.first_tensor(); t < c_.tensors(); ++t) {
            const Floats& gradient = c_.gradient_of(gradients_, t);
            const auto bad = std::find_if(gradient.begin(), gradient.end(), [](float g) { return !is_finite(g); });
            if (bad == gradient.end()) continue;
            complete = false;
            if (t > 0 && from_zero.parameters.empty()) {
                from_zero = c_.gradients(c_.weighting, {.before = 0.0F});
            }
            const std::size_t at = static_cast<std::size_t>(bad - gradient.begin());
            if (t > 0 && is_finite(c_.gradient_of(from_zero, t)[at]) && c_.gradient_of(from_zero, t)[at] != 0.0F) {
                c_.fail("backward adds to the gradient of ", c_.name_of(t),
                        " where `accumulate` is not set and it is to overwrite");
            } else {
                c_.fail("backward left element ", at, " of the gradient of ", c_.name_of(t), " at ", *bad,
                        ": not written, or not a number");
            }
        }
        return complete;
    }

    /// Calls backward in every combination that a network may use.
    void check_calls() {
        expect_same({}, "backward gave a different gradient of ", " the second time");
        expect_same({.input_gradient = false},
                    "without an input gradient to write, backward gives a different gradient of ", "");
        if (!c_.layer.traits.backward_reads_input) {
            expect_same({.without_input = true},
                        "the traits say that backward does not read the input, and without it the gradient of ",
                        " differs");
        }
        if (!c_.layer.traits.backward_reads_output && c_.activation == Activation::none) {
            expect_same({.without_output = true},
                        "the traits say that backward does not read the output, and without it the gradient of ",
                        " differs");
        }
        if (c_.layer.traits.input_gradient_in_place) check_in_place();
        LayerBench<D> first(c_.layer, c_.make, {.activation = c_.activation, .input_gradient = false}, c_.options,
                            c_.device);
        static_cast<void>(first.forward(c_.input, c_.parameters));
        compare(first.backward(c_.weighting, {.input_gradient = false}), false,
                "made for a build context without an input gradient, backward gives a different gradient of ", "");
        if (c_.layer.traits.can_omit_parameter_gradients) check_frozen();
        if (c_.activation == Activation::relu) check_relu_mask_by_next();
        if (c_.layer.traits.can_apply_relu_mask) check_relu_mask_of_previous();
        check_accumulate();
    }

    void expect_same(const BackwardCall& how, const char* before, const char* after) {
        compare(c_.gradients(c_.weighting, how), how.input_gradient, before, after);
    }

    void compare(const LayerGradients& again, bool with_input, const char* before, const char* after) {
        for (std::size_t t = with_input ? c_.first_tensor() : 1; t < c_.tensors(); ++t) {
            if (!same_bits(c_.gradient_of(again, t), c_.gradient_of(gradients_, t)))
                c_.fail(before, c_.name_of(t), after);
        }
    }

    void check_in_place() {
        if (c_.layer.input != c_.layer.output) {
            c_.fail(
                "the traits say that its input gradient can take the place of that of its output, which has the "
                "extents ",
                to_string(c_.layer.output));
            return;
        }
        expect_same({.in_place = true},
                    "written over the gradient of its output, as the traits allow, the gradient of ", " differs");
    }

    /// A frozen layer has the same input gradient.
    void check_frozen() {
        LayerBench<D> frozen(c_.layer, c_.make, {.activation = c_.activation, .parameter_gradients = false}, c_.options,
                             c_.device);
        static_cast<void>(frozen.forward(c_.input, c_.parameters));
        const LayerGradients gradients = frozen.backward(
            c_.weighting,
            {.parameter_gradients = false,
             .without_input = c_.layer.traits.backward_reads_input && c_.layer.traits.reads_input_for_parameters});
        if (same_bits(gradients.input, gradients_.input)) return;
        c_.fail("the traits say that it can omit the gradients of its parameters, but then its input gradient differs");
    }

    /// Where the layer after it has applied ReLU's mask to the gradient, backward neither applies it again nor reads
    /// the output.
    void check_relu_mask_by_next() {
        LayerBench<D> masked(c_.layer, c_.make, {.activation = Activation::relu, .relu_mask_applied_by_next = true},
                             c_.options, c_.device);
        static_cast<void>(masked.forward(c_.input, c_.parameters));
        compare(
            masked.backward(mask(c_.weighting, c_.output), {.without_output = !c_.layer.traits.backward_reads_output}),
            true, "with the mask applied by the layer after it, backward gives a different gradient of ", "");
    }

    /// After a ReLU, the input gradient is zero where the input is zero, and elsewhere equal to that without the ReLU.
    void check_relu_mask_of_previous() {
        Floats positive = c_.input;
        for (float& x : positive) x = std::max(x, 0.0F);
        static_cast<void>(c_.bench.forward(positive, c_.parameters));
        const Floats plain = c_.bench.backward(c_.weighting).input;
        LayerBench<D> masking(c_.layer, c_.make, {.applies_relu_mask_of_previous = true}, c_.options, c_.device);
        static_cast<void>(masking.forward(positive, c_.parameters));
        if (same_bits(masking.backward(c_.weighting).input, mask(plain, positive))) return;
        c_.fail("the traits say that it applies the mask of a ReLU before it, but its input gradient is not masked");
    }

    /// `gradient` where `output` is positive, else 0.
    [[nodiscard]] static Floats mask(Floats gradient, const Floats& output) {
        for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = output[i] > 0 ? gradient[i] : 0.0F;
        return gradient;
    }

    void check_accumulate() {
        if (c_.parameters.empty()) return;
        constexpr float before = 0.5F;
        const LayerGradients added = c_.gradients(c_.weighting, {.accumulate = true, .before = before});
        for (std::size_t t = 1; t < c_.tensors(); ++t) {
            const Floats &alone = c_.gradient_of(gradients_, t), &sum = c_.gradient_of(added, t);
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
                c_.fail("backward overwrites the gradient of ", c_.name_of(t), " where `accumulate` asks it to add");
            } else {
                c_.fail("backward does not add its gradient of ", c_.name_of(t),
                        " to what is there where `accumulate` is set");
            }
        }
    }

    LayerCase<D>& c_;
    LayerGradients gradients_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
