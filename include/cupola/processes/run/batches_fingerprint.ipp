// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/processes/run/batches_fingerprint.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/io/crc32c.hpp>
#include <cupola/processes/run/batches_fingerprint.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

CUPOLA_DECL std::string fingerprint_of_samples(
    std::int64_t batch_size, int replicas, std::int64_t samples_per_epoch, const Columns& columns,
    FunctionRef<void(std::int64_t step, int replica, std::int64_t begin, std::int64_t end, const BatchSpan&)> fill) {
    constexpr std::int64_t probed_batches = 8, probed_samples = 4;
    BatchSpan batch(columns);
    std::vector<std::vector<std::byte>> memory(columns.size());
    for (std::size_t c = 0; c < columns.size(); ++c) {
        memory[c].resize(static_cast<std::size_t>(batch_size) * columns[c].bytes());
        batch.set_data(c, memory[c].data());
    }
    std::int64_t steps = probed_batches;
    if (samples_per_epoch >= 0) steps = std::max<std::int64_t>(1, samples_per_epoch / (batch_size * replicas));
    std::uint32_t sum = 0;
    for (std::int64_t i = 0; i < std::min(steps, probed_batches); ++i) {
        const std::int64_t step = steps / probed_batches * i + std::min(steps % probed_batches, i);
        const std::int64_t count = std::min(batch_size, probed_samples);
        fill(step, static_cast<int>(i % replicas), 0, count, batch);
        for (std::size_t c = 0; c < columns.size(); ++c)
            sum = crc32c(std::span(memory[c]).first(static_cast<std::size_t>(count) * columns[c].bytes()), sum);
    }
    char digits[16];
    std::snprintf(digits, sizeof digits, "%08x", sum);
    return text("crc32c ", digits);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
