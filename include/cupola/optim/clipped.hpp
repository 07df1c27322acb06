// SPDX-License-Identifier: Apache-2.0
//
// Clipped<Optimizer>: an optimiser with gradient clipping, by the norm of the whole gradient and by value, like
// PyTorch's clip_grad_norm_ and clip_grad_value_ (in this order) before the optimiser's step:
//
//   g = gradient + l2 * w,    g = g * min(1, max_norm / (norm(g) + 1e-6)),    g = clamp(g, -max_value, max_value)
//
// The regularisers' terms in the gradient are clipped; the optimiser's own decay is not. The norm is over all
// parameters, in double and in one order, so every device computes the same norm. Where the update is queued, as on
// `Cuda`, the norm is queued too, without a wait.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/ops/gradient_norm.hpp>
#include <cupola/optim/impl/settings.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/update_parameters.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Whether the update can be clipped by a gradient's norm that the host does not know.
template <class Device>
concept NormStaysOn = requires(typename Device::Context& context, const float* on_device) {
    ops::GradientNorm<Device>::queue_clip_scale(context, 1.0, on_device);
    ops::GradientNorm<Device>::clip_scale(context);
};

template <class Inner>
struct Clipped {
    static constexpr bool uses_segment_factors = UsesSegmentFactors<Inner>;
    Inner optimizer{};
    /// The largest norm of the whole gradient; 0 for no limit. At least the smallest normal float otherwise.
    double max_norm = 0.0;
    /// The largest magnitude of one value; 0 for no limit. At least the smallest normal float otherwise: a smaller
    /// value would be 0 as a float, or the processor could treat it as 0, and 0 means that nothing is clipped.
    double max_value = 0.0;

    [[nodiscard]] int state_arenas() const { return optimizer.state_arenas(); }
    [[nodiscard]] std::string_view state_name(int arena) const { return optimizer.state_name(arena); }
    [[nodiscard]] double state_start(int arena) const { return state_start_of(optimizer, arena); }
    [[nodiscard]] double learning_rate_at(std::int64_t step) const { return optimizer.learning_rate_at(step); }
    [[nodiscard]] std::string learning_rate_description() const { return learning_rate_description_of(optimizer); }
    [[nodiscard]] std::string description() const {
        std::string result = optimizer.description();
        if (max_norm != 0.0) result += text(", gradient clipped to norm ", exact_text(max_norm));
        if (max_value != 0.0) result += text(", gradient clipped to values of ", exact_text(max_value));
        return result;
    }
    void check() const {
        check_optimizer(optimizer);
        check_limit("the norm that a gradient is clipped to", max_norm);
        check_limit("the value that a gradient is clipped to", max_value);
    }

    /// The norm of the gradient that `update` is given, before clipping.
    template <class Device>
    [[nodiscard]] static double gradient_norm(const Update<Device>& u) {
        double sum = 0;
        for (const Segment& segment : u.segments) {
            sum += ops::GradientNorm<Device>::sum_of_squares(
                u.context, u.parameters + segment.offset, u.gradient + segment.offset, segment.size, u.terms(segment));
        }
        return std::sqrt(sum);
    }

    template <class Device>
    void update(const Update<Device>& u) const {
        update_parameters(optimizer, clipped(u));
    }
    template <class Device>
        requires ElasticOptimizer<Inner, Device>
    void update(const Update<Device>& u, const ElasticForce& force) const {
        update_parameters(optimizer, clipped(u), force);
    }
    template <class Device>
        requires RepeatableOptimizer<Inner, Device>
    void constants(const Update<Device>& u, ConstantsWriter& to) const {
        write_constants(optimizer, with_limits(u), to);
    }
    template <class Device>
        requires RepeatableOptimizer<Inner, Device> && ElasticOptimizer<Inner, Device>
    void constants(const Update<Device>& u, const ElasticForce& force, ConstantsWriter& to) const {
        write_constants(optimizer, with_limits(u), force, to);
    }

private:
    [[gnu::cold]] static void check_limit(std::string_view what, double limit) {
        impl::require_not_negative(what, limit);
        constexpr double smallest = static_cast<double>(std::numeric_limits<float>::min());
        require(limit == 0 || limit >= smallest, what, " must be 0 (no clipping) or at least ", smallest, ", not ",
                limit);
    }

    /// The update with the part of its clipping that does not depend on the gradient.
    template <class Device>
    [[nodiscard]] Update<Device> with_limits(const Update<Device>& u) const {
        Update<Device> result = u;
        if constexpr (NormStaysOn<Device>) {
            if (max_norm > 0) result.scale_on_device = ops::GradientNorm<Device>::clip_scale(u.context);
        }
        if (max_value > 0) result.clip = static_cast<float>(max_value);
        return result;
    }

    /// The update with its clipping, computed or queued.
    template <class Device>
    [[nodiscard]] Update<Device> clipped(const Update<Device>& u) const {
        Update<Device> result = with_limits(u);
        if constexpr (NormStaysOn<Device>) {
            if (max_norm > 0) queue_scale(u);
        } else if (max_norm > 0) {
            const double fraction = max_norm / (gradient_norm(u) + 1e-6);  // PyTorch's term, for a norm of 0
            if (fraction < 1) result.scale *= static_cast<float>(fraction);
        }
        return result;
    }

    /// Queues the computation of the scale from the norm, on a device that needs no wait for it.
    template <class Device>
    void queue_scale(const Update<Device>& u) const {
        bool first = true;
        impl::for_each_contiguous_segment(u, true, [&](const Segment& segment) {
            ops::GradientNorm<Device>::queue_squares(u.context, u.parameters + segment.offset,
                                                     u.gradient + segment.offset, segment.size, u.terms(segment),
                                                     first);
            first = false;
        });
        ops::GradientNorm<Device>::queue_clip_scale(u.context, max_norm, u.scale_on_device);
    }
};

}}  // namespace cupola::CUPOLA_ABI
