// SPDX-License-Identifier: Apache-2.0
//
// GatheredPeers: the other processes of a collective, which gathers the status blocks of all devices with each step.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/error.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/replicas/status.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The part of a device's status that the collective gathers, and where it writes those of all ranks.
template <class D, class T>
[[nodiscard]] RankBlocks rank_blocks(Replicas<D, T>& replicas, int device) {
    if (!replicas.settings().gathers_blocks()) return {};
    std::byte* const block = replicas.at(device).queue->status();
    return {.mine = replicas.at(device).layout.own_block(block),
            .all = replicas.at(device).layout.blocks_of_ranks(block)};
}

/// Reads the results of the others' batches from the blocks that have come with a step. A process also sets flags there
/// for the processes' agreement between steps: bits that each step carries to all.
template <class D, class T>
class GatheredPeers : public Peers {
public:
    /// `replicas` gathers blocks; it must outlive the object.
    [[gnu::cold]] explicit GatheredPeers(Replicas<D, T>& replicas) : replicas_(replicas) {}

    /// The flags of this process for the steps that are queued from now on; 0 at first.
    void set_flags(int flags) { flags_ = flags; }
    /// The flags that any process has set in the last step that read_flags() was called for.
    [[nodiscard]] int flags_of_all() const { return flags_of_all_; }

    void queue_flags(int device) override {
        typename D::Queue& queue = *replicas_.at(device).queue;
        queue.write(replicas_.at(device).layout.flags(queue.status()), flags_);
    }
    void read_flags(std::int64_t step) override {
        std::int64_t all = 0;
        std::byte* const block = replicas_.at(0).queue->landed(step);
        for (int rank = 0; rank < replicas_.placement().process_count() * replicas_.placement().device_count(); ++rank)
            all |= *replicas_.at(0).layout.flags(replicas_.at(0).layout.of_rank(block, rank));
        flags_of_all_ = static_cast<int>(all);
    }
    void read_samples(std::int64_t step, SampleCounts& counts) override {
        for (int r = 0; r < replicas_.placement().replicas(); ++r) {
            if (replicas_.placement().is_here(r)) continue;
            for (int part = 0; part < replicas_.settings().gradient_accumulation_steps; ++part)
                counts.of(step, part, r) =
                    *replicas_.at(replicas_.placement().device_of(r))
                         .layout.samples(landed(step, r), replicas_.placement().batch_number(r, part));
        }
    }
    [[nodiscard]] BatchResult result_of(std::int64_t step, int replica, int part) override {
        return replicas_.at(replicas_.placement().device_of(replica))
            .layout.result(landed(step, replica), replicas_.placement().batch_number(replica, part));
    }
    void gather(const ExchangeName& name, std::byte*, std::size_t) override {
        throw InvalidArgument(text("the collective of this training has no gather() for ", name.operation));
    }
    void read_together(bool on) override { reads_together_ = on; }
    [[nodiscard]] bool reads_together() const override { return reads_together_; }

protected:
    Replicas<D, T>& replicas_;

private:
    /// Where the block of another process's replica is, in the copy that the host reads.
    [[nodiscard]] std::byte* landed(std::int64_t step, int replica) {
        const int rank = replicas_.placement().process_of(replica) * replicas_.placement().device_count() +
                         replicas_.placement().device_of(replica);
        return replicas_.at(0).layout.of_rank(replicas_.at(0).queue->landed(step), rank);
    }

    std::int64_t flags_ = 0;
    int flags_of_all_ = 0;
    bool reads_together_ = false;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
