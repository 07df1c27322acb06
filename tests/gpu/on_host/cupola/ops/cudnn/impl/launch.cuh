// SPDX-License-Identifier: Apache-2.0
//
// Launches that run at once, on the host: see ../../../device/cuda.hpp in this folder. A kernel's threads come in no order; here
// every third of them does, then the next, then the rest backwards, so that a thread that reads what another writes is found.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class Functor>
void launch(const CudaContext&, std::int64_t count, Functor functor) {
    for (std::int64_t i = 1; i < count; i += 3) functor(i);
    for (std::int64_t i = 0; i < count; i += 3) functor(i);
    for (std::int64_t i = (count - 3) / 3 * 3 + 2; i >= 0; i -= 3) {
        if (i < count) functor(i);
    }
}

template <class V, class Functor, class Finish>
void reduce(const CudaContext&, std::int64_t count, Functor functor, Finish finish) {
    static_assert(sizeof(V) <= 16);
    V sum{};
    for (std::int64_t i = 0; i < count; ++i) sum += functor(i, std::int64_t{0});
    finish(std::int64_t{0}, sum);
}

template <class V>
[[nodiscard]] V* result_of_sum(const CudaContext& context) {
    return reinterpret_cast<V*>(context.sums());
}
template <class V>
[[nodiscard]] V read_result(const CudaContext& context) {
    return *result_of_sum<V>(context);
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
