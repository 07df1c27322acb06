// SPDX-License-Identifier: Apache-2.0
//
// SyncBatchNormGroup: replicas that run in step on all devices. They stop wherever the network merges statistics of the
// whole global batch; this class holds their plans and the sums that they all-reduce there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <cupola/core/fixed_array.hpp>
#include <cupola/net/plan.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Device, class T>
class SyncBatchNormGroup {
public:
    /// The number of all-reduces and of sums is the same in every plan of the network.
    [[gnu::cold]] void make(int replicas, const Plan<Device, T>& plan);

    /// The number of all-reduces per direction.
    [[nodiscard]] std::size_t all_reduces() const { return all_reduces_; }
    [[nodiscard]] std::size_t largest() const { return largest_; }

    /// The plan of a replica's batch; null while the replica has no batch.
    [[nodiscard]] Plan<Device, T>*& plan(int replica) { return plans_[static_cast<std::size_t>(replica)]; }

    /// The address at which a replica writes its sums for all-reduce number `turn` of the step. Two buffers alternate:
    /// the next sums may be written while another device still merges the last ones.
    [[nodiscard]] double* partial(std::size_t turn, int replica) {
        return partials_.data() + place(turn, replica) * largest_;
    }

    /// Records, before the barrier, whether a replica has written its sums.
    void contribute(std::size_t turn, int replica, bool there) {
        contributions_[place(turn, replica)] = there && plan(replica) != nullptr ? partial(turn, replica) : nullptr;
    }

    /// The sums of all replicas for all-reduce number `turn`, largest() values each, and where those are that are
    /// written.
    [[nodiscard]] double* sums(std::size_t turn) { return partial(turn, 0); }
    [[nodiscard]] std::span<const double*> contributions(std::size_t turn) {
        return {contributions_.data() + place(turn, 0), plans_.size()};
    }

    /// Merges all replicas' sums of all-reduce k, in replica order, by a plan of replicas [first, last).
    void merge(Direction direction, std::size_t k, std::size_t turn, int first, int last, std::span<double> merged);

private:
    [[nodiscard]] std::size_t place(std::size_t turn, int replica) const {
        return (turn % 2) * plans_.size() + static_cast<std::size_t>(replica);
    }

    std::size_t all_reduces_ = 0, largest_ = 0;
    FixedArray<Plan<Device, T>*> plans_;
    FixedArray<double> partials_;
    FixedArray<const double*> contributions_;
};

template <class Device, class T>
void SyncBatchNormGroup<Device, T>::make(int replicas, const Plan<Device, T>& plan) {
    all_reduces_ = plan.all_reduces();
    for (std::size_t k = 0; k < all_reduces_; ++k) {
        for (const Direction direction : {Direction::forward, Direction::backward}) {
            largest_ = std::max(largest_, static_cast<std::size_t>(plan.statistics_size(direction, k)));
        }
    }
    plans_ = FixedArray<Plan<Device, T>*>(static_cast<std::size_t>(replicas));
    partials_ = FixedArray<double>(2 * plans_.size() * largest_);
    contributions_ = FixedArray<const double*>(2 * plans_.size());
}

template <class Device, class T>
void SyncBatchNormGroup<Device, T>::merge(Direction direction, std::size_t k, std::size_t turn, int first, int last,
                                          std::span<double> merged) {
    for (int replica = first; replica < last; ++replica) {
        if (plan(replica) == nullptr) continue;
        plan(replica)->merge(direction, k, contributions(turn), merged.data());
        return;
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
