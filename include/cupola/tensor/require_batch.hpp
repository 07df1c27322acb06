// SPDX-License-Identifier: Apache-2.0
//
// Checks before a batch is read: that it has memory, and samples of the expected extents.
#pragma once

#include <cstdint>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

[[noreturn, gnu::cold]] void throw_other_samples(std::string_view subject, const Shape& given,
                                                 std::string_view expectation, const Shape& wanted);

#ifndef CUPOLA_OPS
[[noreturn]] CUPOLA_INLINE void throw_other_samples(std::string_view subject, const Shape& given,
                                                    std::string_view expectation, const Shape& wanted) {
    throw InvalidArgument(text(subject, " samples of ", given.rank == 0 ? "no extents" : to_string(given), ", and ",
                               expectation, " ", to_string(wanted)));
}
#endif

}  // namespace impl

/// Throws InvalidArgument unless the batch is empty, or has samples of the extents `wanted` and memory for them and for
/// their labels. `expectation` ends the message: "a batch has samples of 6 x 6 x 1, and the network takes 6 x 6 x 3".
inline void require_batch(const BatchView& batch, const Shape& wanted,
                          std::string_view expectation = "the network takes") {
    require(batch.size >= 0, "a batch must have 0 or more samples, not ", batch.size);
    if (batch.size == 0) return;
    if (batch.sample_shape != wanted) impl::throw_other_samples("a batch has", batch.sample_shape, expectation, wanted);
    require(batch.samples != nullptr, "a batch of ", batch.size, " samples has a null pointer to the samples");
    require(batch.labels != nullptr, "a batch of ", batch.size, " samples has a null pointer to the labels");
}

/// The same for a source of batches, before the first one is asked for: checks its `sample_shape()`, if it has one.
template <class Batches>
void require_batches(const Batches& batches, const Shape& wanted) {
    if constexpr (requires { Shape(batches.sample_shape()); }) {
        const Shape given(batches.sample_shape());
        if (given != wanted) impl::throw_other_samples("the batches have", given, "the network takes", wanted);
    }
}

/// The same for the source of a training of `replicas` replicas: checks its `replicas()` too.
template <class Batches>
void require_batches(const Batches& batches, const Shape& wanted, int replicas) {
    require_batches(batches, wanted);
    if constexpr (requires { static_cast<int>(batches.replicas()); }) {
        const auto given = static_cast<int>(batches.replicas());
        require(given == replicas, "the batches are made for ", given, given == 1 ? " replica" : " replicas",
                ", and the training has ", replicas);
    }
}

}  // namespace cupola::inline CUPOLA_ABI
