// SPDX-License-Identifier: Apache-2.0
//
// for_each_element and for_each_in_rows on `Host`: blocks of elements are distributed to the device's threads in a
// static partition, and each block, or each row, is computed by one vectorised loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cupola/device/host.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/host/impl/element.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// An element and its value.
template <class Value, class E>
struct LoadedElement {
    E* place;
    Value value;

    [[gnu::always_inline]] void store() const {
        if constexpr (!std::is_const_v<E>) put(*place, value);
    }
};

template <class Formula, class... Loaded>
[[gnu::always_inline]] inline void compute_element(const Formula& formula, Loaded... loaded) {
    formula(loaded.value...);
    (loaded.store(), ...);
}

/// Everything is inlined, however long a formula is: a loop with a call is not vectorised.
template <class Formula, class... E>
[[gnu::flatten]] void compute_elements(std::int64_t begin, std::int64_t end, const Formula formula, E*... arrays) {
    constexpr bool elements = takes_elements<Formula, E...>;
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
        compute_element(formula, LoadedElement<FormulaValue<elements, E>, E>{
                                     arrays + i, get<FormulaValue<elements, E>>(arrays[i])}...);
    }
}

/// A copy uses the standard library's: it writes whole cache lines without reading them first.
template <class T>
void compute_elements(std::int64_t begin, std::int64_t end, CopyElement, T* to, const T* from) {
    std::copy(from + begin, from + end, to + begin);
}
template <class Formula, class T, class... E>
void compute_elements(std::int64_t begin, std::int64_t end, const WithCopy<Formula> both, T* first, T* second,
                      E*... arrays) {
    compute_elements(begin, end, both.formula, first, arrays...);
    compute_elements(begin, end, CopyElement{}, second, static_cast<const T*>(first));
}

}  // namespace impl

/// See ops/elementwise.hpp.
template <class Formula, class... E>
    requires(impl::HostElement<std::remove_const_t<E>> && ...)
void for_each_element(const HostContext& context, std::int64_t count, const Formula& formula, E*... arrays) {
    for_each_block(context, count, [=](std::int64_t begin, std::int64_t end) {
        impl::compute_elements(begin, end, formula, arrays...);
    });
}

/// See ops/elementwise.hpp.
template <class Formula, class... Matrices>
    requires(impl::HostElement<std::remove_const_t<typename Matrices::Element>> && ...)
void for_each_in_rows(const HostContext& context, std::int64_t rows, std::int64_t width, const Formula& formula,
                      Matrices... matrices) {
    if (width == 0) return;
    const std::int64_t at_once = std::max<std::int64_t>(1, block_size / width);
    parallel_for(context, (rows + at_once - 1) / at_once, [=](std::int64_t block) {
        const std::int64_t end = std::min(rows, (block + 1) * at_once);
        for (std::int64_t i = block * at_once; i < end; ++i)
            impl::compute_elements(0, width, formula, matrices.row(i)...);
    });
}

}}  // namespace cupola::CUPOLA_ABI
