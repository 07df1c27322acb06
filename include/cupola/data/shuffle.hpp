// SPDX-License-Identifier: Apache-2.0
//
// The order in which a training run sees the samples: an endless stream, one permutation of the data set per epoch.
//
// Epoch e's permutation is a pure function of (seed, e) and follows epoch e - 1's without a gap, so each sample occurs
// exactly once per epoch, batches are always full, and any position of the stream can be looked up at any time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/philox.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Fills `order` with the permutation of 0 .. size-1 of one epoch (Fisher and Yates; draw i decides place i).
void shuffle(std::span<std::uint32_t> order, std::uint64_t seed, std::uint32_t epoch);

/// One position of the stream: which sample, and in which epoch, for its random augmentations.
struct SampleOfEpoch {
    std::uint32_t index = 0, epoch = 0;
};

/// Looks up positions of the stream. Any number of threads may do so at once: the two epochs that were used last are
/// kept, behind a lock, and no look-up allocates. Each look-up in the second half of an epoch computes a part of the
/// next permutation, so that none has to compute all of it.
class ShuffledOrder {
public:
    ShuffledOrder(std::int64_t size, std::uint64_t seed);

    [[nodiscard]] std::int64_t size() const { return size_; }
    [[nodiscard]] std::uint64_t seed() const { return seed_; }
    /// The text by which two runs are compared, in addition to the seed.
    static constexpr std::string_view description() { return "shuffled"; }

    /// The samples at the places [first, first + places.size()).
    void samples_at(std::int64_t first, std::span<SampleOfEpoch> places) const;

private:
    static constexpr std::int64_t max_size = 0xFFFF'FFFF, max_epoch = 0xFFFF'FFFF;
    struct Permutation {
        std::int64_t epoch = -1;
        FixedArray<std::uint32_t> order;
        std::size_t left = 0;  ///< the places that are not decided yet
    };
    struct Cache {
        std::mutex mutex;
        std::array<Permutation, 2> permutations;
    };

    Permutation& begun(std::int64_t epoch) const;
    const Permutation& at(std::int64_t epoch) const;
    void advance(Permutation& permutation, std::size_t places) const;

    std::int64_t size_;
    std::uint64_t seed_;
    std::unique_ptr<Cache> cache_;
};

#ifndef CUPOLA_OPS

namespace impl {

/// Decides the places [begin, end) of a permutation whose later ones are decided.
inline void decide_places(std::span<std::uint32_t> order, std::size_t begin, std::size_t end, std::uint64_t seed,
                          std::uint32_t epoch) {
    for (std::size_t i = end; i-- > begin;) {
        const std::uint32_t word = RandomStream(seed, RngDomain::shuffle, epoch, i).words(0)[0];
        std::swap(order[i], order[uniform_below(word, static_cast<std::uint32_t>(i) + 1)]);
    }
}

}  // namespace impl

CUPOLA_INLINE void shuffle(std::span<std::uint32_t> order, std::uint64_t seed, std::uint32_t epoch) {
    std::iota(order.begin(), order.end(), 0U);
    impl::decide_places(order, 0, order.size(), seed, epoch);
}

CUPOLA_INLINE ShuffledOrder::ShuffledOrder(std::int64_t size, std::uint64_t seed)
    : size_(size), seed_(seed), cache_(std::make_unique<Cache>()) {
    require(size >= 1 && size <= max_size, "a data set of ", size,
            " samples cannot be shuffled: the number of samples must be 1 to ", max_size);

    for (Permutation& permutation : cache_->permutations)
        permutation.order = FixedArray<std::uint32_t>(static_cast<std::size_t>(size));
}

CUPOLA_INLINE void ShuffledOrder::samples_at(std::int64_t first, std::span<SampleOfEpoch> places) const {
    require(first >= 0 && (first + static_cast<std::int64_t>(places.size())) / size_ <= max_epoch, "position ", first,
            " of the sample stream is outside the epochs 0 to ", max_epoch);
    const std::scoped_lock lock(cache_->mutex);
    for (SampleOfEpoch& place : places) {
        const std::int64_t epoch = first / size_;
        const Permutation& permutation = at(epoch);
        place = {permutation.order[static_cast<std::size_t>(first % size_)], static_cast<std::uint32_t>(epoch)};
        ++first;
    }
    // The epoch before is no longer read; the permutation of the next one uses its memory.
    if (first % size_ > size_ / 2 && first / size_ < max_epoch)
        advance(begun(first / size_ + 1), 2 * places.size() + 1);
}

CUPOLA_INLINE ShuffledOrder::Permutation& ShuffledOrder::begun(std::int64_t epoch) const {
    Permutation& permutation = cache_->permutations[static_cast<std::size_t>(epoch % 2)];
    if (permutation.epoch != epoch) {
        std::iota(permutation.order.begin(), permutation.order.end(), 0U);
        permutation.left = permutation.order.size();
        permutation.epoch = epoch;
    }
    return permutation;
}

CUPOLA_INLINE const ShuffledOrder::Permutation& ShuffledOrder::at(std::int64_t epoch) const {
    Permutation& permutation = begun(epoch);
    advance(permutation, permutation.left);
    return permutation;
}

CUPOLA_INLINE void ShuffledOrder::advance(Permutation& permutation, std::size_t places) const {
    const std::size_t end = permutation.left;
    permutation.left -= std::min(end, places);
    impl::decide_places(permutation.order, permutation.left, end, seed_, static_cast<std::uint32_t>(permutation.epoch));
}

#endif

}}  // namespace cupola::CUPOLA_ABI
