// SPDX-License-Identifier: Apache-2.0
//
// Element-wise algorithms and sums on `Cuda`, with the names of tensor/algorithms.hpp. Spans are in the memory of the
// context's device. Functions that change elements are queued on the context's stream. Functions that return a number
// to the host wait for the stream and cannot be captured; they may be called on another device, by one thread at a
// time. Their variants named queue_... write the number to the device and wait for nothing.
//
// A sum is added in an order that depends only on the count: the bits are the same each time, but not those of `Host`.
// hash_of() gives the same value as on `Host`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch_packs.cuh>
#include <cupola/ops/impl/kernel_parts/sums.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct ScaleAt {
    float* values;
    float by;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        float value[n];
        load_floats<n>(values + i, value);
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) value[k] *= by;
        store_floats<n>(values + i, value);
    }
};

template <class T>
struct FillAt {
    T* to;
    T value;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const { to[i] = value; }
};

}  // namespace impl

/// values *= factor.
inline void scale(const CudaContext& context, std::span<float> values, double factor) {
    impl::launch_elementwise<float>(context, static_cast<std::int64_t>(values.size()),
                                    impl::aligned_for_packs(values.data()),
                                    impl::ScaleAt{values.data(), static_cast<float>(factor)});
}

template <class T>
void fill(const CudaContext& context, std::span<T> to, T value) {
    impl::launch(context, static_cast<std::int64_t>(to.size()), impl::FillAt<T>{to.data(), value});
}

/// The sum of the squares.
inline void queue_sum_of_squares(const CudaContext& context, std::span<const float> values, double* to) {
    impl::reduce<double>(context, static_cast<std::int64_t>(values.size()), impl::SquareOf{values.data()},
                         impl::SumTo<double>{to});
}
[[nodiscard]] inline double sum_of_squares(const CudaContext& context, std::span<const float> values) {
    [[maybe_unused]] const auto scope = context.team();
    queue_sum_of_squares(context, values, impl::result_of_sum<double>(context));
    return impl::read_result<double>(context);
}

/// 1 if every value is finite, else 0.
inline void queue_all_finite(const CudaContext& context, std::span<const float> values, std::int32_t* to) {
    impl::reduce<std::uint64_t>(context, static_cast<std::int64_t>(values.size()), impl::NotFinite{values.data()},
                                impl::NoneTo{to});
}
[[nodiscard]] inline bool all_finite(const CudaContext& context, std::span<const float> values) {
    [[maybe_unused]] const auto scope = context.team();
    queue_all_finite(context, values, impl::result_of_sum<std::int32_t>(context));
    return impl::read_result<std::int32_t>(context) != 0;
}

/// The 64-bit hash of the bits of `values`, equal to that computed on `Host`.
inline void queue_hash_of(const CudaContext& context, std::span<const float> values, std::uint64_t* to) {
    const auto count = static_cast<std::int64_t>(values.size());
    impl::reduce<std::uint64_t>(context, (count + 1) / 2, impl::HashOf{values.data(), count},
                                impl::SumTo<std::uint64_t>{to});
}
[[nodiscard]] inline std::uint64_t hash_of(const CudaContext& context, std::span<const float> values) {
    [[maybe_unused]] const auto scope = context.team();
    queue_hash_of(context, values, impl::result_of_sum<std::uint64_t>(context));
    return impl::read_result<std::uint64_t>(context);
}

}}  // namespace cupola::CUPOLA_ABI
