// SPDX-License-Identifier: Apache-2.0
//
// average_columns (parallel/averaging.hpp) on `Cuda`, for ConcatMean and policies like it: the gradients are copied to
// pinned memory of the host, averaged there by the code of `Host`, and the mean is copied back, so both devices compute
// the same bits from the same gradients. Per step this takes one wait for the gradients, one copy of each gradient and
// one copy of the mean; none of these can be captured. The host adds on the device's one thread: for several GPUs with
// large gradients, NcclAllReduce is the better choice.
//
// The rows may be on several GPUs. They have to be complete; the caller waits for rows of another context's stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/device/flushed_denormals.hpp>
#include <cupola/parallel/concat_mean.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// `mean` may be one of the rows: all rows have been read before it is written.
template <class Columns>
void average_columns(const CudaContext& context, std::string_view name, const GradientRows& gradients,
                     std::span<float> mean, const Columns& columns) {
    constexpr std::size_t max_rows = 64;
    const std::size_t count = gradients.rows.size(), width = mean.size();
    require(count <= max_rows, name, " averages the gradients of at most ", max_rows, " replicas on Cuda, not of ",
            count);
    // Rows begin at multiples of 64 bytes; the mean follows the last row.
    const std::size_t row_bytes = aligned(width * sizeof(float));
    std::byte* const staging = context.staging((count + 1) * row_bytes);
    const float* rows[max_rows];
    for (std::size_t r = 0; r < count; ++r) {
        rows[r] = reinterpret_cast<const float*>(staging + r * row_bytes);
        context.queue_copy(staging + r * row_bytes, gradients.rows[r], width * sizeof(float));
    }
    context.synchronize();
    GradientRows here = gradients;
    here.rows = {rows, count};
    auto* const to = reinterpret_cast<float*>(staging + count * row_bytes);
    {
        const impl::FlushedDenormals scope;
        constexpr std::int64_t block = 4096;  // of each row at once: the sums are still in the cache
        const auto end = static_cast<std::int64_t>(width);
        for (std::int64_t begin = 0; begin < end; begin += block) {
            columns(here, to, begin, std::min(end, begin + block));
        }
    }
    context.queue_copy(mean.data(), to, width * sizeof(float));
}

}}  // namespace cupola::CUPOLA_ABI
