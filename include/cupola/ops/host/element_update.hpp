// SPDX-License-Identifier: Apache-2.0
//
// The loops over an optimiser's formula on `Host`.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <cupola/device/host.hpp>
#include <cupola/ops/element_update.hpp>
#include <cupola/ops/host/elementwise.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// An optimiser's formula preceded by the gradient's terms, for for_each_element.
template <class F, class Gradient>
struct UpdateElement {
    F formula;
    Gradient g_at;

    template <class... State>
    [[gnu::always_inline]] void operator()(float& w, const float& gradient, State&... state) const {
        if constexpr (UpdateArguments<F>::reads_gradient) {
            formula(w, g_at(gradient, w), state...);
        } else {
            if constexpr (MovingFormula<F> && !MeasuringFormula<F>) formula.move(g_at(gradient, w), state...);
            formula(w, NoGradient{}, state...);
        }
    }
};

/// The measure of one element; its state is in registers and stored once.
template <class F, class... State, class... Float>
[[nodiscard, gnu::always_inline]] inline double measure_element(FormulaArguments<float, State...>, const F& formula,
                                                                float w, float g, Float&... state) {
    return [&](Float... value) __attribute__((always_inline)) {
        const float measured = formula.measured(w, g, value...);
        ((state = value), ...);
        return static_cast<double>(measured);
    }
    (state...);
}

/// The sum of the squares that the first pass measures. Not inlined: in a loop with a sum, g++ reloads a lambda's
/// captures in each iteration, and then uses gather instructions.
template <class F, class Gradient, std::size_t... k>
[[nodiscard, gnu::noinline]] double sum_of_measures(F formula, Gradient g_at, const float* w, const float* gradient,
                                                    FormulaState<F> state, std::int64_t begin, std::int64_t end,
                                                    std::index_sequence<k...>) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = begin; i < end; ++i) {
        const double measured =
            measure_element(MeasureArguments<F>{}, formula, w[i], g_at(gradient[i], w[i]), state.arena[k][i]...);
        sum += measured * measured;
    }
    return sum;
}

}  // namespace impl

namespace ops {

template <>
struct ElementUpdate<Host> {
    template <UpdateFormula F>
    static void run(const HostContext& context, const UpdateConstants<F>& constants, float* w, const float* gradient,
                    const FormulaState<F>& state, std::int64_t count) {
        using Gradient = typename impl::GradientOfFormula<F>::Type;
        F formula = constants.formula;
        if constexpr (MeasuringFormula<F>) {
            const Gradient g_at(constants.gradient);
            const double of_measured = sum_blocks(context, count, [=](std::int64_t begin, std::int64_t end) {
                return impl::sum_of_measures(formula, g_at, w, gradient, state, begin, end,
                                             std::make_index_sequence<impl::MeasureArguments<F>::states>{});
            });
            const double of_w = sum_of_squares(context, {w, static_cast<std::size_t>(count)});
            formula.rate = formula.trusted_rate(of_w, of_measured);
        }
        // A formula without state has so few operations that the gradient's terms take half of the time when data is in
        // the cache.
        if constexpr (formula_states<F> == 0 && std::same_as<Gradient, GradientAt>) {
            if (RegularizedGradientAt::suffices(constants.gradient)) {
                update<RegularizedGradientAt>(context, constants, formula, w, gradient, state, count, Places<F>{});
                return;
            }
        }
        update<Gradient>(context, constants, formula, w, gradient, state, count, Places<F>{});
    }

private:
    template <class F>
    using Places = std::make_index_sequence<formula_states<F>>;

    template <class Gradient, class F, std::size_t... k>
    static void update(const HostContext& context, const UpdateConstants<F>& constants, const F& formula, float* w,
                       const float* gradient, const FormulaState<F>& state, std::int64_t count,
                       std::index_sequence<k...>) {
        for_each_element(context, count, impl::UpdateElement<F, Gradient>{formula, Gradient(constants.gradient)}, w,
                         gradient,
                         static_cast<std::conditional_t<is_written<F>(k), float, const float>*>(state.arena[k])...);
    }
    template <class F>
    [[nodiscard]] static constexpr bool is_written(std::size_t value) {
        if constexpr (MovingFormula<F> && !MeasuringFormula<F>) {
            if (impl::MoveArguments<F>::is_written(value)) return true;
        }
        return impl::UpdateArguments<F>::is_written(value);
    }
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
