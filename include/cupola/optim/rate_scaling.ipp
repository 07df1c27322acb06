// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/optim/rate_scaling.hpp.
#pragma once

#include <cupola/optim/rate_scaling.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

CUPOLA_DECL std::string ScaledRate::description() const {
    const std::string batches = text("a global batch of ", global_batch, " where ", base_batch, " is the base");
    if (scaling == RateScaling::none) return text("learning rate not scaled: ", batches);
    return text("learning rate times ", factor(),
                scaling == RateScaling::linear ? ", linear: " : ", square root: ", batches,
                warm_up == 0 ? std::string() : text(", after a warm-up of ", warm_up, " steps"));
}

CUPOLA_DECL Schedule ScaledRate::operator()(Schedule base) const {
    require(global_batch > 0 && base_batch > 0,
            "a learning rate can only be scaled between batches of 1 or more samples, not from ", base_batch, " to ",
            global_batch, " samples");
    require(warm_up >= 0, "a warm-up must take 0 or more steps, not ", warm_up);
    require(warm_up == 0 || scaling != RateScaling::none, "a warm-up of ", warm_up,
            " steps has no effect: the learning rate is not scaled");
    std::string words = text(base.description(), "; ", description());
    return {[base = std::move(base), scale = factor(), steps = warm_up](std::int64_t step) {
                const double progress = step >= steps ? 1.0 : static_cast<double>(step) / static_cast<double>(steps);
                return base(step) * (1 + (scale - 1) * progress);
            },
            std::move(words)};
}

}}  // namespace cupola::CUPOLA_ABI
