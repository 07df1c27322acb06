// SPDX-License-Identifier: Apache-2.0
//
// The rows of a softmax cross-entropy: several lanes of a warp compute the loss of a row, its gradient and whether its
// prediction is correct, in double. Sums over the classes are in an order that depends only on the number of lanes, and
// lanes without a class change no bits: with 32 lanes a row of at most 16 classes has the bits of 16 lanes. The losses
// of up to max_row_losses rows are written to the context's memory for sums, where one warp adds them: the sum depends
// neither on the number of blocks that compute them, nor on their order.
#pragma once

#include <cmath>
#include <cstdint>

#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/sums_memory.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The sum of the reports of a warp's lanes, the same in every lane: a + b equals b + a.
__device__ inline LossReport warp_report(LossReport report) {
    for (int step = 16; step > 0; step /= 2) {
        const LossReport other{.sum = __shfl_xor_sync(0xFFFF'FFFFU, report.sum, step),
                               .correct = __shfl_xor_sync(0xFFFF'FFFFU, report.correct, step),
                               .weight = __shfl_xor_sync(0xFFFF'FFFFU, report.weight, step),
                               .predictions = __shfl_xor_sync(0xFFFF'FFFFU, report.predictions, step),
                               .bad_target = __shfl_xor_sync(0xFFFF'FFFFU, report.bad_target, step),
                               .bad_value = __shfl_xor_sync(0xFFFF'FFFFU, report.bad_value, step)};
        add_report(report, other);
    }
    return report;
}

/// The sum over groups of `lanes` neighbouring lanes, the same in each of them.
template <int lanes>
__device__ double lanes_sum(double value) {
    for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xFFFF'FFFFU, value, step);
    return value;
}

/// The first of the largest of `count` values, and that value, the same in each of `lanes` neighbouring lanes; `none`
/// for no values.
template <int lanes, class T>
__device__ std::int64_t lanes_top(const T* values, std::int64_t none, std::int64_t count, int lane, float& largest) {
    std::int64_t top = none;
    for (std::int64_t c = lane; c < count; c += lanes) {
        const auto value = static_cast<float>(values[c]);
        if (top == none || value > largest) {
            largest = value;
            top = c;
        }
    }
    for (int step = lanes / 2; step > 0; step /= 2) {
        const float value = __shfl_xor_sync(0xFFFF'FFFFU, largest, step);
        const std::int64_t place = __shfl_xor_sync(0xFFFF'FFFFU, top, step);
        if (place == none) continue;
        if (top == none || value > largest || (value == largest && place < top)) {
            largest = value;
            top = place;
        }
    }
    return top;
}

template <class T, class Targets>
struct LossArguments {
    const T* logits;
    T* gradient;
    std::int64_t rows, positions;
    Targets targets;
    GradientFactor factor{};
};

enum class RowState : std::uint8_t { wrong, right, invalid };
struct RowLoss {
    double loss;
    RowState state;
};

/// Row `n`, whose gradient is written if `a.gradient` is not null. The result is that of lane 0, of `lanes`
/// neighbouring lanes. A row that does not exist has no classes: its lanes add nothing, but take part in the sums.
template <int lanes, class T, class Targets>
__device__ RowLoss loss_of_row(const LossArguments<T, Targets>& a, std::int64_t n, int lane) {
    const Targets& targets = a.targets;
    const std::int64_t classes = n < a.rows ? targets.classes : 0;
    const T* const z = a.logits + n * targets.classes;
    float largest = -INFINITY;
    const std::int64_t top = lanes_top<lanes>(z, targets.classes, classes, lane, largest);
    // Uses each logit's difference from the largest: in a sum with logits above 1e15, log(total) would be lost.
    const auto below = [&](std::int64_t c) {
        return static_cast<double>(largest) - static_cast<double>(static_cast<float>(z[c]));
    };
    double total = 0, terms = 0, sum_of_targets = 0;
    for (std::int64_t c = lane; c < classes; c += lanes) {
        total += exp(static_cast<double>(static_cast<float>(z[c]) - largest));
        terms += targets.term(n, c, below(c));
        if constexpr (Targets::sums_targets) sum_of_targets += targets.target(n, c);
    }
    terms = lanes_sum<lanes>(terms);
    std::int64_t top_target = 0;
    if constexpr (Targets::sums_targets) {
        sum_of_targets = lanes_sum<lanes>(sum_of_targets);
        float most = -INFINITY;
        top_target = lanes_top<lanes>(targets.row(n), targets.classes, classes, lane, most);
    }
    const double log_total = log(lanes_sum<lanes>(total));
    if (classes == 0) return {0, RowState::wrong};
    const bool ignored = targets.ignored(n);
    if constexpr (!Targets::sums_targets) sum_of_targets = targets.total(n);
    if (a.gradient != nullptr) {
        T* const gradient = a.gradient + n * targets.classes;
        const double fraction = 1.0 / static_cast<double>(a.rows);
        const float factor = a.factor.value();
        for (std::int64_t c = lane; c < classes; c += lanes) {
            const double p = exp(-below(c) - log_total);
            const auto slope = static_cast<float>((sum_of_targets * p - targets.target(n, c)) * fraction);
            gradient[c] = T(ignored ? 0.0F : slope * factor);
        }
    }
    if (lane != 0 || ignored) return {0, RowState::wrong};
    bool valid = true;
    std::int64_t label = top_target;
    double label_below = 0;
    if constexpr (!Targets::sums_targets) {
        label = targets.label(n);
        valid = targets.valid(n);
        label_below = valid ? below(label) : static_cast<double>(NAN);
    }
    const double loss = targets.loss(n, log_total, terms, sum_of_targets, label_below);
    if constexpr (Targets::sums_targets) valid = !isnan(loss) || targets.valid(n);
    // If a logit is NaN, none is the largest.
    return {loss, !valid ? RowState::invalid : top == label && !isnan(log_total) ? RowState::right : RowState::wrong};
}

/// The losses of rows in memory.
struct RowLosses {
    double* losses;
    RowState* states;

    __device__ void set(std::int64_t n, const RowLoss& of_row) const {
        losses[n] = of_row.loss;
        states[n] = of_row.state;
    }
};
/// The maximum number of rows whose losses are in the context's memory for sums, and where they are.
inline constexpr std::int64_t max_row_losses = 1024;
static_assert(max_row_losses * (sizeof(double) + sizeof(RowState)) <= SumsMemory::partial_bytes);
[[nodiscard]] CUPOLA_HOST_DEVICE inline RowLosses row_losses(SumsMemory& sums) {
    auto* const losses = reinterpret_cast<double*>(sums.partial);
    return {losses, reinterpret_cast<RowState*>(losses + max_row_losses)};
}

template <class Targets>
__device__ LossReport report_of_row(const Targets& targets, std::int64_t n, double loss, RowState state) {
    LossReport report = no_loss;
    report.sum = loss;
    report.correct = state == RowState::right ? 1 : 0;
    if constexpr (Targets::weighted) {
        report.weight = targets.weight(n);
        report.predictions = targets.ignored(n) ? 0 : 1;
    }
    if (state == RowState::invalid) set_bad_target(report, targets, n);
    return report;
}

/// The report of the rows of a lane of the block's first warp, which is every 32nd.
template <class T, class Targets>
__device__ LossReport report_of_lane(const LossArguments<T, Targets>& a, const RowLosses& of) {
    LossReport report = no_loss;
    for (std::int64_t n = threadIdx.x; n < a.rows; n += 32)
        add_report(report, report_of_row(a.targets, n, of.losses[n], of.states[n]));
    return report;
}

/// The report of all rows from those of the lanes of a warp.
template <class T, class Targets>
__device__ LossReport report_of_rows(const LossArguments<T, Targets>& a, const LossReport& of_lane) {
    LossReport report = warp_report(of_lane);
    if (!Targets::weighted) {
        report.weight = static_cast<double>(a.rows);
        report.predictions = a.rows;
    }
    return report;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
