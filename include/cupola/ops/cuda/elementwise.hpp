// SPDX-License-Identifier: Apache-2.0
//
// for_each_element on `Cuda`: one kernel, in which each thread processes 16 bytes at a time of the array with the
// smallest elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/formula_elements.hpp>
#include <cupola/ops/cuda/impl/launch_packs.cuh>
#include <cupola/ops/cuda/impl/pack.hpp>
#include <cupola/ops/elementwise.hpp>

namespace cupola::inline CUPOLA_ABI {

/// See ops/elementwise.hpp.
template <class Formula, class... E>
    requires(impl::CudaElement<std::remove_const_t<E>> && ...)
void for_each_element(const CudaContext& context, std::int64_t count, const Formula& formula, E*... arrays) {
    impl::launch_packs<16 / std::min({sizeof(E)...})>(context, count, impl::aligned_for_packs(arrays...),
                                                      impl::ElementsAt<Formula, E...>{formula, {{arrays}...}});
}

}  // namespace cupola::inline CUPOLA_ABI
