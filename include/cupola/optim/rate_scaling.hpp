// SPDX-License-Identifier: Apache-2.0
//
// The dependence of the learning rate on the global batch: none, linear (Goyal et al. 2017) or with the square root
// (Krizhevsky 2014), relative to the batch that the rate was chosen for, with a linear warm-up from the chosen rate.
// The schedule's description states the scaling, also where there is none.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/optim/schedule.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

enum class RateScaling : std::uint8_t { none, linear, square_root };

/// "none", "linear" or "square-root"; throws InvalidArgument for any other.
[[nodiscard]] inline RateScaling rate_scaling_of(std::string_view name) {
    if (name == "none") return RateScaling::none;
    if (name == "linear") return RateScaling::linear;
    if (name == "square-root") return RateScaling::square_root;
    throw InvalidArgument(
        text("the scaling of a learning rate must be none, linear or square-root, not \"", name, '"'));
}

struct ScaledRate {
    RateScaling scaling = RateScaling::none;
    /// The samples of all replicas in a step.
    std::int64_t global_batch = 128;
    /// The batch that the rate was chosen for.
    std::int64_t base_batch = 128;
    /// The number of steps from the chosen rate to the scaled rate.
    std::int64_t warm_up = 0;

    [[nodiscard]] double factor() const {
        const double ratio = static_cast<double>(global_batch) / static_cast<double>(base_batch);
        return scaling == RateScaling::linear ? ratio : scaling == RateScaling::square_root ? std::sqrt(ratio) : 1.0;
    }

    /// "learning rate times 2, linear: a global batch of 256 where 128 is the base, after a warm-up of 500 steps"
    [[nodiscard]] std::string description() const;

    /// `base` at this global batch.
    [[nodiscard]] Schedule operator()(Schedule base) const;
};

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/optim/rate_scaling.ipp>
#endif
