// SPDX-License-Identifier: Apache-2.0
//
// Softmax and cross-entropy with label smoothing, by plain loops in double.
#pragma once

#include "../standard.hpp"
#include "compare.hpp"

namespace reference {

struct SoftmaxCrossEntropy {
    std::size_t classes;
    double smoothing;

    [[nodiscard]] Doubles log_softmax(std::span<const float> z) const {
        Doubles result(z.size());
        for (std::size_t row = 0; row < z.size(); row += classes) {
            double largest = static_cast<double>(z[row]), total = 0;
            for (std::size_t c = 0; c < classes; ++c) largest = std::max(largest, static_cast<double>(z[row + c]));
            for (std::size_t c = 0; c < classes; ++c) total += std::exp(static_cast<double>(z[row + c]) - largest);
            for (std::size_t c = 0; c < classes; ++c)
                result[row + c] = static_cast<double>(z[row + c]) - largest - std::log(total);
        }
        return result;
    }

    [[nodiscard]] double target(std::size_t c, std::int32_t label) const {
        return smoothing / static_cast<double>(classes) +
               (c == static_cast<std::size_t>(label) ? 1.0 - smoothing : 0.0);
    }

    [[nodiscard]] double loss_sum(std::span<const float> z, std::span<const std::int32_t> labels) const {
        const Doubles log_p = log_softmax(z);
        double sum = 0;
        for (std::size_t i = 0; i < z.size(); ++i) sum -= target(i % classes, labels[i / classes]) * log_p[i];
        return sum;
    }

    [[nodiscard]] Doubles gradient(std::span<const float> z, std::span<const std::int32_t> labels) const {
        Doubles result = log_softmax(z);
        for (std::size_t i = 0; i < z.size(); ++i) {
            result[i] =
                (std::exp(result[i]) - target(i % classes, labels[i / classes])) / static_cast<double>(labels.size());
        }
        return result;
    }

    /// Samples whose label's class is the first of the largest logits.
    [[nodiscard]] std::int64_t correct(std::span<const float> z, std::span<const std::int32_t> labels) const {
        std::int64_t count = 0;
        for (std::size_t n = 0; n < labels.size(); ++n) {
            const auto row = z.subspan(n * classes, classes);
            const auto top = std::max_element(row.begin(), row.end()) - row.begin();
            count += top == labels[n] ? 1 : 0;
        }
        return count;
    }
};

}  // namespace reference
