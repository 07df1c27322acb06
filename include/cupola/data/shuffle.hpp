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

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/data/shuffle.ipp>
#endif
