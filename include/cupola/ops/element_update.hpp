// SPDX-License-Identifier: Apache-2.0
//
// The update of parameters by a formula: a function object over the values of one element, whose constants an optimiser
// sets for each step. It is written once; each device supplies the loop. It is trivially copyable, because a GPU reads
// a copy.
//
//   struct Momentum {
//       float rate, momentum;
//       CUPOLA_HOST_DEVICE void operator()(float& w, float g, float& v) const {
//           v = momentum * v + g;
//           w -= rate * v;
//       }
//   };
//
// `g` is the gradient of gradient_terms.hpp, including a regulariser, clipping and a coupled decay. The arguments after
// it are the optimiser's values for the element, one per state arena; an argument taken by value is only read. A
// formula that squares g limits it by a SquareLimit, which is one of its constants. A formula may consist of two parts,
// of which the first changes the state and the second the parameter; a GPU then needs fewer registers:
//
//   void move(float g, float& v) const
//   void operator()(float& w, NoGradient, float v) const
//
// A formula whose step depends on norms over the parameter tensor has three more members, and makes two passes:
//
//   float rate                                          the factor in the second pass, operator()
//   float measured(float w, float g, float& v) const    the first pass: its squares are summed. It may change the
//                                                       state, and takes only the state that it needs
//   float trusted_rate(double squares_of_w, double squares_of_measured) const     the rate of the second pass
//
// The sums are in double and in a fixed order.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cupola/core/abi.hpp>
#include <cupola/ops/gradient_terms.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Takes the place of a gradient that a formula does not read.
struct NoGradient {};

namespace impl {

/// The arguments of a formula's operator(), its move() or its measured().
template <class G, class... State>
    requires(std::same_as<G, float> || std::same_as<G, NoGradient>) &&
            ((std::same_as<State, float> || std::same_as<State, float&>) && ...)
struct FormulaArguments {
    static constexpr bool reads_gradient = std::same_as<G, float>;
    static constexpr std::size_t states = sizeof...(State);
    [[nodiscard]] CUPOLA_HOST_DEVICE static constexpr bool is_written(std::size_t value) {
        const bool written[] = {std::is_reference_v<State>..., false};
        return written[value];
    }
};

template <class F, class G, class... State>
FormulaArguments<G, State...> arguments_of(void (F::*)(float&, G, State...) const);
template <class F, class... State>
FormulaArguments<float, State...> arguments_of(float (F::*)(float, float, State...) const);
template <class F, class... State>
FormulaArguments<float, State...> arguments_of(void (F::*)(float, State...) const);

template <class F>
using UpdateArguments = decltype(arguments_of(&F::operator()));
template <class F>
using MeasureArguments = decltype(arguments_of(&F::measured));
template <class F>
using MoveArguments = decltype(arguments_of(&F::move));

template <class F>
struct GradientOfFormula {
    using Type = GradientAt;
};
template <class F>
    requires requires { typename F::Gradient; }
struct GradientOfFormula<F> {
    using Type = typename F::Gradient;
};

}  // namespace impl

/// A function object as described at the head of this file.
template <class F>
concept UpdateFormula = std::is_trivially_copyable_v<F> && requires {
    requires impl::UpdateArguments<F>::reads_gradient || requires { &F::move; } || requires { &F::measured; };
};

/// A formula in two parts.
template <class F>
concept MovingFormula = UpdateFormula<F> && !impl::UpdateArguments<F>::reads_gradient &&
                        impl::MoveArguments<F>::states == impl::UpdateArguments<F>::states;

/// A formula with two passes.
template <class F>
concept MeasuringFormula = UpdateFormula<F> && requires(F formula) {
    requires impl::MeasureArguments<F>::states <= impl::UpdateArguments<F>::states;
    { formula.trusted_rate(0.0, 0.0) } -> std::same_as<float>;
    { formula.rate } -> std::same_as<float&>;
};

/// The number of state arenas that the formula takes.
template <UpdateFormula F>
inline constexpr std::size_t formula_states = impl::UpdateArguments<F>::states;

/// The constants of an update: computed once per step, on the host.
template <UpdateFormula F>
struct UpdateConstants {
    using Formula = F;
    GradientTerms gradient{};
    F formula{};
};

/// The first elements of the range of parameters in each state arena.
template <UpdateFormula F>
struct FormulaState {
    float* arena[formula_states<F> + 1]{};
};

namespace ops {

/// `ElementUpdate<Device>::run(context, constants, w, gradient, state, count)`, with an UpdateConstants<F> and a
/// FormulaState<F>: the update of `count` parameters.
template <class Device>
struct ElementUpdate;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
