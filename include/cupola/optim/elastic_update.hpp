// SPDX-License-Identifier: Apache-2.0
//
// An update with the force of elastic averaging: the optimiser's own, and in the same pass a pull of each parameter
// towards a common value, the centre:
//
//   d = x - c,    the optimiser's update of w,    w = w - moving_rate * d
//
// with the values of x, c and the gradient before the update; see ops/elastic_formula.hpp. Every optimiser with a
// formula takes a force. One whose `update` member replaces the formula takes one if it has two members more:
//
//   void update(const Update<Device>&, const ElasticForce&) const
//   void constants(const Update<Device>&, const ElasticForce&, ConstantsWriter& to) const    where it has constants()
//
// The type of a formula with a force is another one, so an update without a force is unchanged.
#pragma once

#include <algorithm>
#include <cstddef>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/ops/elastic_formula.hpp>
#include <cupola/optim/constants_writer.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/update_parameters.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The error message for an optimiser that takes no force; empty for one that does.
template <class O, class Device>
[[nodiscard]] consteval CompileTimeMessage elastic_diagnostic() {
    CompileTimeMessage message = optimizer_diagnostic<O, Device>();
    if (ElasticOptimizer<O, Device> || !message.empty()) return message;
    message << short_type_name<O>()
            << " takes no elastic force: its `update` is no formula of one element, and it lacks "
            << "`void update(const Update<Device>&, const ElasticForce&) const`";
    return message;
}

namespace impl {

/// Calls each(segment, constants, state) for each range of an update with a force.
template <HasFormula O, class Device, class Each>
void for_each_elastic_formula(const O& optimizer, const Update<Device>& u, const ElasticForce& force,
                              const Each& each) {
    for_each_formula(optimizer, u, [&]<class F>(const Segment& segment, const UpdateConstants<F>& constants) {
        constexpr std::size_t own = formula_states<F>;
        const FormulaState<F> before = state_in<F>(u, segment);
        FormulaState<ElasticFormula<F>> state;
        std::copy_n(before.arena, own, state.arena);
        state.arena[own] = const_cast<float*>(force.centre) + segment.offset;  // NOLINT: the formula only reads it
        state.arena[own + 1] = force.difference + segment.offset;
        each(segment,
             UpdateConstants<ElasticFormula<F>>{constants.gradient,
                                                elastic(constants.formula, static_cast<float>(force.moving_rate))},
             state);
    });
}

}  // namespace impl

/// Updates the parameters and the state by one step, and pulls them towards the centre.
template <class O, class Device>
    requires Optimizer<O, Device>
void update_parameters(const O& optimizer, const Update<Device>& u, const ElasticForce& force) {
    if constexpr (!ElasticOptimizer<O, Device>) {
        static_assert(static_assert_message<elastic_diagnostic<O, Device>()>());
    } else if constexpr (HasUpdate<O, Device>) {
        optimizer.update(u, force);
    } else {
        impl::for_each_elastic_formula(
            optimizer, u, force, [&](const Segment& s, const auto& constants, const auto& state) {
                ops::ElementUpdate<Device>::run(u.context, constants, u.parameters + s.offset, u.gradient + s.offset,
                                                state, s.size);
            });
    }
}

/// Writes the constants that update_parameters(optimizer, u, force) uses in this step, in the same order.
/// Changes nothing else.
template <class O, class Device>
    requires RepeatableOptimizer<O, Device> && ElasticOptimizer<O, Device>
void write_constants(const O& optimizer, const Update<Device>& u, const ElasticForce& force, ConstantsWriter& to) {
    if constexpr (HasUpdate<O, Device>) {
        optimizer.constants(u, force, to);
    } else {
        impl::for_each_elastic_formula(
            optimizer, u, force, [&](const Segment&, const auto& constants, const auto&) { to.write(constants); });
    }
}

}}  // namespace cupola::CUPOLA_ABI
