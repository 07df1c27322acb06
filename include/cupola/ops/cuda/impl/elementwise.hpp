// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of element-wise operations do for n elements from one on. Each reads all that it needs before it
// writes, so a result may lie where an operand does.
#pragma once

#include <cstdint>

#include <cupola/ops/cuda/impl/pack.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// y = max(x, 0). Written so that a NaN stays one: a comparison with it is false.
template <class T>
struct ReluForwardAt {
    const T* x;
    T* y;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        float value[n];
        load_floats<n>(x + i, value);
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) value[k] = value[k] < 0.0F ? 0.0F : value[k];
        store_floats<n>(y + i, value);
    }
};

/// dx = dy where y > 0, else 0.
template <class T>
struct ReluBackwardAt {
    const T* y;
    const T* dy;
    T* dx;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        float output[n], value[n];
        load_floats<n>(y + i, output);
        load_floats<n>(dy + i, value);
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) value[k] = output[k] > 0.0F ? value[k] : 0.0F;
        store_floats<n>(dx + i, value);
    }
};

/// to = a + b, with a ReLU if asked for.
template <class T, class Other = T>
struct AddAt {
    const T* a;
    const Other* b;
    T* to;
    bool relu;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        float first[n], second[n];
        load_floats<n>(a + i, first);
        load_floats<n>(b + i, second);
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) {
            const float sum = first[k] + second[k];
            first[k] = relu && sum < 0.0F ? 0.0F : sum;
        }
        store_floats<n>(to + i, first);
    }
};

/// a = b = dy, 0 where there is a `y` that is not positive. A null `b` is not written.
template <class T>
struct AddBackwardAt {
    const T* y;
    const T* dy;
    T *a, *b;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        float value[n];
        load_floats<n>(dy + i, value);
        if (y != nullptr) {
            float output[n];
            load_floats<n>(y + i, output);
            CUPOLA_UNROLL
            for (int k = 0; k < n; ++k) value[k] = output[k] > 0.0F ? value[k] : 0.0F;
        }
        store_floats<n>(a + i, value);
        if (b != nullptr) store_floats<n>(b + i, value);
    }
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
