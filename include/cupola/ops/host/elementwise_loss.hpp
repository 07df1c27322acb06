// SPDX-License-Identifier: Apache-2.0
//
// Losses of a formula per element on `Host`: blocks of elements, each one vectorised loop, whose sums are added in the
// order of the blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <cupola/core/finite.hpp>
#include <cupola/device/host.hpp>
#include <cupola/ops/elementwise_loss.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The sum of the losses of `count` elements; NaN if a target is invalid. `weights` are the third argument of the
/// formula, if it has one. A separate function: in a loop with a sum, g++ reloads a lambda's captures in each
/// iteration. Everything is inlined, however long a formula is.
template <bool with_gradient, class Formula, class... Weights>
[[gnu::noinline, gnu::flatten]] double loss_of_elements(const Formula formula, const float* outputs,
                                                        const float* targets, std::int64_t count, float fraction,
                                                        float* gradient, Weights... weights) {
    double sum = 0;
    std::int32_t invalid = 0;
#pragma omp simd reduction(+ : sum, invalid)
    for (std::int64_t i = 0; i < count; ++i) {
        const float x = outputs[i], t = targets[i];
        sum += static_cast<double>(formula(x, t, weights[i]...));
        invalid += accepts_target(formula, t) ? 0 : 1;
        if constexpr (with_gradient) gradient[i] = formula.derivative(x, t, weights[i]...) * fraction;
    }
    return invalid == 0 ? sum : not_a_number<double>();
}

}  // namespace impl

namespace ops {

template <class Formula>
class ElementwiseLoss<Host, Formula> {
public:
    explicit ElementwiseLoss(std::int64_t elements, const Formula& formula = {},
                             std::span<const float> channel_weights = {})
        : elements_(elements), formula_(formula), channel_weights_(channel_weights) {}

    LossResult forward(HostContext& context, const float* outputs, const float* targets, std::int64_t batch,
                       float* gradient) const {
        LossReport report = impl::no_loss;
        queue(context, outputs, targets, batch, gradient, &report);
        return result_of(report);
    }
    void queue(HostContext& context, const float* outputs, const float* targets, std::int64_t batch, float* gradient,
               LossReport* report) const;
    [[nodiscard]] LossResult result_of(const LossReport& report) const {
        return impl::result_of_elements(report, elements_, impl::accepted_targets<Formula>());
    }

private:
    /// The sum of the losses of the elements from `begin` to `end`, of the same layout in all arrays.
    template <bool with_gradient>
    [[nodiscard]] double sum_of(const float* outputs, const float* targets, float* gradient, float fraction,
                                std::int64_t begin, std::int64_t end) const;

    std::int64_t elements_;
    Formula formula_;
    std::span<const float> channel_weights_;
};

template <class Formula>
template <bool with_gradient>
double ElementwiseLoss<Host, Formula>::sum_of(const float* outputs, const float* targets, float* gradient,
                                              float fraction, std::int64_t begin, std::int64_t end) const {
    const auto loss_of = [&](std::int64_t first, std::int64_t count, auto... weights) {
        return impl::loss_of_elements<with_gradient>(formula_, outputs + first, targets + first, count, fraction,
                                                     with_gradient ? gradient + first : nullptr, weights...);
    };
    if constexpr (LossFormula<Formula>) {
        return loss_of(begin, end - begin);
    } else {
        const auto channels = static_cast<std::int64_t>(channel_weights_.size());
        double sum = 0;
        for (std::int64_t channel = begin % channels, count = 0; begin < end; begin += count, channel = 0) {
            count = std::min(end - begin, channels - channel);
            sum += loss_of(begin, count, channel_weights_.data() + channel);
        }
        return sum;
    }
}

template <class Formula>
void ElementwiseLoss<Host, Formula>::queue(HostContext& context, const float* outputs, const float* targets,
                                           std::int64_t batch, float* gradient, LossReport* report) const {
    const std::int64_t count = batch * elements_;
    const auto fraction = static_cast<float>(1.0 / static_cast<double>(count));
    const double sum = sum_blocks(context, count, [&](std::int64_t begin, std::int64_t end) {
        return gradient == nullptr ? sum_of<false>(outputs, targets, gradient, fraction, begin, end)
                                   : sum_of<true>(outputs, targets, gradient, fraction, begin, end);
    });
    std::int64_t bad = -1;
    if (impl::is_nan(sum)) {  // a target is invalid, or an output is not a number
        for (std::int64_t i = 0; i < count && bad < 0; ++i) bad = impl::accepts_target(formula_, targets[i]) ? -1 : i;
    }
    *report =
        impl::elements_report(sum, elements_, batch, bad, bad < 0 ? 0 : __builtin_bit_cast(std::int32_t, targets[bad]));
}

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
