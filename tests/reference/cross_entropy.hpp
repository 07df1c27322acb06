// SPDX-License-Identifier: Apache-2.0
//
// Cross-entropy with weights of classes, label smoothing, an ignored label and soft targets, by plain loops in double, as
// PyTorch's documentation of CrossEntropyLoss defines it. Rows are the positions of all samples.
#pragma once

#include "../standard.hpp"
#include "compare.hpp"

namespace reference {

struct CrossEntropy {
    std::size_t classes;
    double smoothing = 0;
    /// Empty: all 1.
    Doubles weights{};
    std::optional<std::int32_t> ignored{};

    [[nodiscard]] double weight_of(std::size_t c) const { return weights.empty() ? 1.0 : weights[c]; }
    [[nodiscard]] bool counts(std::int32_t label) const { return !ignored || label != *ignored; }

    /// weights[c] * q[c] of each class and row, where q is the smoothed target.
    [[nodiscard]] Doubles targets(std::span<const std::int32_t> labels) const {
        Doubles result(labels.size() * classes, 0.0);
        for (std::size_t n = 0; n < labels.size(); ++n) {
            if (!counts(labels[n])) continue;
            for (std::size_t c = 0; c < classes; ++c) {
                const double one = c == static_cast<std::size_t>(labels[n]) ? 1.0 : 0.0;
                result[n * classes + c] =
                    weight_of(c) * ((1 - smoothing) * one + smoothing / static_cast<double>(classes));
            }
        }
        return result;
    }
    [[nodiscard]] Doubles targets(std::span<const float> soft) const {
        Doubles result(soft.size());
        for (std::size_t i = 0; i < soft.size(); ++i) {
            const double q = (1 - smoothing) * static_cast<double>(soft[i]) + smoothing / static_cast<double>(classes);
            result[i] = weight_of(i % classes) * q;
        }
        return result;
    }

    /// The sum of the weights of the labels that count; the number of rows of soft targets.
    [[nodiscard]] double weight(std::span<const std::int32_t> labels) const {
        double sum = 0;
        for (const std::int32_t label : labels) sum += counts(label) ? weight_of(static_cast<std::size_t>(label)) : 0.0;
        return sum;
    }
    [[nodiscard]] double weight(std::span<const float> soft) const {
        return static_cast<double>(soft.size() / classes);
    }
    [[nodiscard]] std::int64_t predictions(std::span<const std::int32_t> labels) const {
        return std::ranges::count_if(labels, [&](std::int32_t label) { return counts(label); });
    }
    [[nodiscard]] std::int64_t predictions(std::span<const float> soft) const {
        return static_cast<std::int64_t>(soft.size() / classes);
    }
    [[nodiscard]] std::int64_t class_of(std::span<const std::int32_t> labels, std::size_t n) const {
        return counts(labels[n]) ? labels[n] : -1;
    }
    [[nodiscard]] std::int64_t class_of(std::span<const float> soft, std::size_t n) const {
        const auto row = soft.subspan(n * classes, classes);
        return std::max_element(row.begin(), row.end()) - row.begin();
    }

    template <class Target>
    [[nodiscard]] double loss_sum(std::span<const float> z, std::span<const Target> of_rows) const {
        const Doubles t = targets(of_rows), log_p = log_softmax(z);
        double sum = 0;
        for (std::size_t i = 0; i < z.size(); ++i) sum -= t[i] == 0 ? 0.0 : t[i] * log_p[i];
        return sum;
    }
    /// The gradient of the sum over the rows.
    template <class Target>
    [[nodiscard]] Doubles gradient(std::span<const float> z, std::span<const Target> of_rows) const {
        const Doubles t = targets(of_rows), log_p = log_softmax(z);
        Doubles result(z.size());
        for (std::size_t row = 0; row < z.size(); row += classes) {
            double total = 0;
            for (std::size_t c = 0; c < classes; ++c) total += t[row + c];
            for (std::size_t c = 0; c < classes; ++c) result[row + c] = total * std::exp(log_p[row + c]) - t[row + c];
        }
        return result;
    }
    template <class Target>
    [[nodiscard]] std::int64_t correct(std::span<const float> z, std::span<const Target> of_rows) const {
        std::int64_t count = 0;
        for (std::size_t n = 0; n < z.size() / classes; ++n) {
            const auto row = z.subspan(n * classes, classes);
            count += std::max_element(row.begin(), row.end()) - row.begin() == class_of(of_rows, n) ? 1 : 0;
        }
        return count;
    }

private:
    [[nodiscard]] Doubles log_softmax(std::span<const float> z) const {
        Doubles result(z.size());
        for (std::size_t row = 0; row < z.size(); row += classes) {
            const auto largest = static_cast<double>(*std::max_element(&z[row], &z[row] + classes));
            double total = 0;
            for (std::size_t c = 0; c < classes; ++c) total += std::exp(static_cast<double>(z[row + c]) - largest);
            for (std::size_t c = 0; c < classes; ++c)
                result[row + c] = static_cast<double>(z[row + c]) - largest - std::log(total);
        }
        return result;
    }
};

}  // namespace reference
