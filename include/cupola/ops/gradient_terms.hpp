// SPDX-License-Identifier: Apache-2.0
//
// The gradient that every optimiser's formula receives:
//
//   g = clamp((gradient + l2 * w) * scale, -clip, clip) + weight_decay * w
//
// The first two terms are the loss's gradient, to which clipping applies (as PyTorch's clip_grad_norm_ and
// clip_grad_value_ between backward and step); the last is the optimiser's coupled decay, to which clipping does not
// apply.
#pragma once

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct GradientTerms {
    /// The gradient of the loss's regulariser is l2 * w.
    float l2 = 0;
    float scale = 1;
    /// The largest magnitude; 0 for none.
    float clip = 0;
    float weight_decay = 0;
    /// A factor of the scale that is on the device, and is known only when the kernels run; null for none, as on
    /// `Host`.
    const float* scale_on_device = nullptr;
};

/// `GradientTerms` prepared for a loop: plain members that the compiler keeps in registers.
class GradientAt {
public:
    CUPOLA_HOST_DEVICE constexpr explicit GradientAt(const GradientTerms& terms)
        : l2_(terms.l2),
          scale_(terms.scale_on_device != nullptr ? terms.scale * *terms.scale_on_device : terms.scale),
          limit_(terms.clip > 0 ? terms.clip : unlimited),
          weight_decay_(terms.weight_decay) {}

    /// A NaN is kept.
    [[nodiscard]] CUPOLA_HOST_DEVICE constexpr float operator()(float gradient, float w) const {
        const float scaled = (gradient + l2_ * w) * scale_;
        const float upper = scaled > limit_ ? limit_ : scaled;
        return (upper < -limit_ ? -limit_ : upper) + weight_decay_ * w;
    }

private:
    static constexpr float unlimited = __builtin_huge_valf();
    float l2_, scale_, limit_, weight_decay_;
};

/// For a formula that squares a gradient: limits the magnitude to 1e19. The square of a larger one overflows float, and
/// an infinite sum or mean of squares makes all following steps NaN.
struct SquareLimit {
    /// A run-time value and not a compile-time constant: the compiler would compute the square of a constant separately
    /// and round the other squares differently.
    float limit = 1e19F;

    /// A NaN is kept.
    [[nodiscard]] CUPOLA_HOST_DEVICE constexpr float operator()(float g) const {
        const float upper = g > limit ? limit : g;
        return upper < -limit ? -limit : upper;
    }
};

/// GradientAt where a regulariser's term is the only one: fewer operations.
class RegularizedGradientAt {
public:
    CUPOLA_HOST_DEVICE constexpr explicit RegularizedGradientAt(const GradientTerms& terms) : l2_(terms.l2) {}
    /// Whether the regulariser's term is the only one.
    [[nodiscard]] static constexpr bool suffices(const GradientTerms& terms) {
        return terms.scale == 1.0F && terms.scale_on_device == nullptr && terms.clip == 0.0F &&
               terms.weight_decay == 0.0F;
    }

    [[nodiscard]] CUPOLA_HOST_DEVICE constexpr float operator()(float gradient, float w) const {
        return gradient + l2_ * w;
    }

private:
    float l2_;
};

/// The unchanged gradient, without any term.
class UnchangedGradient {
public:
    CUPOLA_HOST_DEVICE constexpr explicit UnchangedGradient(const GradientTerms&) {}
    [[nodiscard]] CUPOLA_HOST_DEVICE constexpr float operator()(float gradient, float) const { return gradient; }
};

namespace impl {

/// The formula of the moving averages of parameters (optim/moving_average.hpp): `w` is in the place of the gradient. A
/// device may compute it in the kernel that updates the parameters.
struct MovingAverageFormula {
    using Gradient = UnchangedGradient;
    /// 1 - decay, rounded once.
    float rate;

    CUPOLA_HOST_DEVICE void operator()(float& average, float w) const { average -= rate * (average - w); }
};

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
