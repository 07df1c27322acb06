// SPDX-License-Identifier: Apache-2.0
//
// The contract of an optimiser, in named parts. It changes parameters by one of two members:
//
//   template <class Apply> void formula(std::int64_t step, const Segment&, Apply&& apply) const
//       calls apply(formula, coupled) once, with the formula of ops/element_update.hpp, its constants those of the
//       step, and optionally a coupled decay, which the formula receives as a part of the gradient. The type of the
//       formula depends only on the settings and the segment, not on the step. Every device has the loop, and a GPU
//       repeats it without a new call in each step. `bool keeps_zeros() const`, optional: whether an element whose
//       parameter, state and gradient are zero keeps parameter and state zero, so that neighbouring segments may be
//       updated in one range with the padding between them.
//   void update(const Update<Device>&) const
//       the whole update, for any other computation. It is used if both members exist.
//
// Three parts are optional: `double state_start(int arena) const`, the initial value of a state arena (0 without it);
// `void check() const`, which throws InvalidArgument for invalid settings;
// `std::string learning_rate_description() const`, for the log. An optimiser with `update` may also have `void
// constants(const Update<Device>&, ConstantsWriter& to) const`, which writes the constants that its formulas use in a
// step, as optim/update_parameters.hpp does, and changes nothing: a GPU then repeats its update.
// `static constexpr bool uses_segment_factors = true` states that the update multiplies rate and decay by the factors
// of each segment, and changes nothing outside the segments: such an optimiser takes parameter groups.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/device/device.hpp>
#include <cupola/ops/element_update.hpp>
#include <cupola/optim/constants_writer.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A part of the arena with one l2 coefficient: a regulariser of the loss adds l2 * w to the gradient.
struct Segment {
    std::int64_t offset = 0, size = 0;
    double l2 = 0;
    /// The rank of the parameter in it: 1 for a bias, 4 for a convolution's weights, 0 if it is not known.
    std::size_t rank = 0;
    /// The factors of its parameter group (optim/parameter_group.hpp). A formula uses rate(learning rate) and
    /// decay(weight decay) in place of the optimiser's own; `l2` contains the factor already.
    double rate_factor = 1, decay_factor = 1;

    [[nodiscard]] double rate(double learning_rate) const { return learning_rate * rate_factor; }
    [[nodiscard]] double decay(double weight_decay) const { return weight_decay * decay_factor; }
    /// Whether an update by element has the same constants in both.
    [[nodiscard]] bool updates_like(const Segment& other) const {
        return l2 == other.l2 && rate_factor == other.rate_factor && decay_factor == other.decay_factor;
    }
};

/// The operands of an update: arenas of one layout on one device.
template <class Device>
struct Update {
    typename Device::Context& context;
    float* parameters = nullptr;
    const float* gradient = nullptr;
    /// `state_arenas()` arenas of `elements` floats one after another; filled with `state_start` before the first step.
    float* state = nullptr;
    std::int64_t elements = 0;
    std::span<const Segment> segments;
    /// The number of the step, from 0.
    std::int64_t step = 0;
    /// The result of clipping: an update uses clamp((gradient + l2 * w) * scale, -clip, clip). A clip of 0 means no
    /// clamp.
    float scale = 1;
    float clip = 0;
    /// A factor of `scale` that the device computes in the same step; null for none.
    const float* scale_on_device = nullptr;

    /// The arena `index` of the state.
    [[nodiscard]] float* state_arena(int index) const { return state + index * elements; }
    /// The terms of the gradient in `segment`, including the optimiser's own coupled decay.
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

/// The names of the state arenas in a checkpoint, PyTorch's where it has the state: "momentum_buffer", "exp_avg".
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

namespace impl {

/// The function to which a concept passes a formula: nvcc accepts no lambda in a requires-expression.
struct IgnoreFormula {
    template <class F>
    void operator()(const F&, double = 0) const {}
};

}  // namespace impl

template <class O>
concept HasFormula = requires(const O& optimizer, std::int64_t step, const Segment& segment) {
    optimizer.formula(step, segment, impl::IgnoreFormula{});
};

template <class O, class Device>
concept HasUpdate = requires(const O& optimizer, const Update<Device>& update) { optimizer.update(update); };

/// An optimiser that declares `static constexpr bool uses_segment_factors = true`, as all of Cupola's do: it multiplies
/// its learning rate and its weight decay by the factors of each segment. Only such an optimiser takes parameter groups
/// with factors.
template <class O>
concept UsesSegmentFactors = requires { requires O::uses_segment_factors; };

/// A plain value that is copied to each device. Its update gives the same bits on each device.
template <class O, class Device>
concept Optimizer = std::copyable<O> && HasStateArenas<O> && HasStateNames<O> && HasDescription<O> &&
                    HasLearningRate<O> && (HasFormula<O> || HasUpdate<O, Device>);

/// An optimiser whose constants of a step can be computed without the update, which a GPU then repeats.
template <class O, class Device>
concept RepeatableOptimizer =
    Optimizer<O, Device> &&
    (HasUpdate<O, Device> ? requires(const O& optimizer, const Update<Device>& update, ConstantsWriter& to) {
        optimizer.constants(update, to);
    } : HasFormula<O>);

/// The pull of an update towards a common value, the centre: see optim/elastic_update.hpp. Arenas with the layout of
/// the parameters, on their device.
struct ElasticForce {
    const float* centre = nullptr;
    /// Takes d for each element of the update's segments. May be the gradient.
    float* difference = nullptr;
    /// The fraction of d by which a parameter moves: alpha of the paper. 0 writes the difference alone.
    double moving_rate = 0;
};

template <class O, class Device>
concept HasElasticUpdate = requires(const O& optimizer, const Update<Device>& update, const ElasticForce& force) {
    optimizer.update(update, force);
};

/// An optimiser whose update takes a force.
template <class O, class Device>
concept ElasticOptimizer = Optimizer<O, Device> && (HasUpdate<O, Device> ? HasElasticUpdate<O, Device> : HasFormula<O>);

/// The initial value of state arena `arena`.
template <HasStateArenas O>
[[nodiscard]] float state_start_of(const O& optimizer, int arena) {
    if constexpr (requires { optimizer.state_start(arena); }) {
        return static_cast<float>(optimizer.state_start(arena));
    } else {
        return 0.0F;
    }
}

/// Whether an element whose parameter, state and gradient are zero keeps them so; false if the optimiser does not say.
template <HasFormula O>
[[nodiscard]] bool keeps_zeros_of(const O& optimizer) {
    if constexpr (requires { optimizer.keeps_zeros(); }) {
        return optimizer.keeps_zeros();
    } else {
        return false;
    }
}

/// Throws InvalidArgument if the optimiser's settings are invalid.
template <HasStateArenas O>
void check_optimizer(const O& optimizer) {
    if constexpr (requires { optimizer.check(); }) optimizer.check();
}

/// A description of the schedule: "0.1, times 0.1 every 136718 steps".
template <HasStateArenas O>
[[nodiscard]] std::string learning_rate_description_of(const O& optimizer) {
    if constexpr (requires { optimizer.learning_rate_description(); }) {
        return optimizer.learning_rate_description();
    } else {
        return "custom";
    }
}

/// The error message for a type `O` that is not an optimiser on `Device`; empty if it is one.
template <class O, class Device>
[[nodiscard]] consteval CompileTimeMessage optimizer_diagnostic() {
    CompileTimeMessage message;
    if constexpr (Optimizer<O, Device>) return message;
    message << short_type_name<O>() << " is not an optimiser on " << Device::name << ": it ";
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
        message << "lacks `void formula(std::int64_t step, const Segment&, auto&& apply) const` or `void update(const "
                   "Update<Device>&) const`";
    }
    return message;
}

}}  // namespace cupola::CUPOLA_ABI
