// SPDX-License-Identifier: Apache-2.0
//
// BatchResults: the results of each replica's batches in a step that is complete on every device, whichever process has
// the replica.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/status.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
class BatchResults {
public:
    /// Both must outlive the object.
    BatchResults(Replicas<D, T>& replicas, Peers& peers) : replicas_(replicas), peers_(peers) {}

    [[nodiscard]] BatchResult of(std::int64_t step, int replica, int part) {
        if (!replicas_.placement().is_here(replica)) return peers_.result_of(step, replica, part);
        const int device = replicas_.placement().device_of(replica);
        return replicas_.at(device).layout.result(replicas_.at(device).queue->landed(step),
                                                  replicas_.placement().batch_number(replica, part));
    }

    /// The element of a replica's gradient that a device has found not finite in the mean, the last of them; -1 if
    /// there is none.
    [[nodiscard]] std::int64_t not_finite_element(std::int64_t step, int replica) {
        unsigned long long end = 0;
        for (auto& state : replicas_.devices())
            end = std::max(end, *state.layout.not_finite(state.queue->landed(step), replica));
        return static_cast<std::int64_t>(end) - 1;
    }

private:
    Replicas<D, T>& replicas_;
    Peers& peers_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
