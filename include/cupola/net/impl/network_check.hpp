// SPDX-License-Identifier: Apache-2.0
//
// The checks of a whole network with its loss. See net/check_gradients.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/net/impl/checked_losses.hpp>
#include <cupola/net/impl/directional_derivatives.hpp>
#include <cupola/net/impl/network_bench.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// One tensor of a network: a parameter, or the input.
struct CheckedTensor {
    std::string name;
    Shape shape;
    std::size_t offset = 0, size = 0;
    bool input = false;
};

template <class D>
class NetworkCheck {
public:
    NetworkCheck(NetworkBench<D>& bench, std::span<const LayerInfo> layers, std::vector<CheckedDecay> decays,
                 const GradientCheckOptions& options, GradientCheck& result)
        : bench_(bench), decays_(std::move(decays)), options_(options), result_(result) {
        const Shape& input = layers[0].input;
        const ElementType type = layers[0].column_type;
        samples_ = check_input(type, layers[0].ids, options.seed, 0, options.batch * input.size());
        differentiable_ = type == ElementType::float32;
        parameters_.assign(static_cast<std::size_t>(arena_elements(layers)), 0.0F);
        if (differentiable_) tensors_.push_back({"the input", input, 0, samples_.size(), true});
        std::uint32_t number = 0;
        for (std::size_t i = 0; i < layers.size(); ++i) {
            for (std::size_t p = 0; p < layers[i].parameters.count; ++p) {
                const Parameter& parameter = layers[i].parameters.list[p];
                const std::span values = std::span(parameters_)
                                             .subspan(static_cast<std::size_t>(layers[i].offsets[p]),
                                                      static_cast<std::size_t>(parameter.shape.size()));
                initialize(values, parameter.initializer, parameter.fan_in, parameter.fan_out, options.seed, number++);
                if (layers[i].frozen[p]) continue;
                tensors_.push_back({parameter_name(layers, i, p), parameter.shape,
                                    static_cast<std::size_t>(layers[i].offsets[p]),
                                    static_cast<std::size_t>(parameter.shape.size()), false});
            }
        }
    }

    /// Checks that `other`, a plan without an input gradient, gives the same gradients; then checks the gradients
    /// themselves.
    void run(NetworkBench<D>& other) {
        const double loss = bench_.forward(samples_, parameters_);
        if (!is_finite(loss)) return result_.fail(text("the loss of random samples is ", loss));
        gradients_ = bench_.backward();
        if (!bench_.unchanged(samples_, parameters_)) result_.fail("a step changed its samples or the parameters");
        const bool repeats = bench_.forward(samples_, parameters_) == loss;
        const LayerGradients again = bench_.backward();
        if (!repeats || !same(again, true))
            result_.fail("the same step gave a different loss or gradient the second time");
        static_cast<void>(other.forward(samples_, parameters_));
        if (!same(other.backward(), false)) {
            result_.fail("without the gradient of the input, a step gives other gradients of the parameters");
        }
        check_accumulate();
        noise_ = rounding_noise(loss);
        for (const CheckedTensor& tensor : tensors_) check(tensor);
        if (!bench_.intact() || !other.intact()) result_.fail("values were written outside the memory of the plan");
    }

private:
    [[nodiscard]] Floats part(const LayerGradients& gradients, const CheckedTensor& tensor) const {
        const Floats& whole = tensor.input ? gradients.input : gradients.parameters[0];
        const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(tensor.offset);
        return {begin, begin + static_cast<std::ptrdiff_t>(tensor.size)};
    }

    [[nodiscard]] bool same(const LayerGradients& other, bool with_input) const {
        return std::all_of(tensors_.begin(), tensors_.end(), [&](const CheckedTensor& tensor) {
            return (tensor.input && !with_input) || same_bits(part(other, tensor), part(gradients_, tensor));
        });
    }

    void check_accumulate() {
        constexpr float before = 0.5F;
        static_cast<void>(bench_.forward(samples_, parameters_));
        const LayerGradients added = bench_.backward(true, before);
        for (const CheckedTensor& tensor : tensors_) {
            if (tensor.input) continue;
            const Floats alone = part(gradients_, tensor), sum = part(added, tensor);
            double off = 0, size = 0;
            for (std::size_t i = 0; i < alone.size(); ++i) {
                off += std::pow(
                    static_cast<double>(sum[i]) - (static_cast<double>(before) + static_cast<double>(alone[i])), 2);
                size += std::pow(static_cast<double>(before), 2) + std::pow(static_cast<double>(alone[i]), 2);
            }
            constexpr double rounding = 1e-10;  // a relative 1e-5, squared
            if (off <= rounding * size) continue;
            result_.fail(
                text("the gradient of ", tensor.name, " is not added to what is there where `accumulate` is set"));
        }
    }

    /// The loss with `tensor` at `values`, regularisers included.
    double loss_at(const CheckedTensor& tensor, const Floats& values) {
        Floats moved = tensor.input ? samples_ : parameters_;
        std::copy(values.begin(), values.end(), moved.begin() + static_cast<std::ptrdiff_t>(tensor.offset));
        double loss = tensor.input ? bench_.forward(moved, parameters_) : bench_.forward(samples_, moved);
        for (const CheckedDecay& decay : decays_) {
            if (tensor.input || static_cast<std::size_t>(decay.offset) != tensor.offset) continue;
            for (const float w : values)
                loss += 0.5 * decay.coefficient * static_cast<double>(w) * static_cast<double>(w);
        }
        return loss;
    }

    /// The gradient of the loss, regularisers included.
    [[nodiscard]] std::vector<double> gradient_of(const CheckedTensor& tensor, const Floats& values) const {
        const Floats data = part(gradients_, tensor);
        std::vector<double> gradient(data.begin(), data.end());
        for (const CheckedDecay& decay : decays_) {
            if (tensor.input || static_cast<std::size_t>(decay.offset) != tensor.offset) continue;
            for (std::size_t i = 0; i < gradient.size(); ++i)
                gradient[i] += decay.coefficient * static_cast<double>(values[i]);
        }
        return gradient;
    }

    /// The effect of float rounding on the loss: the largest change of the loss when all values change by about one
    /// last bit.
    double rounding_noise(double loss) {
        double largest = 1e-9 * (1 + std::abs(loss));
        for (std::uint32_t k = 0; k < 4; ++k) {
            constexpr float last_bit = 1e-7F;
            const auto perturbed = [&](Floats values, std::uint32_t stream) {
                const Floats random = check_normal(options_.seed, stream, static_cast<std::int64_t>(values.size()));
                for (std::size_t i = 0; i < values.size(); ++i) values[i] += last_bit * values[i] * random[i];
                return values;
            };
            const double other = bench_.forward(differentiable_ ? perturbed(samples_, 1 + 2 * k) : samples_,
                                                perturbed(parameters_, 2 + 2 * k));
            largest = std::max(largest, std::abs(other - loss));
        }
        return largest;
    }

    struct Measured {
        DirectionalDerivatives along, across;
    };

    /// Half of the directions follow the gradient, each element multiplied by a random factor: they reliably detect a
    /// wrong scale or sign, whatever the number of elements. The other directions are random: they detect missing
    /// terms. Along the random directions the loss changes little and kinks that a step crosses have more effect, so
    /// their tolerance is larger and relative to the gradient's norm.
    Measured measure(const CheckedTensor& tensor, const Floats& values, const std::vector<double>& gradient,
                     double norm, double step) {
        const auto first_stream = 64 + static_cast<std::uint32_t>(&tensor - tensors_.data()) * 4096;
        Measured measured;
        for (int k = 0; k < options_.directions; ++k) {
            const bool follow = k % 2 == 0 && norm > 0;
            Floats direction = check_normal(options_.seed, first_stream + static_cast<std::uint32_t>(k),
                                            static_cast<std::int64_t>(tensor.size));
            for (std::size_t i = 0; follow && i < direction.size(); ++i) {
                direction[i] = static_cast<float>(gradient[i]) * std::abs(direction[i]);
            }
            double length = step / check_size(direction);
            if (follow) {
                // The step is limited so that it changes the loss only slightly.
                double derivative = 0;
                for (std::size_t i = 0; i < direction.size(); ++i) {
                    derivative += gradient[i] * static_cast<double>(direction[i]);
                }
                constexpr double little = 3e-4;
                length = std::min(length, little / std::max(std::abs(derivative), 1e-30));
            }
            Floats low = values, high = values;
            double analytic = 0;
            for (std::size_t i = 0; i < values.size(); ++i) {
                const auto move = static_cast<float>(length * static_cast<double>(direction[i]));
                low[i] -= move;
                high[i] += move;
                analytic += gradient[i] * (static_cast<double>(high[i]) - static_cast<double>(low[i]));
            }
            const double numeric = loss_at(tensor, high) - loss_at(tensor, low);
            if (follow || norm == 0) {
                measured.along.add(numeric, analytic, noise_);
            } else {
                measured.across.add(numeric, analytic, noise_ + looser * tolerance() * norm * 2 * length);
            }
        }
        return measured;
    }

    void check(const CheckedTensor& tensor) {
        const Floats& whole = tensor.input ? samples_ : parameters_;
        const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(tensor.offset);
        const Floats values(begin, begin + static_cast<std::ptrdiff_t>(tensor.size));
        const std::vector<double> gradient = gradient_of(tensor, values);
        const double norm = std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));

        // The step is the specified one, or up to ten times longer where the change would otherwise be lost in
        // rounding. Where a step crosses a kink, part of it may agree; a wrong gradient agrees with none.
        constexpr double clear = 50;
        const double named = (options_.step > 0 ? options_.step : 1e-4) * check_size(values);
        const double step = std::clamp(clear * noise_ / (2 * norm), named, 10 * named);
        const auto agrees = [&](const Measured& m) {
            return m.along.agree(tolerance()) && m.across.agree(looser * tolerance());
        };
        Measured measured = measure(tensor, values, gradient, norm, step);
        TriedSteps tried(step);
        for (const double fraction : TriedSteps::fractions) {
            if (agrees(measured) || norm == 0) break;
            tried.add(fraction * step);
            const Measured shorter = measure(tensor, values, gradient, norm, fraction * step);
            if (agrees(shorter) && shorter.along.clear(5 * tolerance())) measured = shorter;
        }
        result_.add({tensor.input ? "input" : tensor.name, DirectionalDerivatives::two_digits(measured.along.error())});
        if (!measured.along.agree(tolerance())) {
            result_.fail(
                text("the gradient of ", tensor.name, " ", measured.along.diagnosis(tolerance()), tried.description()));
        } else if (!measured.across.agree(looser * tolerance())) {
            result_.fail(text(
                "the gradient of ", tensor.name,
                " is not the whole derivative: it is correct along itself, but along random directions it is off by ",
                DirectionalDerivatives::two_digits(measured.across.error()), " of the derivative",
                tried.description()));
        }
    }

    [[nodiscard]] double tolerance() const { return options_.tolerance > 0 ? options_.tolerance : 1e-2; }
    /// The factor of the tolerance for random directions.
    static constexpr double looser = 10;

    NetworkBench<D>& bench_;
    std::vector<CheckedDecay> decays_;
    GradientCheckOptions options_;
    GradientCheck& result_;
    Floats samples_, parameters_;
    LayerGradients gradients_;
    std::vector<CheckedTensor> tensors_;
    /// Whether the input is of floats: ids and bytes have no gradient.
    bool differentiable_ = true;
    double noise_ = 0;
};

template <class Net, class D, class Loss>
[[nodiscard]] GradientCheck check_network(std::string_view name, const Loss& loss, const GradientCheckOptions& options,
                                          const typename D::Options& device) {
    require(options.batch >= 1, "a check of gradients needs a batch of at least 1 sample, not ", options.batch);
    require(options.directions >= 2, "a check of a network's gradients needs at least 2 directions, not ",
            options.directions);
    GradientCheck result(text(name, " on ", to_string(Net::input_shape), ", batch ", options.batch, ", on ", D::name));
    const auto losses = [&](typename D::Context& context) {
        return checked_losses<D>(data_loss(loss), Net::outputs, options, context);
    };
    const auto make = &Plan<D>::template make<Net>;
    const bool of_input = Net::layers.front().column_type == ElementType::float32;
    NetworkBench<D> bench(make, Net::layers, losses, {.batch = options.batch, .input_gradient = of_input}, options,
                          device);
    NetworkBench<D> without(make, Net::layers, losses, {.batch = options.batch}, options, device);
    NetworkCheck(bench, Net::layers, decays_of<Loss>(Net::layers), options, result).run(without);
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
