// SPDX-License-Identifier: Apache-2.0
//
// Local response normalisation over channels (Krizhevsky, Sutskever, Hinton 2012), with TensorFlow's parameters:
//
//   s[c] = sum of x[c']^2 over c' in [c - radius, c + radius], inside the channels
//   y[c] = x[c] / (bias + alpha * s[c])^beta
//
// `alpha` multiplies each square; cuDNN, oneDNN and PyTorch divide theirs by the window's size.
#pragma once

#include <cmath>
#include <cstdint>

#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct LocalResponseNormShape {
    std::int64_t channels = 0;
    std::int64_t radius = 0;
    float bias = 1.0F, alpha = 1.0F, beta = 0.5F;
};

namespace impl {

/// The factor that normalises an element, computed from the sum of the squares in its window.
struct NormFormula {
    NormFormula() = default;
    explicit NormFormula(const LocalResponseNormShape& shape)
        : bias(shape.bias),
          alpha(shape.alpha),
          beta(shape.beta),
          factor(2.0F * shape.alpha * shape.beta),
          three_quarters(shape.beta == 0.75F) {}

    float bias = 1, alpha = 0, beta = 0, factor = 0;
    bool three_quarters = false;

    /// s^(-1/4) to a float's precision. On the host it is computed by three Newton steps from an initial guess in the
    /// exponent, which are vector instructions on every processor; std::sqrt may set errno and is not vectorised.
    [[nodiscard]] CUPOLA_HOST_DEVICE static float inverse_fourth_root(float s) {
#ifdef __CUDA_ARCH__
        return rsqrtf(s * rsqrtf(s));
#else
        constexpr std::uint32_t guess = 0x4F58CAE3;  // 5/4 of the bits of 1, less a shift that minimises the error
        float r = __builtin_bit_cast(float, guess - (__builtin_bit_cast(std::uint32_t, s) >> 2));
        for (int step = 0; step < 3; ++step) {
            const float square = r * r;
            r *= 1.25F - 0.25F * s * (square * square);
        }
        return r;
#endif
    }
    /// scale^-beta with scale = bias + alpha * squares, and scale^(-beta - 1) in `next`, with separate code for beta =
    /// 3/4.
    [[nodiscard]] CUPOLA_HOST_DEVICE float power_by_root(float squares, float& next) const {
        const float r = inverse_fourth_root(bias + alpha * squares), square = r * r, result = square * r;
        next = result * (square * square);
        return result;
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE float any_power(float squares, float& next) const {
        const float scale = bias + alpha * squares, result = std::pow(scale, -beta);
        next = result / scale;
        return result;
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE float power(float squares, float& next) const {
        return three_quarters ? power_by_root(squares, next) : any_power(squares, next);
    }
    /// The gradient of an input: dx[c] = dy[c] scale[c]^-beta - 2 alpha beta x[c] around, where `around` is the sum
    /// over the window of dy[c'] x[c'] scale[c']^(-beta - 1). With `mask`, it is 0 where x is not positive: the
    /// gradient of a preceding ReLU.
    [[nodiscard]] CUPOLA_HOST_DEVICE float gradient(float x, float dy, float power, float around, bool mask) const {
        const float d = dy * power - factor * x * around;
        return !mask || x > 0.0F ? d : 0.0F;
    }
};

}  // namespace impl

namespace ops {

/// Made as `LocalResponseNorm(build, shape)`; specialised by each backend.
template <class Device, class T>
class LocalResponseNorm;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
