// SPDX-License-Identifier: Apache-2.0
//
// The fingerprint by which processes compare their data: a checksum of samples of some batches of the first epoch, as
// the network receives them, so that different files, seeds and augmentations are detected. It reads few samples.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/data/batches.hpp>
#include <cupola/io/crc32c.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Empty for batches of which a process makes only those of its own replicas.
template <class Batches>
[[nodiscard]] std::string fingerprint_of_batches(const Batches& batches) {
    if constexpr (BatchSource<Batches>) {
        constexpr std::int64_t probed_batches = 8, probed_samples = 4;
        const std::int64_t size = batches.batch_size();
        const Columns columns(batches.columns());
        BatchSpan batch(columns);
        std::vector<std::vector<std::byte>> memory(columns.size());
        for (std::size_t c = 0; c < columns.size(); ++c) {
            memory[c].resize(static_cast<std::size_t>(size) * columns[c].bytes());
            batch.set_data(c, memory[c].data());
        }
        std::int64_t steps = probed_batches;
        if constexpr (requires { batches.samples_per_epoch(); })
            steps = std::max<std::int64_t>(1, batches.samples_per_epoch() / (size * batches.replicas()));
        std::uint32_t sum = 0;
        for (std::int64_t i = 0; i < std::min(steps, probed_batches); ++i) {
            const std::int64_t step = steps / probed_batches * i + std::min(steps % probed_batches, i);
            const std::int64_t count = std::min(size, probed_samples);
            batches.fill(step, static_cast<int>(i % batches.replicas()), 0, count, batch);
            for (std::size_t c = 0; c < columns.size(); ++c)
                sum = crc32c(std::span(memory[c]).first(static_cast<std::size_t>(count) * columns[c].bytes()), sum);
        }
        char digits[16];
        std::snprintf(digits, sizeof digits, "%08x", sum);
        return text("crc32c ", digits);
    } else if constexpr (requires { batches.source(); }) {
        return fingerprint_of_batches(batches.source());
    } else {
        return {};
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
