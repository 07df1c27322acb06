// SPDX-License-Identifier: Apache-2.0
//
// Element-wise algorithms and sums on `Host`.
//
// OpenMP distributes the work in blocks of a fixed number of elements; inside a block the loop is the caller's, a plain
// loop that the compiler vectorises. A sum adds within a block and then over the blocks in their order, so it has the
// same bits whatever the number of threads, their affinity and the number of processors. (An OpenMP reduction splits by
// the number of threads; Thrust's by the number of processors, and allocates.)
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include <cupola/core/error.hpp>
#include <cupola/core/hash_word.hpp>
#include <cupola/device/host.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Elements per block: 16 KB of float, half of a first-level cache.
inline constexpr std::int64_t block_size = 4096;

namespace impl {

/// A loop body behind two pointers, so that a parallel region is compiled once and not for each loop. A call costs a
/// nanosecond and does the work of thousands of elements.
template <class Result, class... Places>
struct BodyCall {
    void* object;
    Result (*call)(void*, Places...);

    template <class Function>
    [[nodiscard]] static BodyCall of(Function& f) {
        return {const_cast<void*>(static_cast<const void*>(std::addressof(f))), &call_of<Function>};
    }

private:
    template <class Function>
    static Result call_of(void* object, Places... places) {
        return (*static_cast<Function*>(object))(places...);
    }
};
using IndexedCall = BodyCall<void, std::int64_t>;
using BlockCall = BodyCall<void, std::int64_t, std::int64_t>;
using BlockSum = BodyCall<double, std::int64_t, std::int64_t>;

void run_in_parallel(const HostContext& context, std::int64_t count, IndexedCall body);
void run_blocks(const HostContext& context, std::int64_t count, BlockCall body);
[[nodiscard]] double add_blocks(const HostContext& context, std::int64_t count, BlockSum sum);

}  // namespace impl

/// Calls f(i) for i in [0, count), in parallel, in no fixed order. For work that is large per i. `f` must not throw.
template <class Function>
void parallel_for(const HostContext& context, std::int64_t count, Function&& f) {
    impl::run_in_parallel(context, count, impl::IndexedCall::of(f));
}

/// Calls f(begin, end) for each block of [0, count), in parallel, in no fixed order.
template <class Function>
void for_each_block(const HostContext& context, std::int64_t count, Function&& f) {
    impl::run_blocks(context, count, impl::BlockCall::of(f));
}

/// to[i] = f(from[i]).
template <class To, class From, class Function>
void transform(const HostContext& context, std::span<const From> from, std::span<To> to, Function f) {
    for_each_block(context, static_cast<std::int64_t>(from.size()), [&](std::int64_t begin, std::int64_t end) {
        const From* source = from.data();
        To* target = to.data();
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) target[i] = f(source[i]);
    });
}

/// values *= factor.
void scale(const HostContext& context, std::span<float> values, double factor);

template <class T>
void fill(const HostContext& context, std::span<T> to, T value) {
    for_each_block(context, static_cast<std::int64_t>(to.size()),
                   [&](std::int64_t begin, std::int64_t end) { std::fill(to.data() + begin, to.data() + end, value); });
}

/// The sum of f(begin, end), a double for each block of [0, count), added in block order. No allocation: blocks are
/// taken in rounds whose partial sums fit on the stack.
template <class Function>
[[nodiscard]] double sum_blocks(const HostContext& context, std::int64_t count, Function&& f) {
    return impl::add_blocks(context, count, impl::BlockSum::of(f));
}

/// The sum of the squares.
[[nodiscard]] double sum_of_squares(const HostContext& context, std::span<const float> values);

/// Whether no value is infinite or not a number.
[[nodiscard]] bool all_finite(const HostContext& context, std::span<const float> values);

/// A 64-bit hash of the bits of `values`. Each pair of elements is mixed with its place and the results are added, so
/// the order does not matter and every device computes the same hash.
[[nodiscard]] std::uint64_t hash_of(const HostContext& context, std::span<const float> values);

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/tensor/algorithms.ipp>
#endif
