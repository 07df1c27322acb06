// SPDX-License-Identifier: Apache-2.0
//
// FitPlan and Epochs: the options of a run of fit(), with their types erased.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <cupola/loss/data_losses.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The epochs of a stream of samples, of which step s takes [s * per_step, (s + 1) * per_step). `samples` is 0 if the
/// source of the batches has no epochs.
struct Epochs {
    std::int64_t samples = 0, per_step = 1;

    /// The number of complete epochs after this many steps.
    [[nodiscard]] std::int64_t complete_after(std::int64_t steps) const;
    /// The number of steps after which this many epochs are complete.
    [[nodiscard]] std::int64_t steps_of(std::int64_t epochs) const;
};

/// The options of a run with their types erased; see FitOptions.
struct FitPlan {
    std::optional<std::int64_t> steps{}, epochs{};
    std::int64_t every = 0, patience = 0;
    double min_delta = 0;
    std::string_view quantity{};
    bool validates = false, averages = false, restores = false;
    /// The names of the metrics' results, and whether larger or smaller values are better.
    std::span<const MetricValue> metrics{};
    /// The losses of the data.
    std::span<const LossEntry> losses{};
};

inline std::int64_t Epochs::complete_after(std::int64_t steps) const {
    // steps * per_step / samples, without overflow of the product.
    return steps / samples * per_step + steps % samples * per_step / samples;
}

inline std::int64_t Epochs::steps_of(std::int64_t epochs) const {
    return epochs / per_step * samples + (epochs % per_step * samples + per_step - 1) / per_step;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
