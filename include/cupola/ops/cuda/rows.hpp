// SPDX-License-Identifier: Apache-2.0
//
// for_each_row, sum_columns and report_rows on `Cuda`: 8, 16 or 32 lanes of a warp share a row, depending on its width.
//
// `report_rows` writes the report to the given place, in the device's memory or in pinned memory of the host, when the
// work is complete. Partial sums are in the context's memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/row_lanes.cuh>
#include <cupola/ops/cuda/impl/sums_memory.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/ops/rows.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <int lanes, class Formula>
__global__ void __launch_bounds__(block_threads) rows_kernel(std::int64_t rows, Formula formula) {
    begin_kernel();
    constexpr int at_once = block_threads / lanes;
    const int lane = static_cast<int>(threadIdx.x) % lanes;
    for (std::int64_t first = std::int64_t{blockIdx.x} * at_once; first < rows;
         first += std::int64_t{gridDim.x} * at_once) {
        const std::int64_t n = first + static_cast<int>(threadIdx.x) / lanes;
        formula(RowLanes<lanes>(lane, n < rows), n);
    }
}

template <int lanes, class Formula>
void launch_rows(const CudaContext& context, std::int64_t rows, const Formula& formula) {
    static const int resident = resident_blocks(rows_kernel<lanes, Formula>, block_threads);
    launch_kernel(rows_kernel<lanes, Formula>, grid_of(context, rows * lanes, resident), block_threads, context, rows,
                  formula);
}

/// A warp's lanes have neighbouring columns, and its warps each a part of the rows.
inline constexpr int column_lanes = 32, column_parts = block_threads / column_lanes;

template <class Formula>
__global__ void __launch_bounds__(block_threads)
    columns_kernel(std::int64_t rows, std::int64_t width, Formula formula, float* to) {
    begin_kernel();
    __shared__ double parts[column_parts][column_lanes];
    const int lane = static_cast<int>(threadIdx.x) % column_lanes, part = static_cast<int>(threadIdx.x) / column_lanes;
    const std::int64_t c = std::int64_t{blockIdx.x} * column_lanes + lane;
    double sum = 0;
    for (std::int64_t n = part; n < rows && c < width; n += column_parts) sum += formula(n, c);
    parts[part][lane] = sum;
    __syncthreads();
    if (part != 0 || c >= width) return;
    for (int p = 1; p < column_parts; ++p) sum += parts[p][lane];
    to[c] = static_cast<float>(sum);
}

/// `lanes` threads per row. The reports of at most max_row_results rows are added by the block that arrives last, and
/// then have the same bits for any grid. Of more rows each group of lanes adds its own, each block its groups' sums,
/// and the block that arrives last those of the blocks, in their order.
template <int lanes, class Formula>
__global__ void __launch_bounds__(1024) row_reports_kernel(const Formula __grid_constant__ formula, std::int64_t rows,
                                                           std::int64_t positions, SumsMemory* sums, LossReport* to) {
    begin_kernel();
    __shared__ LossReport of_group[1024 / lanes];  // in shared memory because registers are scarce
    const int thread = static_cast<int>(threadIdx.x), group = thread / lanes,
              groups = static_cast<int>(blockDim.x) / lanes;
    const bool few = rows <= max_row_results;
    if (thread % lanes == 0) of_group[group] = no_loss;
    for (std::int64_t first = std::int64_t{blockIdx.x} * groups; first < rows;
         first += std::int64_t{gridDim.x} * groups) {
        // A warp's lanes take part in every sum.
        const std::int64_t n = first + group;
        const auto result = formula(RowLanes<lanes>(thread % lanes, n < rows), n);
        if (thread % lanes != 0 || n >= rows) continue;
        if (few) {
            row_results<Formula>(*sums)[n] = result;
        } else {
            add_report(of_group[group], formula.report_of(n, result));
        }
    }
    auto* const of_blocks = reinterpret_cast<LossReport*>(sums->partial);
    if (!few) {
        __syncthreads();
        if (thread < 32) {
            LossReport report = no_loss;
            for (int g = thread; g < groups; g += 32) add_report(report, of_group[g]);
            report = warp_report(report);
            if (thread == 0) of_blocks[blockIdx.x] = report;
        }
    }
    if (!arrives_last(sums->arrived, 1, gridDim.x) || thread >= 32) return;
    LossReport report = no_loss;
    if (few) {
        report = report_of_lane(formula, rows, row_results<Formula>(*sums));
    } else {
        for (unsigned b = threadIdx.x; b < gridDim.x; b += 32) add_report(report, of_blocks[b]);
    }
    report = report_of_rows(formula, rows, report);
    if (thread != 0) return;
    report.sum /= static_cast<double>(positions);
    report.weight /= static_cast<double>(positions);
    *to = report;
}

template <int lanes, class Formula>
void launch_row_reports(const CudaContext& context, std::int64_t rows, std::int64_t width, std::int64_t positions,
                        const Formula& formula, LossReport* report) {
    const auto blocks_of = [&](std::int64_t groups) { return std::max<std::int64_t>((rows + groups - 1) / groups, 1); };
    // For more rows the number is the same on each GPU, because their sum depends on it.
    std::int64_t warps = width <= 64 ? 32 : 8;
    if (rows <= max_row_results) {
        // A row takes long in double: few of them are on as many multiprocessors as there are.
        warps = std::min<std::int64_t>((blocks_of(32 / lanes) - 1) / context.multiprocessors() + 1, 8);
    }
    // The reports of the blocks are in the context's memory before a result.
    const std::int64_t blocks = std::min(blocks_of(warps * (32 / lanes)), SumsMemory::capacity<LossReport>());
    launch_kernel(row_reports_kernel<lanes, Formula>, static_cast<unsigned>(blocks), static_cast<unsigned>(32 * warps),
                  context, formula, rows, positions, &sums_memory(context), report);
}

}  // namespace impl

/// See ops/rows.hpp.
template <class Formula>
void for_each_row(const CudaContext& context, std::int64_t rows, std::int64_t width, const Formula& formula) {
    if (rows <= 0) return;
    if (width <= 8) {
        impl::launch_rows<8>(context, rows, formula);
    } else if (width <= 16) {
        impl::launch_rows<16>(context, rows, formula);
    } else {
        impl::launch_rows<32>(context, rows, formula);
    }
}

/// See ops/rows.hpp. A block adds 32 columns, so a matrix of few columns does not occupy a GPU.
template <class Formula>
void sum_columns(const CudaContext& context, std::int64_t rows, std::int64_t width, const Formula& formula, float* to) {
    if (width <= 0) return;
    impl::launch_kernel(impl::columns_kernel<Formula>,
                        static_cast<unsigned>((width + impl::column_lanes - 1) / impl::column_lanes),
                        impl::block_threads, context, rows, width, formula, to);
}

/// See ops/rows.hpp.
template <class Formula>
void report_rows(const CudaContext& context, std::int64_t rows, std::int64_t width, std::int64_t positions,
                 const Formula& formula, LossReport* report) {
    if (width <= 8) {
        impl::launch_row_reports<8>(context, rows, width, positions, formula, report);
    } else if (width <= 16) {
        impl::launch_row_reports<16>(context, rows, width, positions, formula, report);
    } else {
        impl::launch_row_reports<32>(context, rows, width, positions, formula, report);
    }
}

}}  // namespace cupola::CUPOLA_ABI
