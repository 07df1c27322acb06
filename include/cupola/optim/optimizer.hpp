// SPDX-License-Identifier: Apache-2.0
//
// The contract of an optimiser, in named parts. Four parts are optional: `double state_start(int arena) const`, the
// value a state arena starts with (0 without it); `void check() const`, which throws InvalidArgument for settings that
// mean nothing; `std::string learning_rate_description() const`, for the log; `static constexpr bool captured = true`,
// for one that changes parameters by the passes of ops/ alone and in each step by the same: a GPU then repeats them
// without being told each.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/device/device.hpp>
#include <cupola/ops/gradient_terms.hpp>

namespace cupola::inline CUPOLA_ABI {

/// A part of the arena with one l2 coefficient: what a regulariser of the loss adds to the gradient is l2 * w.
struct Segment {
    std::int64_t offset = 0, size = 0;
    double l2 = 0;
    /// Of the parameter in it: 1 for a bias, 4 for a convolution's weights, 0 where it is not known.
    std::size_t rank = 0;
};

/// What an update works on: arenas of one layout on one device.
template <class Device>
struct Update {
    typename Device::Context& context;
    float* parameters = nullptr;
    const float* gradient = nullptr;
    /// `state_arenas()` arenas of `elements` floats one after another, `state_start` before the first step.
    float* state = nullptr;
    std::int64_t elements = 0;
    std::span<const Segment> segments;
    /// From 0.
    std::int64_t step = 0;
    /// What clipping made of the gradient: an update works with clamp((gradient + l2 * w) * scale, -clip, clip). A clip
    /// of 0 is none.
    float scale = 1;
    float clip = 0;
    /// A factor of `scale` that the device computes in the same step; null for none.
    const float* scale_on_device = nullptr;

    /// The arena `index` of the state.
    [[nodiscard]] float* state_arena(int index) const { return state + index * elements; }
    /// The gradient's terms in `segment`, for an optimiser with a coupled decay of its own.
    [[nodiscard]] GradientTerms terms(const Segment& segment, double weight_decay = 0) const {
        return {.l2 = static_cast<float>(segment.l2),
                .scale = scale,
                .clip = clip,
                .weight_decay = static_cast<float>(weight_decay),
                .scale_on_device = scale_on_device};
    }
};

template <class O>
concept HasStateArenas = requires(const O& optimizer) {
    { optimizer.state_arenas() } -> std::convertible_to<int>;
};

/// The names of the state arenas in a checkpoint, PyTorch's where it has one: "momentum_buffer", "exp_avg".
template <class O>
concept HasStateNames = requires(const O& optimizer, int arena) {
    { optimizer.state_name(arena) } -> std::convertible_to<std::string_view>;
};

/// One line for the log and the checkpoint: "sgd, momentum 0.9".
template <class O>
concept HasDescription = requires(const O& optimizer) {
    { optimizer.description() } -> std::convertible_to<std::string>;
};

template <class O>
concept HasLearningRate = requires(const O& optimizer, std::int64_t step) {
    { optimizer.learning_rate_at(step) } -> std::convertible_to<double>;
};

template <class O, class Device>
concept HasUpdate = requires(const O& optimizer, const Update<Device>& update) { optimizer.update(update); };

/// A plain value that is copied to each device. Its update gives the same bits on each.
template <class O, class Device>
concept Optimizer = std::copyable<O> && HasStateArenas<O> && HasStateNames<O> && HasDescription<O> &&
                    HasLearningRate<O> && HasUpdate<O, Device>;

/// What state arena `arena` starts with.
template <HasStateArenas O>
[[nodiscard]] float state_start_of(const O& optimizer, int arena) {
    if constexpr (requires { optimizer.state_start(arena); }) {
        return static_cast<float>(optimizer.state_start(arena));
    } else {
        return 0.0F;
    }
}

/// Throws InvalidArgument if the optimiser's settings mean nothing.
template <HasStateArenas O>
void check_optimizer(const O& optimizer) {
    if constexpr (requires { optimizer.check(); }) optimizer.check();
}

/// The schedule in words: "0.1, times 0.1 every 136718 steps".
template <HasStateArenas O>
[[nodiscard]] std::string learning_rate_description_of(const O& optimizer) {
    if constexpr (requires { optimizer.learning_rate_description(); }) {
        return optimizer.learning_rate_description();
    } else {
        return "custom";
    }
}

/// What `O` lacks as an optimiser on `Device`, or nothing.
template <class O, class Device>
[[nodiscard]] consteval CompileTimeMessage optimizer_diagnostic() {
    CompileTimeMessage message;
    if constexpr (Optimizer<O, Device>) return message;
    message << short_type_name<O>() << " is no optimiser on " << Device::name << ": it ";
    if constexpr (!std::copyable<O>) {
        message << "cannot be copied";
    } else if constexpr (!HasStateArenas<O>) {
        message << "lacks `int state_arenas() const`";
    } else if constexpr (!HasStateNames<O>) {
        message << "lacks `std::string_view state_name(int arena) const`";
    } else if constexpr (!HasDescription<O>) {
        message << "lacks `std::string description() const`";
    } else if constexpr (!HasLearningRate<O>) {
        message << "lacks `double learning_rate_at(std::int64_t step) const`";
    } else {
        message << "lacks `void update(const Update<Device>&) const`";
    }
    return message;
}

}  // namespace cupola::inline CUPOLA_ABI
