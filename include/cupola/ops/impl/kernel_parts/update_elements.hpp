// SPDX-License-Identifier: Apache-2.0
//
// The computations of an optimiser's formula, and of clipping by a norm, for n consecutive parameters in a kernel.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <cupola/ops/element_update.hpp>
#include <cupola/ops/gradient_terms.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The constants of a pass: passed as a kernel's arguments, or read from the device, where a captured step can change
/// them.
template <class K>
struct ConstantsOf {
    K value{};
    const K* on_device = nullptr;

    ConstantsOf() = default;
    ConstantsOf(const K& constants) : value(constants) {}      // NOLINT: callers pass either
    ConstantsOf(const K* constants) : on_device(constants) {}  // NOLINT

    [[nodiscard]] CUPOLA_HOST_DEVICE K get() const { return on_device != nullptr ? *on_device : value; }
};

/// Runs the body, or does nothing where *healthy is 0. A null `healthy` counts as healthy.
template <class Body>
struct WhileHealthy {
    Body body;
    const std::int32_t* healthy;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        if (healthy == nullptr || *healthy != 0) body.template at<n>(i);
    }
    /// For a sum: contributes 0 where *healthy is 0.
    CUPOLA_HOST_DEVICE auto operator()(std::int64_t i, std::int64_t which) const {
        return healthy == nullptr || *healthy != 0 ? body(i, which) : decltype(body(i, which)){};
    }
};

/// Applies the formula F to n consecutive parameters.
template <class F>
struct UpdateAt {
    using Arguments = UpdateArguments<F>;
    static constexpr bool in_parts = MovingFormula<F> && !MeasuringFormula<F>;
    static constexpr bool takes_gradient = Arguments::reads_gradient || in_parts;

    ConstantsOf<UpdateConstants<F>> constants;
    float* w;
    const float* gradient;
    FormulaState<F> state;
    /// For a formula with a measure: the rate computed from the measure.
    const float* rate;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        update<n>(i, std::make_index_sequence<Arguments::states>{});
    }

private:
    template <int n, std::size_t... k>
    CUPOLA_HOST_DEVICE void update(std::int64_t i, std::index_sequence<k...>) const {
        const UpdateConstants<F> of_step = constants.get();
        F formula = of_step.formula;
        if constexpr (MeasuringFormula<F>) formula.rate = *rate;
        const typename GradientOfFormula<F>::Type g_at(of_step.gradient);
        float wi[n], g[n], value[Arguments::states + 1][n];
        load_floats<n>(w + i, wi);
        if constexpr (takes_gradient) load_floats<n>(gradient + i, g);
        (load_floats<n>(state.arena[k] + i, value[k]), ...);
        if constexpr (takes_gradient) {
            CUPOLA_UNROLL
            for (int j = 0; j < n; ++j) g[j] = g_at(g[j], wi[j]);
        }
        if constexpr (in_parts) {
            CUPOLA_UNROLL
            for (int j = 0; j < n; ++j) formula.move(g[j], value[k][j]...);
            (store<MoveArguments<F>::is_written(k)>(state.arena[k] + i, value[k]), ...);
        }
        CUPOLA_UNROLL
        for (int j = 0; j < n; ++j) {
            if constexpr (Arguments::reads_gradient) {
                formula(wi[j], g[j], value[k][j]...);
            } else {
                formula(wi[j], NoGradient{}, value[k][j]...);
            }
        }
        (store<Arguments::is_written(k)>(state.arena[k] + i, value[k]), ...);
        store_floats<n>(w + i, wi);
    }
    template <bool written, int n>
    CUPOLA_HOST_DEVICE static void store(float* to, const float (&value)[n]) {
        if constexpr (written) store_floats<n>(to, value);
    }
};

/// The sums of the squares of a parameter and of the value that a formula measures with it.
struct TwoSums {
    double of_w, of_measured;

    CUPOLA_HOST_DEVICE TwoSums& operator+=(const TwoSums& other) {
        of_w += other.of_w;
        of_measured += other.of_measured;
        return *this;
    }
};

/// The first pass of a formula with a measure.
template <class F>
struct MeasureAt {
    ConstantsOf<UpdateConstants<F>> constants;
    const float *w, *gradient;
    FormulaState<F> state;

    CUPOLA_HOST_DEVICE TwoSums operator()(std::int64_t i, std::int64_t) const {
        return measure(i, std::make_index_sequence<MeasureArguments<F>::states>{});
    }

private:
    template <std::size_t... k>
    CUPOLA_HOST_DEVICE TwoSums measure(std::int64_t i, std::index_sequence<k...>) const {
        const UpdateConstants<F> of_step = constants.get();
        const typename GradientOfFormula<F>::Type g_at(of_step.gradient);
        [[maybe_unused]] float value[] = {state.arena[k][i]..., 0.0F};
        const auto measured = static_cast<double>(of_step.formula.measured(w[i], g_at(gradient[i], w[i]), value[k]...)),
                   wi = static_cast<double>(w[i]);
        (store<MeasureArguments<F>::is_written(k)>(state.arena[k] + i, value[k]), ...);
        return {wi * wi, measured * measured};
    }
    template <bool written>
    CUPOLA_HOST_DEVICE static void store(float* to, float value) {
        if constexpr (written) *to = value;
    }
};

/// The rate that the second pass multiplies by.
template <class F>
struct RateTo {
    ConstantsOf<UpdateConstants<F>> constants;
    float* rate;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t, const TwoSums& squares) const {
        *rate = constants.get().formula.trusted_rate(squares.of_w, squares.of_measured);
    }
};

/// The square of an element of the gradient, with the terms that clipping includes.
struct GradientSquare {
    const float *w, *gradient;
    ConstantsOf<GradientTerms> terms;

    CUPOLA_HOST_DEVICE double operator()(std::int64_t i, std::int64_t) const {
        const auto g = static_cast<double>(GradientAt(terms.get())(gradient[i], w[i]));
        return g * g;
    }
};

/// A sum over several spans in sequence: the first sets it.
struct AddSumTo {
    double* to;
    bool first;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t, double sum) const { *to = (first ? 0.0 : *to) + sum; }
};

/// The factor by which clipping to a norm multiplies the gradient, as in optim/clipped.hpp, times *before where it has
/// been clipped already. `before` may be `to`.
struct ClipScaleTo {
    const double* squares;
    double max_norm;
    const float* before;
    float* to;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t) const {
        const double fraction = max_norm / (std::sqrt(*squares) + 1e-6);
        *to = (before != nullptr ? *before : 1.0F) * (fraction < 1 ? static_cast<float>(fraction) : 1.0F);
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
