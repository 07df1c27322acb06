// SPDX-License-Identifier: Apache-2.0
//
// The peak rates of a `Cuda` device: a large product by cuBLASLt, and a copy of 512 MiB within its memory; the best of
// several runs, timed by events. All elements of the matrices are the same small number, which takes less power than a
// network's values: the rate is the maximum that the GPU reaches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/cublas_product.hpp>
#include <cupola/ops/peak_rates.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <class T>
struct MeasurePeakRates<Cuda, T> {
    [[gnu::cold]] static PeakRates run(const CudaContext& context) {
        const impl::OnCudaDevice team = context.team();
        return {.operations = operations(context), .bytes = bytes(context)};
    }

private:
    static constexpr int runs = 12;

    /// The best run, after an uncounted one that loads the kernel and wakes the GPU.
    template <class Work>
    static double least_seconds(const CudaContext& context, Work&& work) {
        std::array<impl::CudaEvent, 2> events;
        for (impl::CudaEvent& event : events) impl::check_cuda(cudaEventCreate(event.out()), "cudaEventCreate");
        const auto record = [&](std::size_t i) {
            impl::check_cuda(cudaEventRecord(events[i].get(), context.stream()), "cudaEventRecord");
        };
        work();
        double least = 0;
        for (int run = 0; run < runs; ++run) {
            record(0);
            work();
            record(1);
            impl::check_cuda(cudaEventSynchronize(events[1].get()), "cudaEventSynchronize");
            float milliseconds = 0;
            impl::check_cuda(cudaEventElapsedTime(&milliseconds, events[0].get(), events[1].get()),
                             "cudaEventElapsedTime");
            if (run == 0 || milliseconds < least) least = milliseconds;
        }
        return least / 1000;
    }

    static void fill(const CudaContext& context, CudaArena& memory) {
        constexpr int small_number = 0x3C;  // in each byte: 0.0115 in float and in bfloat16, 1.06 in half
        impl::check_cuda(cudaMemsetAsync(memory.data(), small_number, memory.size(), context.stream()),
                         "cudaMemsetAsync");
    }

    static double operations(const CudaContext& context) {
        // Square matrices of 64 and 128 MiB: several thousand blocks of the result, so that the last wave of blocks is
        // a small part.
        constexpr std::int64_t n = sizeof(T) == 4 ? 4096 : 8192;
        constexpr impl::CublasMatrix matrix{impl::cublas_type<T>, n, n}, transposed{impl::cublas_type<T>, n, n, true};
        impl::CublasProduct product(context, transposed, matrix, matrix, impl::CublasProduct::Epilogue::none, false);
        require<DeviceError>(product.found(), "cuBLASLt has no algorithm for a product of two ", n, " x ", n,
                             " matrices");
        constexpr auto size = static_cast<std::size_t>(n * n) * sizeof(T);
        CudaArena matrices(3 * size, "three matrices"),
            workspace(product.workspace_bytes(), "the scratch memory of a matrix product");
        fill(context, matrices);
        std::byte* const values = matrices.data();
        const double seconds = least_seconds(context, [&] {
            product.run(context, values, values + size, values + 2 * size, nullptr, false, workspace.data());
        });
        return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / seconds;
    }

    static double bytes(const CudaContext& context) {
        constexpr std::size_t size = std::size_t{512} << 20;  // ten times the largest second-level cache
        CudaArena memory(2 * size, "two pieces of memory");
        fill(context, memory);
        const double seconds = least_seconds(context, [&] {
            impl::check_cuda(
                cudaMemcpyAsync(memory.data() + size, memory.data(), size, cudaMemcpyDeviceToDevice, context.stream()),
                "cudaMemcpyAsync");
        });
        return 2.0 * static_cast<double>(size) / seconds;
    }
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
