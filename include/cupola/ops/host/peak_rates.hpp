// SPDX-License-Identifier: Apache-2.0
//
// The peak rates of a `Host` device: a product of two 512 x 512 matrices by oneDNN, multiply-adds of vectors in
// registers, and copies within half of the second-level caches, a quarter of the third-level ones and four times those,
// at most 512 MiB. All elements of the matrices are ones. A rate is measured for as long on every device: all at once.
#pragma once

#include <cupola/device/host.hpp>
#include <cupola/ops/peak_rates.hpp>

#if !defined(CUPOLA_SEPARATE_COMPILATION) || defined(CUPOLA_SRC)
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/device/processors.hpp>
#include <cupola/ops/host/impl/lanes.hpp>
#include <cupola/ops/host/onednn_primitive.hpp>
#include <cupola/tensor/algorithms.hpp>
#endif

namespace cupola { inline namespace CUPOLA_ABI {

template <class T>
struct ops::MeasurePeakRates<Host, T> {
    [[gnu::cold]] static PeakRates run(const HostContext& context);
};

#if !defined(CUPOLA_SEPARATE_COMPILATION) || defined(CUPOLA_SRC)

namespace impl {

/// The sum over the threads of the `amount` that work(thread, run) does over its time. Each thread times its own runs,
/// of less than a millisecond, while all run; a tenth of them take less, so what disturbs it at times does not count.
template <class Work>
[[gnu::cold]] double undisturbed_rate(const HostContext& context, double amount, Work&& work) {
    constexpr double seconds = 0.1;
    constexpr std::int64_t max_runs = 4096;
    std::vector<double> times(static_cast<std::size_t>(context.threads() * max_runs));
    parallel_for(context, context.threads(), [&](std::int64_t thread) {
        double* const own = times.data() + thread * max_runs;
        const double begun = monotonic_seconds();
        std::int64_t run = 0;
        for (double before = begun; run < max_runs && (run == 0 || before < begun + seconds); ++run) {
            work(thread, run);
            const double now = monotonic_seconds();
            own[run] = now - std::exchange(before, now);
        }
        std::sort(own, own + run);
        own[0] = amount / own[run / 10];
    });
    double sum = 0;
    for (std::size_t first = 0; first < times.size(); first += max_runs) sum += times[first];
    return sum;
}

/// The rate of y = x / 2, vector by vector, for x and y of `bytes` together, of which a run has the next part.
[[gnu::cold]] inline double copy_rate(const HostContext& context, double bytes) {
    constexpr std::int64_t piece = 1024, pieces = 256;
    const std::int64_t threads = context.threads(),
                       floats = (static_cast<std::int64_t>(bytes) / (8 * piece * threads) + 1) * piece;
    HostArena memory(static_cast<std::size_t>(2 * threads * floats) * sizeof(float), "the memory of a copy");
    auto* const values = reinterpret_cast<float*>(memory.data());
    parallel_for(context, threads, [&](std::int64_t i) { std::fill_n(values + 2 * i * floats, 2 * floats, 1.0F); });
    return undisturbed_rate(context, 2.0 * pieces * piece * sizeof(float), [&](std::int64_t thread, std::int64_t run) {
        for (std::int64_t k = run * pieces; k < (run + 1) * pieces; ++k) {
            float *const from = values + 2 * thread * floats + k * piece % floats, *const to = from + floats;
#pragma GCC unroll 4
            for (std::int64_t i = 0; i < piece; i += lane_count) store_lanes(to + i, load_lanes(from + i) * 0.5F);
        }
    });
}

/// The rate of multiply-adds of enough vectors to hide their latency.
[[gnu::cold]] inline double vector_rate(const HostContext& context) {
    constexpr std::int64_t count = 14, steps = 1 << 15;
    return undisturbed_rate(context, 2.0 * lane_count * count * steps, [](std::int64_t, std::int64_t run) {
        Lanes sums[count], factor = Lanes{} + 0.5F;
        for (Lanes& sum : sums) sum = Lanes{} + static_cast<float>(run + (&sum - sums));
        for (std::int64_t step = 0; step < steps; ++step) {
            for_each_index<count>([&](auto k) __attribute__((always_inline)) { sums[k] = sums[k] * factor + factor; });
        }
        for (const Lanes& sum : sums) asm volatile("" ::"m"(sum));
    });
}

/// The rate of products of two matrices of ones, one product per thread.
template <class T>
[[gnu::cold]] double product_rate(const HostContext& context) {
    constexpr std::size_t n = 512, size = n * n * sizeof(T);
    const auto matrix = dnnl_tensor({n, n}, dnnl_ab, dnnl_type<T>);
    const auto attributes = dnnl_attributes();
    std::vector<DnnlCall> products(static_cast<std::size_t>(context.threads()));
    for (DnnlCall& product : products) {
        const HostContext::Team alone(1);
        DnnlPrimitiveDesc description;
        const dnnl_status_t status = dnnl_matmul_primitive_desc_create(
            description.out(), context.engine(), matrix.get(), matrix.get(), nullptr, matrix.get(), attributes.get());
        product = DnnlCall(context, status, std::move(description), "matrix product");
        product.add(DNNL_ARG_SRC, matrix.get(), DNNL_ARG_WEIGHTS, matrix.get(), DNNL_ARG_DST, matrix.get());
    }
    const std::size_t each = 3 * size + aligned(products[0].scratch_bytes());
    HostArena memory(products.size() * each, "the memory of matrix products");
    std::fill_n(reinterpret_cast<T*>(memory.data()), memory.size() / sizeof(T), T(1.0F));
    return undisturbed_rate(context, 2.0 * n * n * n, [&](std::int64_t thread, std::int64_t) {
        std::byte* const own = memory.data() + static_cast<std::size_t>(thread) * each;
        products[static_cast<std::size_t>(thread)].run(own + 3 * size, {own, own + size, own + 2 * size});
    });
}

}  // namespace impl

template <class T>
PeakRates ops::MeasurePeakRates<Host, T>::run(const HostContext& context) {
    const HostContext::Team team = context.team();
    const double second = cache_bytes(2, context.threads(), 0x1p20 * context.threads()),
                 third = cache_bytes(3, context.threads(), 0x1p25),
                 bytes = impl::copy_rate(context, std::clamp(4 * third, 0x1p26, 0x1p29)),
                 third_rate = std::max(bytes, impl::copy_rate(context, std::max(third / 4, 2 * second)));
    return {.operations = impl::product_rate<T>(context),
            .bytes = bytes,
            .vector_operations = impl::vector_rate(context),
            .caches = {{second, std::max(third_rate, impl::copy_rate(context, second / 2))}, {third, third_rate}},
            .reads_before_writing = true};
}

#endif

}}  // namespace cupola::CUPOLA_ABI
