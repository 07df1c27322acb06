// SPDX-License-Identifier: Apache-2.0
//
// The loss scale of a training: the factor by which the gradient that backward begins with is multiplied, and by which
// the parameters' mean gradient is divided, so that small gradients stay in the range of the activations' type.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <cupola/core/abi.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The default is PyTorch's GradScaler: the scale begins at 65,536. A step whose mean gradient is not finite is skipped
/// and halves it; after 2,000 steps in a row that were not skipped it doubles. A constant scale never changes, and a
/// gradient that is not finite then ends the training. Scaling by a power of two does not round, so the update does not
/// depend on the scale.
struct LossScale {
    double initial = 65536;
    /// Whether the scale changes and steps are skipped; false for a constant scale.
    bool dynamic = true;
    /// The factor after `interval` steps in a row that were not skipped, and the factor after a skipped step.
    double growth = 2, backoff = 0.5;
    int interval = 2000;
    /// A step that would reduce the scale below this ends the training with a DivergedError: the scale is then not the
    /// reason for values that are not finite.
    double minimum = 1;

    [[nodiscard]] static constexpr LossScale constant(double scale) { return {.initial = scale, .dynamic = false}; }

    /// The error in the values, as the end of a sentence that begins with "a loss scale "; null if they are valid.
    [[nodiscard]] constexpr const char* problem() const {
        constexpr double largest = 0x1p127, smallest = 0x1p-126;  // as floats
        if (!(impl::is_finite(initial) && initial >= smallest && initial <= largest))
            return "must be from 2^-126 to 2^127";
        if (!dynamic) return nullptr;
        if (!(impl::is_finite(growth) && growth > 1 && growth <= largest))
            return "must have a growth of more than 1 and at most 2^127";
        if (!(impl::is_finite(backoff) && backoff >= smallest && backoff < 1))
            return "must have a backoff of at least 2^-126 and less than 1";
        if (interval < 1) return "must grow after 1 or more steps";
        if (!(impl::is_finite(minimum) && minimum >= smallest && minimum <= initial))
            return "must have a minimum of at least 2^-126 and at most its initial value";
        return nullptr;
    }

    bool operator==(const LossScale&) const = default;
};

/// "dynamic, from 65536, at least 1, times 2 after 2000 steps and times 0.5 after a skipped one", or "constant, 1024".
[[nodiscard, gnu::cold]] std::string description_of(const LossScale& scale);

/// The state of a loss scale between two steps.
struct LossScaleState {
    /// The scale of the next step.
    float scale = 1;
    /// The steps since the scale last changed, none of which was skipped.
    std::int32_t good_steps = 0;
    /// All skipped steps, including those in which no sample counts. The optimiser and the moving averages count the
    /// others: steps - skipped_steps.
    std::int64_t skipped_steps = 0;

    bool operator==(const LossScaleState&) const = default;
};

/// The loss scale of a precision policy, whose `loss_scale` is a number, a constant scale, or a LossScale.
template <class Precision>
[[nodiscard]] consteval LossScale loss_scale_of() {
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(Precision::loss_scale)>>) {
        return LossScale::constant(static_cast<double>(Precision::loss_scale));
    } else {
        return Precision::loss_scale;
    }
}

inline std::string description_of(const LossScale& scale) {
    if (!scale.dynamic) return text("constant, ", exact_text(scale.initial));
    return text("dynamic, from ", exact_text(scale.initial), ", at least ", exact_text(scale.minimum), ", times ",
                exact_text(scale.growth), " after ", scale.interval, scale.interval == 1 ? " step" : " steps",
                " and times ", exact_text(scale.backoff), " after a skipped one");
}

}}  // namespace cupola::CUPOLA_ABI
