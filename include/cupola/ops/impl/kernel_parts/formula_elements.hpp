// SPDX-License-Identifier: Apache-2.0
//
// Applies a formula of ops/elementwise.hpp to n consecutive elements in a kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// n elements of an array and their values.
template <int n, class Value, class E>
struct LoadedElements {
    using Element = std::remove_const_t<E>;

    CUPOLA_HOST_DEVICE explicit LoadedElements(E* first) : place(first) {
        if constexpr (std::is_same_v<std::remove_const_t<Value>, Element>) {
            values = pack_at<n>(first);
        } else {
            load_floats<n>(first, values.element);
        }
    }
    CUPOLA_HOST_DEVICE Value& value(int k) { return values.element[k]; }
    CUPOLA_HOST_DEVICE void store() const {
        if constexpr (!std::is_const_v<E>) {
            if constexpr (std::is_same_v<Value, E>) {
                pack_at<n>(place) = values;
            } else {
                store_floats<n>(place, values.element);
            }
        }
    }

    E* place;
    Pack<std::remove_const_t<Value>, n> values;
};

template <std::size_t index, class E>
struct ArrayAt {
    E* array;
};
template <class Indices, class... E>
struct ArrayList;
template <std::size_t... index, class... E>
struct ArrayList<std::index_sequence<index...>, E...> : ArrayAt<index, E>... {};

/// formula(values...) for elements of arrays of `E`.
template <class Formula, class... E>
struct ElementsAt {
    Formula formula;
    ArrayList<std::index_sequence_for<E...>, E...> arrays;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        load_and_compute<n>(i, std::index_sequence_for<E...>{});
    }

private:
    template <int n, std::size_t... index>
    CUPOLA_HOST_DEVICE void load_and_compute(std::int64_t i, std::index_sequence<index...>) const {
        compute<n>(LoadedElements<n, FormulaValue<takes_elements<Formula, E...>, E>, E>(
            static_cast<const ArrayAt<index, E>&>(arrays).array + i)...);
    }
    template <int n, class... Loaded>
    CUPOLA_HOST_DEVICE void compute(Loaded... loaded) const {
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) formula(loaded.value(k)...);
        (loaded.store(), ...);
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
