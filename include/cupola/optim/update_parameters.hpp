// SPDX-License-Identifier: Apache-2.0
//
// The use of an optimiser in a step: the update and, on a device that repeats it, the step's constants before it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/error.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/device/device.hpp>
#include <cupola/ops/element_update.hpp>
#include <cupola/optim/constants_writer.hpp>
#include <cupola/optim/optimizer.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Calls each(segment) for each range that is one pass, of an update whose elements are independent of each other: on a
/// device where each pass is a launch, neighbouring segments with equal coefficients and factors are one range. A range
/// includes the arena's padding: zeros whose gradient is zero, which the pass leaves unchanged according to
/// `keeps_zeros`.
template <class Device, class Each>
void for_each_contiguous_segment(const Update<Device>& u, bool keeps_zeros, const Each& each) {
    constexpr std::int64_t line = alignment / sizeof(float);  // each parameter begins at a multiple of it
    bool joins = false;
    if constexpr (requires { Device::joins_segments; }) joins = Device::joins_segments && keeps_zeros;
    for (std::size_t i = 0; i < u.segments.size();) {
        Segment range = u.segments[i++];
        for (; joins && i < u.segments.size(); ++i) {
            const Segment& next = u.segments[i];
            if (!next.updates_like(range) || next.offset != (range.offset + range.size + line - 1) / line * line) break;
            range.size = next.offset + next.size - range.offset;
            range.rank = 0;
        }
        each(range);
    }
}

/// The address of the formula's state in a segment.
template <class F, class Device>
[[nodiscard]] FormulaState<F> state_in(const Update<Device>& u, const Segment& segment) {
    FormulaState<F> state;
    for (int k = 0; k < static_cast<int>(formula_states<F>); ++k) state.arena[k] = u.state_arena(k) + segment.offset;
    return state;
}

/// A separate function, so that the error for a type is reported once.
template <class F>
consteval bool is_update_formula() {
    static_assert(
        UpdateFormula<F>,
        "a formula must be a function object of plain numbers with `void operator()(float& w, float g, float&... "
        "state) const`: see <cupola/ops/element_update.hpp>");
    return UpdateFormula<F>;
}

/// Calls each(segment, constants) for each range of an update, with the UpdateConstants of its formula.
template <HasFormula O, class Device, class Each>
void for_each_formula(const O& optimizer, const Update<Device>& u, const Each& each) {
    for_each_contiguous_segment(u, keeps_zeros_of(optimizer), [&](const Segment& segment) {
        int formulas = 0;
        optimizer.formula(u.step, segment, [&]<class F>(const F& formula, double coupled = 0) {
            ++formulas;
            if constexpr (is_update_formula<F>()) {
                require(static_cast<int>(formula_states<F>) <= optimizer.state_arenas(), short_type_name<F>(),
                        " takes ", formula_states<F>, " values of state per parameter, but its optimiser has ",
                        optimizer.state_arenas());
                each(segment, UpdateConstants<F>{u.terms(segment, coupled), formula});
            }
        });
        require(formulas == 1, "the optimiser ", short_type_name<O>(),
                " must call apply(formula) once per segment, not ", formulas, " times");
    });
}

template <HasFormula O, class Device>
void update_by_formula(const O& optimizer, const Update<Device>& u) {
    for_each_formula(optimizer, u, [&]<class F>(const Segment& s, const UpdateConstants<F>& constants) {
        ops::ElementUpdate<Device>::run(u.context, constants, u.parameters + s.offset, u.gradient + s.offset,
                                        state_in<F>(u, s), s.size);
    });
}

template <HasFormula O, class Device>
void write_constants_by_formula(const O& optimizer, const Update<Device>& u, ConstantsWriter& to) {
    for_each_formula(optimizer, u, [&](const Segment&, const auto& constants) { to.write(constants); });
}

/// Members of a class, so that src.hpp can compile them once: see compiled_training.hpp.
template <class O, class Device>
struct FormulaUpdate {
    static void apply(const O& optimizer, const Update<Device>& u) { update_by_formula(optimizer, u); }
    static void write_constants(const O& optimizer, const Update<Device>& u, ConstantsWriter& to) {
        write_constants_by_formula(optimizer, u, to);
    }
};

}  // namespace impl

/// Updates the parameters and the state by one step.
template <class O, class Device>
    requires Optimizer<O, Device>
void update_parameters(const O& optimizer, const Update<Device>& u) {
    if constexpr (HasUpdate<O, Device>) {
        optimizer.update(u);
    } else {
        impl::FormulaUpdate<O, Device>::apply(optimizer, u);
    }
}

/// Writes the constants that update_parameters(optimizer, u) uses in this step, in the same order.
/// Changes nothing else.
template <class O, class Device>
    requires RepeatableOptimizer<O, Device>
void write_constants(const O& optimizer, const Update<Device>& u, ConstantsWriter& to) {
    if constexpr (HasUpdate<O, Device>) {
        optimizer.constants(u, to);
    } else {
        impl::FormulaUpdate<O, Device>::write_constants(optimizer, u, to);
    }
}

}}  // namespace cupola::CUPOLA_ABI
