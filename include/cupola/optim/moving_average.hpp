// SPDX-License-Identifier: Apache-2.0
//
// MovingAverage: exponential moving averages of the parameters, TensorFlow's rule. After the optimiser's n-th update
//
//   average = average - (1 - d) * (average - w),    d = min(decay, (1 + n) / (10 + n))
//
// and the initial average is the initial parameter. In TensorFlow's multi-GPU script it was undefined whether the
// average used w before or after the update, and n or n - 1; here it is always after.
#pragma once

#include <cstdint>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/ops/element_update.hpp>
#include <cupola/ops/gradient_terms.hpp>
#include <cupola/optim/impl/settings.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct MovingAverage {
    /// 0 keeps no averages; the tutorial's is 0.9999.
    double decay = 0;
    /// With warm-up, averages forget their first values sooner: the decay grows from 2/11 at the first update.
    bool warm_up = true;

    [[nodiscard]] bool on() const { return decay != 0; }

    /// The decay after `updates` updates of the parameters, including this one.
    [[nodiscard]] double decay_at(std::int64_t updates) const {
        const auto n = static_cast<double>(updates);
        const double early = (1 + n) / (10 + n);
        return warm_up && early < decay ? early : decay;
    }

    /// Moves `elements` averages towards the parameters, after update number `updates` (1 is the first).
    template <class Device>
    void update(typename Device::Context& context, float* average, const float* parameters, std::int64_t elements,
                std::int64_t updates) const;
    [[nodiscard]] UpdateConstants<impl::MovingAverageFormula> constants(std::int64_t updates) const {
        return {.formula = {static_cast<float>(1 - decay_at(updates))}};
    }

    /// The same for averages that did not move in the updates `first` to `last - 1`: the decay is the product of those
    /// of all these updates.
    template <class Device>
    void update(typename Device::Context& context, float* average, const float* parameters, std::int64_t elements,
                std::int64_t first, std::int64_t last) const {
        double kept = 1;
        for (std::int64_t each = first; each <= last; ++each) kept *= decay_at(each);
        const UpdateConstants<impl::MovingAverageFormula> all{.formula = {static_cast<float>(1 - kept)}};
        ops::ElementUpdate<Device>::run(context, all, average, parameters, {}, elements);
    }

    /// "moving averages, decay 0.9999 after a warm-up"
    [[nodiscard]] std::string description() const {
        if (!on()) return "no moving averages";
        return text("moving averages, decay ", exact_text(decay), warm_up ? " after a warm-up" : "");
    }

    /// Throws InvalidArgument if the decay is not a valid fraction.
    void check() const { impl::require_fraction("the decay of the moving averages", decay); }
};

// Defined outside of the class, and so not inline: separately compiled programs do not instantiate what src.hpp
// has.
template <class Device>
void MovingAverage::update(typename Device::Context& context, float* average, const float* parameters,
                           std::int64_t elements, std::int64_t updates) const {
    ops::ElementUpdate<Device>::run(context, constants(updates), average, parameters, {}, elements);
}

}}  // namespace cupola::CUPOLA_ABI
