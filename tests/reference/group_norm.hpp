// SPDX-License-Identifier: Apache-2.0
//
// Normalisation of groups of channels within a sample, by plain loops in double; see compare.hpp.
#pragma once

#include "compare.hpp"

namespace reference {

struct GroupNormGradients {
    Doubles input, weight, bias;
    /// The sums of the magnitudes of the terms of a weight's or bias's gradient.
    Doubles weight_terms, bias_terms;
};

struct GroupNorm {
    std::int64_t positions, channels, groups;
    double epsilon;
    bool centred;

    /// Calls f(elements) for each group, with the indices of its elements.
    template <class Function>
    void for_each_group(std::size_t size, const Function& f) const {
        const std::int64_t samples = static_cast<std::int64_t>(size) / (positions * channels);
        for (std::int64_t n = 0; n < samples; ++n) {
            for (std::int64_t g = 0; g < groups; ++g) {
                std::vector<std::size_t> elements;
                for (std::int64_t p = 0; p < positions; ++p) {
                    for (std::int64_t c = 0; c < channels; ++c) {
                        if (c / (channels / groups) == g)
                            elements.push_back(static_cast<std::size_t>((n * positions + p) * channels + c));
                    }
                }
                f(elements);
            }
        }
    }

    [[nodiscard]] std::size_t channel(std::size_t element) const {
        return element % static_cast<std::size_t>(channels);
    }

    /// The normalised values, and 1 / the deviation of each.
    [[nodiscard]] std::pair<Doubles, Doubles> normalized(std::span<const float> x) const {
        Doubles h(x.size()), factor(x.size());
        for_each_group(x.size(), [&](const std::vector<std::size_t>& elements) {
            const auto size = static_cast<double>(elements.size());
            double mean = 0, variance = 0;
            for (const std::size_t i : elements) mean += centred ? static_cast<double>(x[i]) / size : 0.0;
            for (const std::size_t i : elements) variance += std::pow(static_cast<double>(x[i]) - mean, 2) / size;
            for (const std::size_t i : elements) {
                factor[i] = 1 / std::sqrt(variance + epsilon);
                h[i] = (static_cast<double>(x[i]) - mean) * factor[i];
            }
        });
        return {h, factor};
    }

    [[nodiscard]] Doubles forward(std::span<const float> x, std::span<const float> weight,
                                  std::span<const float> bias) const {
        Doubles y = normalized(x).first;
        for (std::size_t i = 0; i < y.size(); ++i)
            y[i] = y[i] * static_cast<double>(weight[channel(i)]) + static_cast<double>(bias[channel(i)]);
        return y;
    }

    [[nodiscard]] GroupNormGradients gradients(std::span<const float> x, std::span<const float> dy,
                                               std::span<const float> weight) const {
        const std::pair<Doubles, Doubles> of_x = normalized(x);
        const Doubles &h = of_x.first, &factor = of_x.second;
        const Doubles zeros(static_cast<std::size_t>(channels));
        GroupNormGradients result{Doubles(x.size()), zeros, zeros, zeros, zeros};
        const auto g = [&](std::size_t i) {
            return static_cast<double>(dy[i]) * static_cast<double>(weight[channel(i)]);
        };
        for_each_group(x.size(), [&](const std::vector<std::size_t>& elements) {
            const auto size = static_cast<double>(elements.size());
            double mean = 0, along = 0;
            for (const std::size_t i : elements) {
                if (centred) mean += g(i) / size;
                along += g(i) * h[i] / size;
            }
            for (const std::size_t i : elements) result.input[i] = factor[i] * (g(i) - mean - h[i] * along);
        });
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double of_bias = static_cast<double>(dy[i]), of_weight = of_bias * h[i];
            result.bias[channel(i)] += of_bias;
            result.weight[channel(i)] += of_weight;
            result.bias_terms[channel(i)] += std::abs(of_bias);
            result.weight_terms[channel(i)] += std::abs(of_weight);
        }
        return result;
    }
};

}  // namespace reference
