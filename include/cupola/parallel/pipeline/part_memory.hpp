// SPDX-License-Identifier: Apache-2.0
//
// PartMemory: what a device of a group has for its own use, where each device has memory of its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/error.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/batch_memory.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// What a group has beside its plans.
struct GroupMemory {
    /// The elements of the rows of its arrays.
    std::int64_t parameter_elements = 0, trained_elements = 0, buffer_elements = 0;
    std::size_t status_bytes = 0;
    /// The columns of a batch, of at most `batch_size` samples.
    Columns columns{};
    std::int64_t batch_size = 0;
    /// Whether each batch is copied to memory of its own, because its source gives the next one before it has been
    /// used.
    bool keeps_batches = false;
};

/// A status, and the targets of the batches in flight.
template <class Device>
class PartMemory {
public:
    using Arena = typename Device::Arena;

    /// `kept_batches` is the number of batches whose targets the device has.
    PartMemory(const GroupMemory& group, std::size_t kept_batches)
        : status_bytes_(group.status_bytes),
          batches_bytes_(kept_batches == 0 ? 0 : kept_batches * batch_bytes(group.columns, group.batch_size)) {}

    [[nodiscard]] std::size_t bytes() const { return status_bytes_ + batches_bytes_; }
    [[gnu::cold]] void allocate(int ordinal) {
        status_ = Arena(status_bytes_, text("the numbers that steps report of device ", ordinal));
        batches_ = Arena(batches_bytes_, text("the targets of the batches in flight on device ", ordinal));
    }

    [[nodiscard]] std::byte* status() { return status_.data(); }
    [[nodiscard]] std::byte* batches() { return batches_.data(); }

private:
    std::size_t status_bytes_, batches_bytes_;
    Arena status_, batches_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
