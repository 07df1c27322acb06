// SPDX-License-Identifier: Apache-2.0
//
// PartMemory: the arrays of one device of a group, where each device has memory of its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/error.hpp>
#include <cupola/parallel/pipeline/device_parts.hpp>
#include <cupola/parallel/pipeline/part_columns.hpp>
#include <cupola/tensor/batch_memory.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// What a device has for its parts in memory of its own: parameters, gradient rows and running statistics of its
/// columns, a status, and the targets of the batches in flight.
template <class Device>
class PartMemory {
public:
    using Arena = typename Device::Arena;

    /// For the parts with these columns. `kept_batches` is the number of batches whose targets the device has.
    PartMemory(const GroupMemory& group, const PartColumns& columns, std::size_t kept_batches)
        : columns_(columns),
          parameter_lines_(in_lines(columns.parameters())),
          row_lines_(in_lines(columns.trained)),
          copies_(static_cast<std::size_t>(group.copies)),
          replicas_(static_cast<std::size_t>(group.replicas)),
          buffer_bytes_(static_cast<std::size_t>(group.buffer_elements) * sizeof(float)),
          status_bytes_(group.status_bytes),
          batches_bytes_(kept_batches == 0 ? 0 : kept_batches * batch_bytes(group.columns, group.batch_size)) {}

    [[nodiscard]] std::size_t bytes() const {
        return parameter_bytes() + row_bytes() + buffer_bytes_ + status_bytes_ + batches_bytes_;
    }
    [[gnu::cold]] void allocate(int ordinal) {
        parameters_ = Arena(parameter_bytes(), text("the parameters of device ", ordinal));
        rows_ = Arena(row_bytes(), text("the gradients of device ", ordinal));
        buffers_ = Arena(buffer_bytes_, text("the running statistics of device ", ordinal));
        status_ = Arena(status_bytes_, text("the numbers that steps report of device ", ordinal));
        batches_ = Arena(batches_bytes_, text("the targets of the batches in flight on device ", ordinal));
    }

    [[nodiscard]] const PartColumns& columns() const { return columns_; }
    /// Where element 0 of all parameters, or of a whole gradient, would lie; only the columns of the parts exist.
    [[nodiscard]] float* parameters(int copy) { return at(parameters_, parameter_lines_, copy); }
    [[nodiscard]] float* row(int local_replica) { return at(rows_, row_lines_, local_replica); }
    /// All of them, of which those of the parts are used.
    [[nodiscard]] float* buffers() { return reinterpret_cast<float*>(buffers_.data()); }
    [[nodiscard]] std::byte* status() { return status_.data(); }
    [[nodiscard]] std::byte* batches() { return batches_.data(); }

private:
    /// The range in whole units, so that each element is aligned as it is in the array of all.
    [[nodiscard]] static ElementRange in_lines(const ElementRange& range) {
        constexpr std::int64_t unit = 64;
        return {range.begin / unit * unit, (range.end + unit - 1) / unit * unit};
    }
    /// Where element 0 of array `i` would lie: an integer, since that may be outside of the arena.
    [[nodiscard]] static float* at(Arena& arena, const ElementRange& lines, int i) {
        const std::int64_t before = i * lines.size() - lines.begin;
        const auto begin = reinterpret_cast<std::uintptr_t>(arena.data());
        return reinterpret_cast<float*>(begin + static_cast<std::uintptr_t>(before) * sizeof(float));  // NOLINT
    }
    [[nodiscard]] std::size_t parameter_bytes() const {
        return copies_ * static_cast<std::size_t>(parameter_lines_.size()) * sizeof(float);
    }
    [[nodiscard]] std::size_t row_bytes() const {
        return replicas_ * static_cast<std::size_t>(row_lines_.size()) * sizeof(float);
    }

    PartColumns columns_;
    ElementRange parameter_lines_, row_lines_;
    std::size_t copies_, replicas_, buffer_bytes_, status_bytes_, batches_bytes_;
    Arena parameters_, rows_, buffers_, status_, batches_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
