// SPDX-License-Identifier: Apache-2.0
//
// The peak rates of a `Host` device: a product of two 1024 x 1024 matrices by oneDNN, and a copy of 16 MiB; the best of
// several runs on the device's threads. All elements of the matrices are ones, and they fit the caches as a
// convolution's blocks do.
#pragma once

#include <cupola/device/host.hpp>
#include <cupola/ops/peak_rates.hpp>

#if !defined(CUPOLA_SEPARATE_COMPILATION) || defined(CUPOLA_SRC)
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/ops/host/onednn_primitive.hpp>
#include <cupola/tensor/algorithms.hpp>
#endif

namespace cupola { inline namespace CUPOLA_ABI {

namespace ops {

template <class T>
struct MeasurePeakRates<Host, T> {
    [[gnu::cold]] static PeakRates run(const HostContext& context);

private:
    static double operations(const HostContext& context);
    static double bytes(const HostContext& context);
};

}  // namespace ops

#if !defined(CUPOLA_SEPARATE_COMPILATION) || defined(CUPOLA_SRC)

namespace impl {

/// The best run: a rate is the one that the device reaches when nothing else uses it.
template <class Work>
[[gnu::cold]] double least_seconds(Work&& work) {
    constexpr int runs = 12;
    double least = 0;
    for (int run = 0; run < runs; ++run) {
        const double begun = monotonic_seconds();
        work();
        const double seconds = monotonic_seconds() - begun;
        if (run == 0 || seconds < least) least = seconds;
    }
    return least;
}

}  // namespace impl

namespace ops {

template <class T>
PeakRates MeasurePeakRates<Host, T>::run(const HostContext& context) {
    const HostContext::Team team = context.team();
    return {.operations = operations(context), .bytes = bytes(context)};
}

template <class T>
double MeasurePeakRates<Host, T>::operations(const HostContext& context) {
    constexpr std::int64_t n = 1024;
    const auto matrix = impl::dnnl_tensor({n, n}, dnnl_ab, impl::dnnl_type<T>);
    const auto attributes = impl::dnnl_attributes();
    impl::DnnlPrimitiveDesc description;
    const dnnl_status_t status = dnnl_matmul_primitive_desc_create(
        description.out(), context.engine(), matrix.get(), matrix.get(), nullptr, matrix.get(), attributes.get());
    impl::DnnlCall product(context, status, std::move(description), "matrix product");
    for (const int argument : {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}) product.add(argument, matrix.get());
    HostArena scratch(product.scratch_bytes(), "the scratch memory of a matrix product");
    HostArena matrices(3 * n * n * sizeof(T), "three matrices");
    auto* const values = reinterpret_cast<T*>(matrices.data());
    std::fill(values, values + 3 * n * n, T(1.0F));
    const double seconds = impl::least_seconds([&] {
        product.run(scratch.data(), {values, values + n * n, values + 2 * n * n});
    });
    return 2.0 * n * n * n / seconds;
}

template <class T>
double MeasurePeakRates<Host, T>::bytes(const HostContext& context) {
    constexpr std::int64_t size = std::int64_t{1} << 24, piece = std::int64_t{1} << 18;
    HostArena memory(2 * size, "two pieces of memory");
    std::byte *const from = memory.data(), *const to = from + size;
    std::memset(from, 1, size);
    const double seconds = impl::least_seconds([&] {
        parallel_for(context, size / piece,
                     [&](std::int64_t i) { std::memcpy(to + i * piece, from + i * piece, piece); });
    });
    return 2.0 * static_cast<double>(size) / seconds;
}

}  // namespace ops

#endif

}}  // namespace cupola::CUPOLA_ABI
