// SPDX-License-Identifier: Apache-2.0
//
// The interface of an averaging policy: how replicas agree on a gradient. docs/how-to/your-own-averaging.md shows how
// to write one.
//
//   static constexpr std::string_view name
//   void average(Context& context, const GradientRows& gradients, std::span<float> mean) const
//   void prepare(Context& context, std::span<float> row) const       optional: changes a row in place
//
// Each device calls `prepare` once for the whole row of each of its replicas with samples and, when all rows are ready,
// `average` for its own slice of the columns. The mean of a column must therefore depend on that column only. With one
// replica neither is called.
//
// A policy of every device calls
//
//   average_columns(context, name, gradients, mean, columns)
//
// which each device has (parallel/host/concat_mean.hpp, parallel/cuda/concat_mean.hpp): it calls columns(rows, to,
// begin, end) for blocks of the columns, in no fixed order, with rows and result in the host's memory; `name` is the
// policy's, for errors.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/device/device.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The stacked gradients: a slice of the columns of one matrix that has one row per replica. Each row is the gradient
/// of the mean loss over the replica's samples. Rows of replicas without samples are omitted.
struct GradientRows {
    /// The beginning of each row's slice, in replica order.
    std::span<const float* const> rows{};
    /// The number of samples over which each row is the mean; never 0.
    std::span<const std::int64_t> samples{};
    std::int64_t total_samples = 0;
    std::int64_t columns = 0;
};

/// A device with average_columns(), by its context.
template <class Context>
concept AveragesColumns =
    requires(Context& context, std::string_view name, const GradientRows& gradients, std::span<float> mean,
             void (*columns)(const GradientRows&, float*, std::int64_t, std::int64_t)) {
        average_columns(context, name, gradients, mean, columns);
    };

template <class A>
concept HasPolicyName = requires {
    { A::name } -> std::convertible_to<std::string_view>;
};

template <class A, class Device>
concept AveragesRows = requires(const A& policy, typename Device::Context& context, const GradientRows& gradients,
                                std::span<float> mean) { policy.average(context, gradients, mean); };

/// A policy that changes each row before the rows are averaged.
template <class A, class Device>
concept PreparesRows = requires(const A& policy, typename Device::Context& context, std::span<float> row) {
    policy.prepare(context, row);
};

template <class A, class Device>
concept AveragingPolicy = std::copyable<A> && HasPolicyName<A> && AveragesRows<A, Device>;

/// The error message for a type `A` that is not a policy on `Device`; empty if it is one.
template <class A, class Device>
[[nodiscard]] consteval CompileTimeMessage averaging_diagnostic() {
    CompileTimeMessage message;
    if constexpr (!std::copyable<A>) {
        message << type_name<A>() << " is not an averaging policy: it cannot be copied";
    } else if constexpr (!HasPolicyName<A>) {
        message << type_name<A>() << " is not an averaging policy: it lacks `static constexpr std::string_view name`";
    } else if constexpr (!AveragesRows<A, Device>) {
        message << type_name<A>() << " is not an averaging policy on " << Device::name
                << ": it lacks `void average(Context&, const GradientRows&, std::span<float>) const`";
    }
    return message;
}

}}  // namespace cupola::CUPOLA_ABI
