// SPDX-License-Identifier: Apache-2.0
//
// Launches that run on the host, when the stream comes to them: see ../../../device/cuda.hpp in this folder. A kernel's
// threads come in no order; here every third of them does, then the next, then the rest backwards, so that a thread
// that reads what another writes is found.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class Functor>
void launch(const CudaContext& context, std::int64_t count, Functor functor) {
    if (count <= 0) return;
    context.stream()->queue([=] {
        for (std::int64_t i = 1; i < count; i += 3) functor(i);
        for (std::int64_t i = 0; i < count; i += 3) functor(i);
        for (std::int64_t i = (count - 3) / 3 * 3 + 2; i >= 0; i -= 3) {
            if (i < count) functor(i);
        }
    });
}

inline constexpr std::int64_t most_partial_sums = 1024;

template <class V>
[[nodiscard]] constexpr std::size_t reduce_scratch(std::int64_t, std::int64_t sums = 1) {
    return static_cast<std::size_t>(sums) * sizeof(V);
}

/// The first pass leaves the sums in the scratch memory, which nothing else may use until the second has read them.
template <class V, class Functor, class Finish>
void reduce(const CudaContext& context, std::int64_t count, std::int64_t sums, Functor functor, Finish finish,
            std::byte* scratch) {
    if (sums <= 0) return;
    auto* const partial = reinterpret_cast<V*>(scratch);
    context.stream()->queue([=] {
        for (std::int64_t s = 0; s < sums; ++s) {
            V sum{};
            for (std::int64_t i = 0; i < count; ++i) sum += functor(i, s);
            partial[s] = sum;
        }
    });
    context.stream()->queue([=] {
        for (std::int64_t s = 0; s < sums; ++s) finish(s, partial[s]);
    });
}

inline constexpr std::size_t results_offset = static_cast<std::size_t>(most_partial_sums) * 16;
static_assert(results_offset < CudaContext::sums_bytes);

template <class V, class Functor, class Finish>
void reduce(const CudaContext& context, std::int64_t count, Functor functor, Finish finish) {
    static_assert(sizeof(V) <= 16);
    reduce<V>(context, count, 1, functor, finish, context.sums());
}

template <class V>
[[nodiscard]] V* result_of_sum(const CudaContext& context) {
    return reinterpret_cast<V*>(context.sums() + results_offset);
}
template <class V>
[[nodiscard]] V read_result(const CudaContext& context) {
    context.synchronize();
    return *result_of_sum<V>(context);
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
