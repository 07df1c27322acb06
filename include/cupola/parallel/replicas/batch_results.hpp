// SPDX-License-Identifier: Apache-2.0
//
// BatchResults: the results of each replica's batches in a step that is complete on every device, whichever process has
// the replica.
#pragma once

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
        if (!replicas_.is_here(replica)) return peers_.result_of(step, replica, part);
        const int device = replicas_.device_of(replica);
        return replicas_.status(device).result(replicas_.at(device).queue->landed(step),
                                               replicas_.batch_number(replica, part));
    }

private:
    Replicas<D, T>& replicas_;
    Peers& peers_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
