// SPDX-License-Identifier: Apache-2.0
//
// How replicas share batch normalisation's running statistics: the policy is a template argument of DataParallel. Each
// replica normalises with the mean and the variance of its own batch (Synchronized: of the whole global batch), and the
// policy chooses which of them enter the running statistics that evaluation uses:
//
//   running = decay * running + (1 - decay) * batch,   with the unbiased variance, n / (n - 1), as in PyTorch and
//                                                      TensorFlow
//
//   FirstReplica   the first replica's               TensorFlow's estimator, tf_cnn_benchmarks
//   LastReplica    the last replica's                TensorFlow's Inception trainer
//   AllReplicas    one update per replica, in order  the result of running the update operations of every tower
//   Pooled         one update with the statistics of all samples together, weighted by samples (Chan, Golub, LeVeque
//                  1979)
//   Synchronized   the same, also used in forward and backward (parallel/synchronized.hpp)
//
// Replicas without samples are skipped. A user-defined policy has `name`, `synchronized` and `update`. If `update`
// throws, the running statistics are restored to those before the step, for which a copy is made in each step; an
// `update` that is declared noexcept needs no copy.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The arguments of an update, in host memory: the running statistics, and one row of batch statistics (mean, biased
/// variance) per replica that has samples, in replica order.
struct StatisticsUpdate {
    float* running = nullptr;
    std::span<const RunningStatistics> layers{};
    std::span<const float* const> rows{};
    std::span<const std::int64_t> samples{};

    /// Adds row `r` to the running statistics.
    void take(std::size_t r) const noexcept {
        for (const RunningStatistics& layer : layers) {
            for (std::int64_t c = 0; c < layer.channels; ++c) {
                take(layer, c, static_cast<double>(rows[r][layer.mean + c]),
                     static_cast<double>(rows[r][layer.variance + c]), samples[r] * layer.elements_per_sample);
            }
        }
    }

    /// Adds the pooled statistics of all rows' samples: mean = sum of n_i mean_i / N, variance = sum of n_i (variance_i
    /// + (mean_i - mean)^2) / N, in double and in replica order.
    void take_pooled() const noexcept {
        std::int64_t total = 0;
        for (const std::int64_t count : samples) total += count;
        for (const RunningStatistics& layer : layers) {
            for (std::int64_t c = 0; c < layer.channels; ++c) {
                double mean = 0, variance = 0;
                for (std::size_t r = 0; r < rows.size(); ++r) {
                    mean += static_cast<double>(samples[r]) * static_cast<double>(rows[r][layer.mean + c]);
                }
                mean /= static_cast<double>(total);
                for (std::size_t r = 0; r < rows.size(); ++r) {
                    const double away = static_cast<double>(rows[r][layer.mean + c]) - mean;
                    variance += static_cast<double>(samples[r]) *
                                (static_cast<double>(rows[r][layer.variance + c]) + away * away);
                }
                take(layer, c, mean, variance / static_cast<double>(total), total * layer.elements_per_sample);
            }
        }
    }

private:
    void take(const RunningStatistics& layer, std::int64_t channel, double mean, double variance,
              std::int64_t elements) const noexcept {
        const auto count = static_cast<double>(elements);
        const double unbiased = elements > 1 ? variance * count / (count - 1) : variance;
        const auto blend = [&](float& running_value, double value) {
            running_value =
                static_cast<float>(layer.decay * static_cast<double>(running_value) + (1 - layer.decay) * value);
        };
        blend(running[layer.mean + channel], mean);
        blend(running[layer.variance + channel], unbiased);
    }
};

struct FirstReplica {
    static constexpr std::string_view name = "first";
    static constexpr bool synchronized = false;
    void update(const StatisticsUpdate& u) const noexcept { u.take(0); }
};

struct LastReplica {
    static constexpr std::string_view name = "last";
    static constexpr bool synchronized = false;
    void update(const StatisticsUpdate& u) const noexcept { u.take(u.rows.size() - 1); }
};

struct AllReplicas {
    static constexpr std::string_view name = "all";
    static constexpr bool synchronized = false;
    void update(const StatisticsUpdate& u) const noexcept {
        for (std::size_t r = 0; r < u.rows.size(); ++r) u.take(r);
    }
};

struct Pooled {
    static constexpr std::string_view name = "merged";
    static constexpr bool synchronized = false;
    void update(const StatisticsUpdate& u) const noexcept { u.take_pooled(); }
};

/// A training with it needs #include <cupola/parallel/synchronized.hpp>.
struct Synchronized {
    static constexpr std::string_view name = "synchronized";
    static constexpr bool synchronized = true;
    void update(const StatisticsUpdate& u) const noexcept { u.take_pooled(); }
};

template <class S>
concept StatisticsPolicy = std::copyable<S> && requires(const S& policy, const StatisticsUpdate& update) {
    { S::name } -> std::convertible_to<std::string_view>;
    { S::synchronized } -> std::convertible_to<bool>;
    policy.update(update);
};

/// The error message for a type `S` that is not a statistics policy; empty if it is one.
template <class S>
[[nodiscard]] consteval CompileTimeMessage statistics_diagnostic() {
    CompileTimeMessage message;
    if constexpr (!StatisticsPolicy<S>) {
        message << short_type_name<S>()
                << " is not a statistics policy: it lacks `name`, `static constexpr bool "
                   "synchronized` or `void update(const StatisticsUpdate&) const`";
    }
    return message;
}

}}  // namespace cupola::CUPOLA_ABI
