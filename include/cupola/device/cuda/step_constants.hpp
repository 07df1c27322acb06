// SPDX-License-Identifier: Apache-2.0
//
// The constants of an optimiser in a step that is captured once and run many times: the launches read them at addresses
// on the device that are the same in each step, after the step has copied them there. They are computed once per step,
// then applied:
//
//   begin(), write(k) for each constant in order, a queued copy of values()   the constants of this step
//   rewind(), the update, whose launches take<K>() their addresses in order   captured once, or launched in each step
//
// The first call of values() fixes the sequence of constants for every step: another sequence throws InvalidArgument,
// because no captured launch would fit it.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/device/cuda.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class StepConstants {
public:
    /// Enough for LAMB over 5,000 parameters; bytes that a step does not use cost it nothing.
    static constexpr std::size_t max_bytes = std::size_t{1} << 18;
    /// Each constant begins at a multiple of this, for loads of 16 bytes.
    static constexpr std::size_t each_aligned = 16;

    /// `place` is on the device.
    explicit StepConstants(CudaArena place)
        : arena_(std::move(place)), on_device_(arena_.data()), capacity_(arena_.size()) {}
    /// `on_device` is in device memory that outlives this object, with an arena's alignment.
    StepConstants(std::byte* on_device, std::size_t bytes) : on_device_(on_device), capacity_(bytes) {}

    /// Called before the step's constants are written.
    void begin() {
        if (!fixed_) sequence_.clear();
        values_.clear();
        place_ = 0;
    }
    template <class K>
    void write(const K& k) {
        static_assert(std::is_trivially_copyable_v<K> && alignof(K) <= each_aligned);
        write(type_name<K>(), std::as_bytes(std::span(&k, 1)));
    }
    /// Writes a constant of a trivially copyable type by its name and its bytes.
    void write(std::string_view type, std::span<const std::byte> bytes) {
        const std::size_t offset = values_.size();
        const std::size_t end = offset + aligned_size(bytes.size());
        require(end <= capacity_, "the constants of the optimiser's step need more than their ", capacity_,
                " bytes of memory: constant ", place_, " ends at byte ", end);
        if (!fixed_) sequence_.push_back({type, offset});
        require_kind(type);
        ++place_;
        values_.resize(end);
        std::memcpy(values_.data() + offset, bytes.data(), bytes.size());
    }
    /// Called before each update that takes the constants.
    void rewind() { place_ = 0; }
    /// The address of the next constant on the device.
    template <class K>
    [[nodiscard]] const K* take() {
        require_kind(type_name<K>());
        return reinterpret_cast<const K*>(on_device_ + sequence_[place_++].offset);
    }

    /// The constants since begin() in their layout on the device, a multiple of 16 bytes; valid until the next begin().
    [[nodiscard]] std::span<const std::byte> values() const {
        require(place_ == sequence_.size(), "the optimiser has ", place_, " constants in this step and had ",
                sequence_.size(), " in the first: ", captured_once);
        fixed_ = true;
        return values_;
    }
    [[nodiscard]] std::byte* on_device() const { return on_device_; }

private:
    struct Constant {
        std::string_view type;
        std::size_t offset = 0;
    };
    static constexpr std::string_view captured_once =
        "a step on Cuda is captured once and then repeated, so its constants must stay the same in number and type";
    [[nodiscard]] static constexpr std::size_t aligned_size(std::size_t bytes) {
        return (bytes + each_aligned - 1) / each_aligned * each_aligned;
    }

    /// Throws InvalidArgument unless the next constant is of the first step's type.
    void require_kind(std::string_view type) const {
        require(place_ < sequence_.size(), "the optimiser has more constants in this step than the ", sequence_.size(),
                " of the first: ", captured_once);
        require(sequence_[place_].type == type, "constant ", place_, " of the optimiser's step is ", type, ", and was ",
                sequence_[place_].type, " in the first: ", captured_once);
    }

    CudaArena arena_;
    std::byte* on_device_;
    std::size_t capacity_;
    std::vector<std::byte> values_;
    std::vector<Constant> sequence_;
    /// The number of the constant that is written or taken next.
    std::size_t place_ = 0;
    /// Whether the sequence is fixed. A sequence that was interrupted before values() was called is never fixed.
    mutable bool fixed_ = false;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
