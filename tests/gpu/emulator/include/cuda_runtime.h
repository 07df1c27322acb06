/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulator's: what CUDA adds to C++ in kernels, as far as this project uses it, for a compiler of plain C++. A kernel is
 * a function that each thread of a block calls; shared memory is a static variable per thread of the process, which runs one block
 * at a time.
 */
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <math.h>

#include "../kernel.hpp"
#include "cuda_runtime_api.h"

/* What the emulated program has code for: devices of compute capability 9.0, and PTX for later ones. */
#define __CUDA_ARCH_LIST__ 900

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
/* All threads read the one copy of such an argument. Therefore it is written after the type. */
#define __grid_constant__ &
#define __forceinline__ inline
#define __launch_bounds__(...)

/* Of the thread that runs. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = cupola::emulator::lanes_per_warp;

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    cupola::emulator::barrier({file, line});
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    static_cast<void>(
        cupola::emulator::exchange(cupola::emulator::WarpOperation::synchronize, mask, 0, 0, {file, line}));
}
inline void __nanosleep(unsigned, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    cupola::emulator::sleep({file, line});
}
inline void __threadfence_block() {}
inline void __threadfence() { cupola::emulator::others_may_run(); }
inline void __threadfence_system() { cupola::emulator::others_may_run(); }

namespace cupola::emulator {

template <class V>
V shuffle(unsigned mask, V value, int source, Place place) {
    static_assert(std::is_arithmetic_v<V> && (sizeof(V) == 4 || sizeof(V) == 8), "what __shfl_sync takes");
    using Word = std::conditional_t<sizeof(V) == 4, std::uint32_t, std::uint64_t>;
    const std::uint64_t word = std::bit_cast<Word>(value);
    return std::bit_cast<V>(static_cast<Word>(exchange(WarpOperation::shuffle, mask, word, source, place)));
}

/* Where a lane that is not of its segment of `width` lanes is asked for, a lane keeps its own value. */
inline int within(int source, int width) {
    const int begin = lane() / width * width;
    return source >= begin && source < begin + width ? source : lane();
}

}  // namespace cupola::emulator

template <class V>
V __shfl_sync(unsigned mask, V value, int source, int width = warpSize, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
    const int begin = cupola::emulator::lane() / width * width;
    return cupola::emulator::shuffle(mask, value, begin + (source % width + width) % width, {file, line});
}
template <class V>
V __shfl_down_sync(unsigned mask, V value, unsigned by, int width = warpSize, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
    const int source = cupola::emulator::lane() + static_cast<int>(by);
    return cupola::emulator::shuffle(mask, value, cupola::emulator::within(source, width), {file, line});
}
template <class V>
V __shfl_up_sync(unsigned mask, V value, unsigned by, int width = warpSize, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
    const int source = cupola::emulator::lane() - static_cast<int>(by);
    return cupola::emulator::shuffle(mask, value, cupola::emulator::within(source, width), {file, line});
}
template <class V>
V __shfl_xor_sync(unsigned mask, V value, int with, int width = warpSize, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
    const int source = cupola::emulator::lane() ^ with;
    return cupola::emulator::shuffle(mask, value, cupola::emulator::within(source, width), {file, line});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
    return static_cast<unsigned>(cupola::emulator::exchange(cupola::emulator::WarpOperation::ballot, mask,
                                                            predicate != 0 ? 1 : 0, 0, {file, line}));
}
inline int __any_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return __ballot_sync(mask, predicate, file, line) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return __ballot_sync(mask, predicate, file, line) == mask ? 1 : 0;
}

/// 1 + the place of the lowest bit, 0 for none.
inline int __ffs(int value) { return __builtin_ffs(value); }

template <class V>
V __ldg(const V* from) {
    return *from;
}

/* A thread is not interrupted within one of these, so each is one step for the others; after it other blocks may run. */
template <class V>
V atomicAdd(V* to, std::type_identity_t<V> value) {
    const V before = *to;
    *to = static_cast<V>(before + value);
    cupola::emulator::others_may_run();
    return before;
}
template <class V>
V atomicSub(V* to, std::type_identity_t<V> value) {
    const V before = *to;
    *to = static_cast<V>(before - value);
    cupola::emulator::others_may_run();
    return before;
}
template <class V>
V atomicExch(V* to, std::type_identity_t<V> value) {
    const V before = *to;
    *to = value;
    cupola::emulator::others_may_run();
    return before;
}
template <class V>
V atomicMin(V* to, std::type_identity_t<V> value) {
    const V before = *to;
    *to = std::min(before, value);
    cupola::emulator::others_may_run();
    return before;
}
template <class V>
V atomicMax(V* to, std::type_identity_t<V> value) {
    const V before = *to;
    *to = std::max(before, value);
    cupola::emulator::others_may_run();
    return before;
}
template <class V>
V atomicAnd(V* to, std::type_identity_t<V> value) {
    const V before = *to;
    *to = before & value;
    cupola::emulator::others_may_run();
    return before;
}
template <class V>
V atomicOr(V* to, std::type_identity_t<V> value) {
    const V before = *to;
    *to = before | value;
    cupola::emulator::others_may_run();
    return before;
}
template <class V>
V atomicCAS(V* to, std::type_identity_t<V> expected, std::type_identity_t<V> value) {
    const V before = *to;
    if (before == expected) *to = value;
    cupola::emulator::others_may_run();
    return before;
}

/* Programmatic dependent launch: a kernel waits for those before it, and lets the next one come. */
inline void cudaGridDependencySynchronize() { cupola::emulator::wait_for_earlier_kernels(); }
inline void cudaTriggerProgrammaticLaunchCompletion() {}

enum cudaLaunchAttributeID {
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6
};
union cudaLaunchAttributeValue {
    int cooperative;
    int programmaticStreamSerializationAllowed;
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};

struct cudaLaunchConfig_t {
    dim3 gridDim;
    dim3 blockDim;
    std::size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
};

namespace cupola::emulator {

template <class... Parameters>
struct Called {
    template <std::size_t... k>
    static void with(const void* kernel, const void* const* from, std::index_sequence<k...>) {
        reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(kernel))(
            *static_cast<const std::remove_cvref_t<Parameters>*>(from[k])...);
    }
    static void call(const void* kernel, const void* const* from) {
        with(kernel, from, std::index_sequence_for<Parameters...>());
    }
    static constexpr std::size_t sizes[] = {sizeof(std::remove_cvref_t<Parameters>)..., 0};
};

[[nodiscard]] inline Launch launch_of(const cudaLaunchConfig_t& config) {
    Launch result{config.gridDim, config.blockDim, config.dynamicSmemBytes, config.stream};
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        const cudaLaunchAttribute& attribute = config.attrs[i];
        if (attribute.id == cudaLaunchAttributeCooperative) result.cooperative = attribute.val.cooperative != 0;
        if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization)
            result.dependent = attribute.val.programmaticStreamSerializationAllowed != 0;
    }
    return result;
}

}  // namespace cupola::emulator

/* Every argument is converted to its parameter's type and copied; each thread has a copy of its own of those that it may change. */
template <class... Parameters>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const std::type_identity_t<std::remove_cvref_t<Parameters>>&... arguments) {
    static_assert((std::is_trivially_copy_constructible_v<std::remove_cvref_t<Parameters>> && ...),
                  "the arguments of a kernel are copied as bytes");
    using Kernel = cupola::emulator::Called<Parameters...>;
    const void* const from[] = {__builtin_addressof(arguments)..., nullptr};
    return cupola::emulator::launch(reinterpret_cast<const void*>(kernel),
                                    {&Kernel::call, Kernel::sizes, sizeof...(Parameters)}, from,
                                    cupola::emulator::launch_of(*config));
}

template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
    return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
template <class T>
cudaError_t cudaHostAlloc(T** memory, std::size_t bytes, unsigned flags) {
    return cudaHostAlloc(reinterpret_cast<void**>(memory), bytes, flags);
}
