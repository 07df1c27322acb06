// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of the optimisers do for n parameters from one on: the formulas of ops/sgd_update.hpp and its
// neighbours.
#pragma once

#include <cmath>
#include <cstdint>

#include <cupola/ops/adam_update.hpp>
#include <cupola/ops/cuda/impl/pack.hpp>
#include <cupola/ops/lamb_update.hpp>
#include <cupola/ops/lars_update.hpp>
#include <cupola/ops/rms_prop_update.hpp>
#include <cupola/ops/sgd_update.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// The constants of a pass: a kernel's arguments, or on the device, where a captured step can change them.
template <class K>
struct ConstantsOf {
    K value{};
    const K* on_device = nullptr;

    ConstantsOf(const K& constants) : value(constants) {}      // NOLINT: either is what a pass is given
    ConstantsOf(const K* constants) : on_device(constants) {}  // NOLINT

    [[nodiscard]] CUPOLA_HOST_DEVICE K get() const { return on_device != nullptr ? *on_device : value; }
};

/// Body, or nothing where *healthy is 0. A null `healthy` is never 0.
template <class Body>
struct WhileHealthy {
    Body body;
    const std::int32_t* healthy;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        if (healthy == nullptr || *healthy != 0) body.template at<n>(i);
    }
    /// For a sum, in which nothing is 0.
    CUPOLA_HOST_DEVICE auto operator()(std::int64_t i, std::int64_t which) const {
        return healthy == nullptr || *healthy != 0 ? body(i, which) : decltype(body(i, which)){};
    }
};

[[nodiscard]] CUPOLA_HOST_DEVICE inline float device_root(float x) {
#ifdef __CUDA_ARCH__
    return sqrtf(x);
#else
    return std::sqrt(x);
#endif
}
[[nodiscard]] CUPOLA_HOST_DEVICE inline float device_inverse_root(float x) {
#ifdef __CUDA_ARCH__
    return rsqrtf(x);
#else
    return 1.0F / std::sqrt(x);
#endif
}

struct SgdAt {
    ConstantsOf<SgdConstants> constants;
    float* w;
    const float* gradient;
    float* velocity;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        const SgdConstants k = constants.get();
        const GradientAt g_at(k.gradient);
        float wi[n], g[n], v[n];
        load_floats<n>(w + i, wi);
        load_floats<n>(gradient + i, g);
        CUPOLA_UNROLL
        for (int j = 0; j < n; ++j) g[j] = g_at(g[j], wi[j]);
        if (k.momentum != 0.0F) {
            load_floats<n>(velocity + i, v);
            CUPOLA_UNROLL
            for (int j = 0; j < n; ++j) {
                v[j] = k.momentum * v[j] + g[j];
                g[j] = k.nesterov ? g[j] + k.momentum * v[j] : v[j];
            }
            store_floats<n>(velocity + i, v);
        }
        CUPOLA_UNROLL
        for (int j = 0; j < n; ++j) wi[j] -= k.rate * (k.decoupled * wi[j] + g[j]);
        store_floats<n>(w + i, wi);
    }
};

/// Moves the moments of n elements of Adam and of LAMB.
template <int n>
CUPOLA_HOST_DEVICE inline void move_moments(float first_fraction, float second_fraction, const float (&g)[n],
                                            float (&m)[n], float (&v)[n]) {
    CUPOLA_UNROLL
    for (int j = 0; j < n; ++j) {
        m[j] += first_fraction * (g[j] - m[j]);
        v[j] += second_fraction * (g[j] * g[j] - v[j]);
    }
}

struct AdamAt {
    ConstantsOf<AdamConstants> constants;
    float* w;
    const float* gradient;
    float *first_moment, *second_moment;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        const AdamConstants k = constants.get();
        const GradientAt g_at(k.gradient);
        float wi[n], g[n], m[n], v[n];
        load_floats<n>(w + i, wi);
        load_floats<n>(gradient + i, g);
        load_floats<n>(first_moment + i, m);
        load_floats<n>(second_moment + i, v);
        CUPOLA_UNROLL
        for (int j = 0; j < n; ++j) g[j] = g_at.squarable(g[j], wi[j]);
        move_moments<n>(k.first_fraction, k.second_fraction, g, m, v);
        store_floats<n>(first_moment + i, m);
        store_floats<n>(second_moment + i, v);
        CUPOLA_UNROLL
        for (int j = 0; j < n; ++j) {
            const float decayed = wi[j] - k.decoupled * wi[j];
            wi[j] = decayed - k.step_size * m[j] / (device_root(v[j]) * k.root_scale + k.epsilon);
        }
        store_floats<n>(w + i, wi);
    }
};

struct RmsPropAt {
    ConstantsOf<RmsPropConstants> constants;
    float* w;
    const float* gradient;
    float *mean_square, *velocity;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        const RmsPropConstants k = constants.get();
        const GradientAt g_at(k.gradient);
        float wi[n], g[n], s[n], v[n];
        load_floats<n>(w + i, wi);
        load_floats<n>(gradient + i, g);
        load_floats<n>(mean_square + i, s);
        CUPOLA_UNROLL
        for (int j = 0; j < n; ++j) {
            g[j] = g_at.squarable(g[j], wi[j]);
            s[j] += k.fraction * (g[j] * g[j] - s[j]);
            g[j] = k.rate * g[j] * device_inverse_root(s[j] + k.epsilon);
        }
        store_floats<n>(mean_square + i, s);
        if (k.momentum != 0.0F) {
            load_floats<n>(velocity + i, v);
            CUPOLA_UNROLL
            for (int j = 0; j < n; ++j) g[j] += k.momentum * v[j];
            store_floats<n>(velocity + i, g);
        }
        CUPOLA_UNROLL
        for (int j = 0; j < n; ++j) wi[j] -= g[j];
        store_floats<n>(w + i, wi);
    }
};

/// The sums of the squares of a parameter and of what steps along it.
struct TwoSums {
    double of_w, of_step;

    CUPOLA_HOST_DEVICE TwoSums& operator+=(const TwoSums& other) {
        of_w += other.of_w;
        of_step += other.of_step;
        return *this;
    }
};

[[nodiscard]] CUPOLA_HOST_DEVICE inline float lamb_direction(float m, float v, float w, const LambConstants& k) {
    return m * k.first_scale / (device_root(v) * k.root_scale + k.epsilon) + k.weight_decay * w;
}

/// Moves the moments of element i; returns the squares of w and u there.
struct LambMoments {
    ConstantsOf<LambConstants> constants;
    const float *w, *gradient;
    float *first_moment, *second_moment;

    CUPOLA_HOST_DEVICE TwoSums operator()(std::int64_t i, std::int64_t) const {
        const LambConstants k = constants.get();
        const float g[1] = {GradientAt(k.gradient).squarable(gradient[i], w[i])};
        float m[1] = {first_moment[i]}, v[1] = {second_moment[i]};
        move_moments<1>(k.first_fraction, k.second_fraction, g, m, v);
        first_moment[i] = m[0];
        second_moment[i] = v[0];
        const auto u = static_cast<double>(lamb_direction(m[0], v[0], w[i], k)), wi = static_cast<double>(w[i]);
        return {wi * wi, u * u};
    }
};

/// The rate times the trust, for the pass over the parameter.
struct LambRate {
    ConstantsOf<LambConstants> constants;
    float* rate;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t, const TwoSums& squares) const {
        const LambConstants k = constants.get();
        const bool adapts = k.adapt && squares.of_w > 0 && squares.of_step > 0;
        *rate = adapts ? static_cast<float>(static_cast<double>(k.rate) * std::sqrt(squares.of_w / squares.of_step))
                       : k.rate;
    }
};

struct LambAt {
    ConstantsOf<LambConstants> constants;
    float* w;
    const float *first_moment, *second_moment, *rate;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        const LambConstants k = constants.get();
        const float by = *rate;
        float wi[n], m[n], v[n];
        load_floats<n>(w + i, wi);
        load_floats<n>(first_moment + i, m);
        load_floats<n>(second_moment + i, v);
        CUPOLA_UNROLL
        for (int j = 0; j < n; ++j) wi[j] -= by * lamb_direction(m[j], v[j], wi[j], k);
        store_floats<n>(w + i, wi);
    }
};

/// The squares of w and of the gradient that clipping sees.
struct LarsSquares {
    ConstantsOf<LarsConstants> constants;
    const float *w, *gradient;

    CUPOLA_HOST_DEVICE TwoSums operator()(std::int64_t i, std::int64_t) const {
        const auto g = static_cast<double>(GradientAt(constants.get().gradient)(gradient[i], w[i])),
                   wi = static_cast<double>(w[i]);
        return {wi * wi, g * g};
    }
};

struct LarsRate {
    ConstantsOf<LarsConstants> constants;
    float* rate;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t, const TwoSums& squares) const {
        const LarsConstants k = constants.get();
        const double of_w = std::sqrt(squares.of_w), of_g = std::sqrt(squares.of_step),
                     given = static_cast<double>(k.rate);
        const double trust =
            static_cast<double>(k.coefficient) * of_w / (of_g + static_cast<double>(k.weight_decay) * of_w);
        *rate = static_cast<float>(k.adapt && of_w > 0 && of_g > 0 ? given * trust : given);
    }
};

/// A null `rate` is that of the constants.
struct LarsAt {
    ConstantsOf<LarsConstants> constants;
    float* w;
    const float* gradient;
    float* velocity;
    const float* rate;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        const LarsConstants k = constants.get();
        const GradientAt g_at(k.gradient);
        const float by = rate != nullptr ? *rate : k.rate;
        float wi[n], g[n], v[n];
        load_floats<n>(w + i, wi);
        load_floats<n>(gradient + i, g);
        load_floats<n>(velocity + i, v);
        CUPOLA_UNROLL
        for (int j = 0; j < n; ++j) {
            v[j] = k.momentum * v[j] + by * (g_at(g[j], wi[j]) + k.weight_decay * wi[j]);
            wi[j] -= v[j];
        }
        store_floats<n>(velocity + i, v);
        store_floats<n>(w + i, wi);
    }
};

struct MovingAverageAt {
    float* average;
    const float* w;
    ConstantsOf<float> rate;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        const float by = rate.get();
        float a[n], wi[n];
        load_floats<n>(average + i, a);
        load_floats<n>(w + i, wi);
        CUPOLA_UNROLL
        for (int j = 0; j < n; ++j) a[j] -= by * (a[j] - wi[j]);
        store_floats<n>(average + i, a);
    }
};

/// The square of an element of the gradient that clipping sees.
struct GradientSquare {
    const float *w, *gradient;
    ConstantsOf<GradientTerms> terms;

    CUPOLA_HOST_DEVICE double operator()(std::int64_t i, std::int64_t) const {
        const auto g = static_cast<double>(GradientAt(terms.get())(gradient[i], w[i]));
        return g * g;
    }
};

/// A sum over several spans, one after another: the first sets it.
struct AddSumTo {
    double* to;
    bool first;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t, double sum) const { *to = (first ? 0.0 : *to) + sum; }
};

/// What clipping to a norm multiplies the gradient by, as optim/clipped.hpp has it, times *before where it has been
/// clipped already. `before` may be `to`.
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

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
