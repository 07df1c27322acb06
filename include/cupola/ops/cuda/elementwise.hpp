// SPDX-License-Identifier: Apache-2.0
//
// for_each_element and for_each_in_rows on `Cuda`: one kernel, in which each thread processes 16 bytes at a time of the
// array with the smallest elements.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/joined_conversions.cuh>
#include <cupola/ops/cuda/impl/joined_updates.cuh>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/launch_packs.cuh>
#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/impl/kernel_parts/divisor.hpp>
#include <cupola/ops/impl/kernel_parts/formula_elements.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// See ops/elementwise.hpp.
template <class Formula, class... E>
    requires(impl::CudaElement<std::remove_const_t<E>> && ...)
void for_each_element(const CudaContext& context, std::int64_t count, const Formula& formula, E*... arrays) {
    impl::launch_packs<16 / std::min({sizeof(E)...})>(context, count, impl::aligned_for_packs(arrays...),
                                                      impl::ElementsAt<Formula, E...>{formula, {{arrays}...}});
}

/// A conversion from float that is joined with others, or with the update of what is converted.
template <impl::CudaElement T>
    requires(!std::same_as<T, float>)
void join_conversion(const CudaContext& context, const float* from, T* to, std::int64_t count) {
    if (count <= 0) return;
    auto* const updates = context.joined_as<impl::JoinedUpdatesBase>();
    if (updates != nullptr && updates->add_rounded(from, to, count)) return;
    if (!context.joined<impl::JoinedConversions<T>>().takes_more()) context.launch_joined();
    context.joined<impl::JoinedConversions<T>>().add(from, to, count);
}

namespace impl {

template <std::size_t index, class Matrix>
struct MatrixAt {
    Matrix matrix;
};

/// The formula for n elements of a row of each matrix.
template <int n, class Formula, class Indices, class... Matrices>
struct InRows;
template <int n, class Formula, std::size_t... index, class... Matrices>
struct InRows<n, Formula, std::index_sequence<index...>, Matrices...> : MatrixAt<index, Matrices>... {
    Divisor packs_per_row;
    Formula formula;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const Divisor::Parts at = packs_per_row.divide(i);
        const ElementsAt<Formula, typename Matrices::Element...> row{
            formula, {{static_cast<const MatrixAt<index, Matrices>&>(*this).matrix.row(at.quotient)}...}};
        row.template at<n>(at.remainder * n);
    }
};

template <int n, class Formula, class... Matrices>
void launch_in_rows(const CudaContext& context, std::int64_t rows, std::int64_t width, const Formula& formula,
                    Matrices... matrices) {
    const std::int64_t packs = width / n;
    launch(
        context, rows * packs,
        InRows<n, Formula, std::index_sequence_for<Matrices...>, Matrices...>{{matrices}..., Divisor(packs), formula});
}

}  // namespace impl

/// See ops/elementwise.hpp.
template <class Formula, class... Matrices>
    requires(impl::CudaElement<std::remove_const_t<typename Matrices::Element>> && ...)
void for_each_in_rows(const CudaContext& context, std::int64_t rows, std::int64_t width, const Formula& formula,
                      Matrices... matrices) {
    if (width == 0) return;
    constexpr int n = 16 / std::min({sizeof(typename Matrices::Element)...});
    if (impl::aligned_for_packs(matrices.first...) && width % n == 0 && ((matrices.stride % n == 0) && ...)) {
        impl::launch_in_rows<n>(context, rows, width, formula, matrices...);
    } else {
        impl::launch_in_rows<1>(context, rows, width, formula, matrices...);
    }
}

}}  // namespace cupola::CUPOLA_ABI
