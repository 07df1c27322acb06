// SPDX-License-Identifier: Apache-2.0
//
// The contract of an optimiser, in named parts.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>

#include <cupola/core/sentence.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/device/device.hpp>

namespace cupola::inline CUPOLA_ABI {

/// A part of the arena with one l2 coefficient: what a regulariser of the loss adds to the gradient is l2 * w.
struct Segment {
    std::int64_t offset = 0, size = 0;
    double l2 = 0;
};

/// What an update works on: arenas of one layout on one device.
template <class Device>
struct Update {
    typename Device::Context& context;
    float* parameters = nullptr;
    const float* gradient = nullptr;
    /// `state_arenas()` arenas of `elements` floats one after another, zero before the first step.
    float* state = nullptr;
    std::int64_t elements = 0;
    std::span<const Segment> segments;
    std::int64_t step = 0;
};

template <class O>
concept HasStateArenas = requires(const O& optimizer) {
    { optimizer.state_arenas() } -> std::convertible_to<int>;
};

template <class O>
concept HasLearningRate = requires(const O& optimizer, std::int64_t step) {
    { optimizer.learning_rate_at(step) } -> std::convertible_to<double>;
};

template <class O, class Device>
concept HasUpdate = requires(const O& optimizer, const Update<Device>& update) { optimizer.update(update); };

/// A plain value that is copied to each device. Its update gives the same bits on each.
template <class O, class Device>
concept Optimizer = std::copyable<O> && HasStateArenas<O> && HasLearningRate<O> && HasUpdate<O, Device>;

/// What `O` lacks as an optimiser on `Device`, or nothing.
template <class O, class Device>
[[nodiscard]] consteval Sentence optimizer_mistake() {
    Sentence sentence;
    if constexpr (Optimizer<O, Device>) return sentence;
    sentence << short_type_name<O>() << " is no optimiser on " << Device::name << ": it ";
    if constexpr (!std::copyable<O>) {
        sentence << "cannot be copied";
    } else if constexpr (!HasStateArenas<O>) {
        sentence << "lacks `int state_arenas() const`";
    } else if constexpr (!HasLearningRate<O>) {
        sentence << "lacks `double learning_rate_at(std::int64_t step) const`";
    } else {
        sentence << "lacks `void update(const Update<Device>&) const`";
    }
    return sentence;
}

}  // namespace cupola::inline CUPOLA_ABI
