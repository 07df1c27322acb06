// SPDX-License-Identifier: Apache-2.0
//
// ElasticFormula<F>: the formula F of an optimiser with the force of elastic averaging (Zhang, Choromanska, LeCun
// 2015), as one formula of one element. The force pulls a parameter towards a common value, the centre c, as a
// decoupled decay pulls it towards 0. All right-hand sides are those before the update:
//
//   d = x - c,    F(w, g, state...),    w = w - moving_rate * d
//
// x is the position that replicas exchange: the parameter w or, for a formula with one more member, what it says:
//
//   float position(float w, State... state) const    all values by value, before the update
//
// Two arenas follow F's state: the centre, which is read, and the difference, to which d is written. The difference may
// be the gradient's memory, which the element has read by then; the centre moves by the mean of the differences.
#pragma once

#include <cupola/core/abi.hpp>
#include <cupola/ops/element_update.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A formula whose parameter is not the position that replicas exchange.
template <class F>
concept PositionedFormula = UpdateFormula<F> && requires { &F::position; };

template <class F, class Arguments = UpdateArguments<F>>
struct ElasticOperator;

template <class F, class G, class... State>
struct ElasticOperator<F, FormulaArguments<G, State...>> : F {
    static_assert(
        !PositionedFormula<F> || (UpdateArguments<F>::reads_gradient && !MeasuringFormula<F>),
        "a formula with a position has one part and one pass: otherwise its state would be changed before the "
        "position is computed");
    float moving_rate;

    CUPOLA_HOST_DEVICE void operator()(float& w, G g, State... state, float centre, float& difference) const {
        float x = w;
        if constexpr (PositionedFormula<F>) x = F::position(w, state...);
        const float d = x - centre;
        F::operator()(w, g, state...);
        w -= moving_rate * d;
        difference = d;
    }
};

template <class F, class Arguments = MoveArguments<F>>
struct ElasticMove;

template <class F, class... State>
struct ElasticMove<F, FormulaArguments<float, State...>> : ElasticOperator<F> {
    CUPOLA_HOST_DEVICE void move(float g, State... state, float /*centre*/, float /*difference*/) const {
        F::move(g, state...);
    }
};

template <class F>
struct ElasticFormula : ElasticOperator<F> {};
template <class F>
    requires MovingFormula<F> && (!MeasuringFormula<F>)
struct ElasticFormula<F> : ElasticMove<F> {};

template <UpdateFormula F>
[[nodiscard]] ElasticFormula<F> elastic(const F& formula, float moving_rate) {
    ElasticFormula<F> result{};
    static_cast<F&>(result) = formula;
    result.moving_rate = moving_rate;
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
