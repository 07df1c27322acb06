// SPDX-License-Identifier: Apache-2.0
//
// The fingerprint by which processes compare their data: a checksum of samples of some batches of the first epoch, as
// the network receives them, so that different files, seeds and augmentations are detected. It reads few samples.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <cupola/core/function_ref.hpp>
#include <cupola/data/batches.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// `fill` is that of the batches; `samples_per_epoch` is below 0 if they have no epochs.
[[nodiscard]] std::string fingerprint_of_samples(
    std::int64_t batch_size, int replicas, std::int64_t samples_per_epoch, const Columns& columns,
    FunctionRef<void(std::int64_t step, int replica, std::int64_t begin, std::int64_t end, const BatchSpan&)> fill);

/// Empty for batches of which a process makes only those of its own replicas.
template <class Batches>
[[nodiscard]] std::string fingerprint_of_batches(const Batches& batches) {
    if constexpr (BatchSource<Batches>) {
        std::int64_t samples_per_epoch = -1;
        if constexpr (requires { batches.samples_per_epoch(); }) samples_per_epoch = batches.samples_per_epoch();
        return fingerprint_of_samples(batches.batch_size(), batches.replicas(), samples_per_epoch,
                                      Columns(batches.columns()),
                                      [&](std::int64_t step, int replica, std::int64_t begin, std::int64_t end,
                                          const BatchSpan& to) { batches.fill(step, replica, begin, end, to); });
    } else if constexpr (requires { batches.source(); }) {
        return fingerprint_of_batches(batches.source());
    } else {
        return {};
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl

#ifdef CUPOLA_DECL
#include <cupola/processes/run/batches_fingerprint.ipp>
#endif
