// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/data/shuffle.hpp.
#pragma once

#include <cupola/data/shuffle.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

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

CUPOLA_DECL void shuffle(std::span<std::uint32_t> order, std::uint64_t seed, std::uint32_t epoch) {
    std::iota(order.begin(), order.end(), 0U);
    impl::decide_places(order, 0, order.size(), seed, epoch);
}

CUPOLA_DECL ShuffledOrder::ShuffledOrder(std::int64_t size, std::uint64_t seed)
    : size_(size), seed_(seed), cache_(std::make_unique<Cache>()) {
    require(size >= 1 && size <= max_size, "a data set of ", size,
            " samples cannot be shuffled: the number of samples must be 1 to ", max_size);

    for (Permutation& permutation : cache_->permutations)
        permutation.order = FixedArray<std::uint32_t>(static_cast<std::size_t>(size));
}

CUPOLA_DECL void ShuffledOrder::samples_at(std::int64_t first, std::span<SampleOfEpoch> places) const {
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

CUPOLA_DECL ShuffledOrder::Permutation& ShuffledOrder::begun(std::int64_t epoch) const {
    Permutation& permutation = cache_->permutations[static_cast<std::size_t>(epoch % 2)];
    if (permutation.epoch != epoch) {
        std::iota(permutation.order.begin(), permutation.order.end(), 0U);
        permutation.left = permutation.order.size();
        permutation.epoch = epoch;
    }
    return permutation;
}

CUPOLA_DECL const ShuffledOrder::Permutation& ShuffledOrder::at(std::int64_t epoch) const {
    Permutation& permutation = begun(epoch);
    advance(permutation, permutation.left);
    return permutation;
}

CUPOLA_DECL void ShuffledOrder::advance(Permutation& permutation, std::size_t places) const {
    const std::size_t end = permutation.left;
    permutation.left -= std::min(end, places);
    impl::decide_places(permutation.order, permutation.left, end, seed_, static_cast<std::uint32_t>(permutation.epoch));
}

}}  // namespace cupola::CUPOLA_ABI
