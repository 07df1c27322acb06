// SPDX-License-Identifier: Apache-2.0
//
// Where an optimiser's constants are while a step is captured: its launches are given places on the device, the same in
// each step, and read there what the step has queued before them.
//
//   begin(false), the optimiser's update, and what queues values():   this step's constants; nothing is launched
//   begin(true), the optimiser's update:                              captured once, or launched anew each step
//
// What values() was first called after is the sequence of every step: another throws InvalidArgument, as nothing
// captured would fit it.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/device/cuda.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

class StepConstants {
public:
    /// Enough for LAMB over 5,000 parameters; what a step does not use costs it nothing.
    static constexpr std::size_t max_bytes = std::size_t{1} << 18;
    /// Each constant begins at a multiple of this, for loads of 16 bytes.
    static constexpr std::size_t each_aligned = 16;

    /// `place` is on the device.
    explicit StepConstants(CudaArena place)
        : arena_(std::move(place)), on_device_(arena_.data()), capacity_(arena_.size()) {}
    /// In memory of the device that outlives this, aligned as its kind is.
    StepConstants(std::byte* on_device, std::size_t bytes) : on_device_(on_device), capacity_(bytes) {}

    /// Before each call of the optimiser's update.
    void begin(bool launching) {
        if (!fixed_) sequence_.clear();
        values_.clear();
        taken_ = 0;
        launching_ = launching;
    }
    /// Whether what is being updated launches; otherwise the step only gathers constants.
    [[nodiscard]] bool launching() const { return launching_; }

    /// The place of `k` on the device. `launched_as` tells the launches apart that one operation chooses among: it is
    /// the same in each step, as the size is.
    template <class K>
    [[nodiscard]] const K* take(const K& k, int launched_as = 0) {
        static_assert(std::is_trivially_copyable_v<K> && alignof(K) <= each_aligned);
        const std::size_t offset = place_for({sizeof(K), launched_as});
        std::memcpy(values_.data() + offset, &k, sizeof(K));
        return reinterpret_cast<const K*>(on_device_ + offset);
    }

    /// The constants since begin(), as they are to lie on the device, a multiple of 16 bytes; until the next begin().
    [[nodiscard]] std::span<const std::byte> values() const {
        require(!fixed_ || taken_ == sequence_.size(), "the optimiser has ", taken_, " constants in this step and had ",
                sequence_.size(),
                " in the first: a step on Cuda is captured once, and the next are to launch the same");
        fixed_ = true;
        return values_;
    }
    [[nodiscard]] std::byte* on_device() const { return on_device_; }

private:
    struct Taken {
        std::size_t bytes = 0;
        int launched_as = 0;

        bool operator==(const Taken&) const = default;
    };

    [[nodiscard]] std::size_t place_for(const Taken& taken) {
        const std::size_t offset = values_.size();
        const std::size_t end = offset + (taken.bytes + each_aligned - 1) / each_aligned * each_aligned;
        require(end <= capacity_, "the constants of the optimiser's step need more than the ", capacity_,
                " bytes that there are: number ", taken_, " ends at byte ", end);
        if (fixed_) {
            require(taken_ < sequence_.size(), "the optimiser has more constants in this step than the ",
                    sequence_.size(),
                    " of the first: a step on Cuda is captured once, and the next are to launch the same");
            const Taken& first = sequence_[taken_];
            require(taken == first, "constant ", taken_, " of the optimiser's step has ", taken.bytes,
                    " bytes and is launched as ", taken.launched_as, ", and had ", first.bytes, " and ",
                    first.launched_as,
                    " in the first: a step on Cuda is captured once, and the next are to launch the same");
        } else {
            sequence_.push_back(taken);
        }
        ++taken_;
        values_.resize(end);
        return offset;
    }

    CudaArena arena_;
    std::byte* on_device_;
    std::size_t capacity_;
    std::vector<std::byte> values_;
    std::vector<Taken> sequence_;
    std::size_t taken_ = 0;
    bool launching_ = false;
    /// Whether the sequence is that of every step. A sequence broken off before its values were asked for never is.
    mutable bool fixed_ = false;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
