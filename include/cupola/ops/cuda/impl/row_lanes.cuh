// SPDX-License-Identifier: Apache-2.0
//
// The lanes of a row (ops/rows.hpp) on `Cuda`: several neighbouring lanes of a warp. Sums over the elements are in an
// order that depends only on the number of lanes, and lanes without an element change no bits: with 32 lanes a row of
// at most 16 elements has the bits of 16 lanes.
#pragma once

#include <cstdint>

#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/sums_memory.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/ops/rows.hpp>

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

/// One of `lanes` neighbouring lanes of a row. A formula is a function for host and device, so its members are too; the
/// host calls none of them.
template <int lanes>
class RowLanes {
    static_assert(lanes >= 1 && lanes <= 32 && 32 % lanes == 0, "the lanes of a row are in one warp");

public:
    CUPOLA_HOST_DEVICE RowLanes(int lane, bool exists) : lane_(lane), exists_(exists) {}

    [[nodiscard]] CUPOLA_HOST_DEVICE bool exists() const { return exists_; }
    [[nodiscard]] CUPOLA_HOST_DEVICE bool first() const { return exists_ && lane_ == 0; }
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t count(std::int64_t width) const { return exists_ ? width : 0; }
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t begin() const { return lane_; }
    static constexpr std::int64_t step = lanes;
    [[nodiscard]] CUPOLA_HOST_DEVICE double sum(double value) const {
        for (int by = lanes / 2; by > 0; by /= 2) value += of_lane(value, by);
        return value;
    }
    template <class Value>
    [[nodiscard]] CUPOLA_HOST_DEVICE RowTop largest(std::int64_t count, const Value& value) const {
        RowTop top = largest_of_lane(count, lane_, lanes, value);
        for (int by = lanes / 2; by > 0; by /= 2) top.take(of_lane(top.place, by), of_lane(top.value, by));
        return top;
    }

private:
    /// The value of the lane whose number differs by the bit `by`.
    template <class T>
    [[nodiscard]] static CUPOLA_HOST_DEVICE T of_lane(T value, [[maybe_unused]] int by) {
#if defined(__CUDA_ARCH__) || !defined(__CUDACC__)  // nvcc compiles this for the host too
        return __shfl_xor_sync(0xFFFF'FFFFU, value, by);
#else
        return value;
#endif
    }

    int lane_;
    bool exists_;
};

/// The maximum number of rows whose results are in the context's memory for sums, where one warp adds their reports:
/// the sum depends neither on the number of blocks that compute them, nor on their order.
inline constexpr std::int64_t max_row_results = max_partial_sums;
template <class Formula>
[[nodiscard]] CUPOLA_HOST_DEVICE typename Formula::Result* row_results(SumsMemory& sums) {
    static_assert(max_row_results * sizeof(typename Formula::Result) <= SumsMemory::partial_bytes);
    return reinterpret_cast<typename Formula::Result*>(sums.partial);
}

/// The report of the rows of a lane of the block's first warp, which is every 32nd.
template <class Formula>
__device__ LossReport report_of_lane(const Formula& formula, std::int64_t rows,
                                     const typename Formula::Result* results) {
    LossReport report = no_loss;
    for (std::int64_t n = threadIdx.x; n < rows; n += 32) add_report(report, formula.report_of(n, results[n]));
    return report;
}

/// The report of all rows from those of the lanes of a warp.
template <class Formula>
__device__ LossReport report_of_rows(const Formula&, std::int64_t rows, const LossReport& of_lane) {
    LossReport report = warp_report(of_lane);
    if (!Formula::weighted) {
        report.weight = static_cast<double>(rows);
        report.predictions = rows;
    }
    return report;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
