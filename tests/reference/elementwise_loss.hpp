// SPDX-License-Identifier: Apache-2.0
//
// Losses per element in double, as PyTorch's documentation of MSELoss, L1Loss, HuberLoss and BCEWithLogitsLoss defines them,
// with their derivatives.
#pragma once

#include "../standard.hpp"

namespace reference {

struct SquaredError {
    static double loss(double x, double t) { return (x - t) * (x - t); }
    static double derivative(double x, double t) { return 2 * (x - t); }
};

struct AbsoluteError {
    static double loss(double x, double t) { return std::abs(x - t); }
    static double derivative(double x, double t) { return x > t ? 1 : x < t ? -1 : 0; }
};

struct HuberError {
    double delta;

    [[nodiscard]] double loss(double x, double t) const {
        const double d = std::abs(x - t);
        return d <= delta ? d * d / 2 : delta * (d - delta / 2);
    }
    [[nodiscard]] double derivative(double x, double t) const { return std::clamp(x - t, -delta, delta); }
};

struct BinaryCrossEntropy {
    double positive_weight;

    /// -(p t log s + (1 - t) log(1 - s)) with s = 1 / (1 + exp(-x)), in a form in which neither logarithm is of 0.
    [[nodiscard]] double loss(double x, double t) const {
        return positive_weight * t * softplus(-x) + (1 - t) * softplus(x);
    }
    [[nodiscard]] double derivative(double x, double t) const {
        return (1 - t) / (1 + std::exp(-x)) - positive_weight * t / (1 + std::exp(x));
    }

private:
    static double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
};

}  // namespace reference
