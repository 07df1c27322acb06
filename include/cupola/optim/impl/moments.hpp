// SPDX-License-Identifier: Apache-2.0
//
// What Adam, AdamW and Lamb share: the settings of their two moving averages, and what corrects the averages' start at
// 0.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/ops/adam_update.hpp>
#include <cupola/optim/impl/contiguous_segments.hpp>
#include <cupola/optim/impl/settings.hpp>
#include <cupola/optim/optimizer.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

struct Moments {
    double beta1, beta2, epsilon;

    /// 1 - beta^t at the update of `step`, which counts from 0.
    [[nodiscard]] static double correction(double beta, std::int64_t step) {
        return 1 - std::pow(beta, static_cast<double>(step + 1));
    }
    [[nodiscard]] float first_correction(std::int64_t step) const {
        return static_cast<float>(1 / correction(beta1, step));
    }
    [[nodiscard]] float root_scale(std::int64_t step) const {
        return static_cast<float>(1 / std::sqrt(correction(beta2, step)));
    }

    [[nodiscard, gnu::cold]] std::string description(std::string_view name) const {
        return text(name, ", betas ", exact_text(beta1), " and ", exact_text(beta2), ", epsilon ", exact_text(epsilon));
    }
    [[gnu::cold]] void check(std::string_view name) const {
        require_fraction(text(name, "'s beta1"), beta1);
        require_fraction(text(name, "'s beta2"), beta2);
        require_not_negative(text(name, "'s epsilon"), epsilon);
    }
};

/// Adam's pass over each segment, with a decay that its averages see and one that they do not.
template <class Device>
void update_by_adam(const Update<Device>& u, const Moments& moments, double rate, double coupled, double decoupled) {
    for_each_contiguous_segment(u, moments.epsilon > 0, [&](const Segment& segment) {
        const AdamConstants constants{
            .gradient = u.terms(segment, coupled),
            .step_size = static_cast<float>(rate / Moments::correction(moments.beta1, u.step)),
            .root_scale = moments.root_scale(u.step),
            .first_fraction = static_cast<float>(1 - moments.beta1),
            .second_fraction = static_cast<float>(1 - moments.beta2),
            .epsilon = static_cast<float>(moments.epsilon),
            .decoupled = static_cast<float>(rate * decoupled),
        };
        ops::AdamUpdate<Device>::run(u.context, u.parameters + segment.offset, u.gradient + segment.offset,
                                     u.state_arena(0) + segment.offset, u.state_arena(1) + segment.offset, segment.size,
                                     constants);
    });
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
