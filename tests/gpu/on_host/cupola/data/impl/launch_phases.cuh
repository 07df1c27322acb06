// SPDX-License-Identifier: Apache-2.0
//
// Kernels of several phases, run on the host when the stream comes to them: see ../../device/cuda.hpp in this folder.
// Blocks come last first, the threads of a phase in an order that changes with the phase, and what they share begins as
// no number.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cupola/device/cuda.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <int phase, class Work>
void run_phases(const Work& work, std::int64_t block, typename Work::Shared& shared) {
    constexpr int step = Work::threads % 7 != 0 ? 7 : 11;
    static_assert(Work::threads % step != 0);
    for (int i = 0; i < Work::threads; ++i) {
        work.template run<phase>(block, (i * step + 5 * phase) % Work::threads, shared);
    }
    if constexpr (phase + 1 < Work::phases) run_phases<phase + 1>(work, block, shared);
}

template <class Work>
void launch_phases(const CudaContext& context, std::int64_t blocks, const Work& work) {
    using Shared = typename Work::Shared;
    static_assert(sizeof(Work) <= 4096 && std::is_trivially_copyable_v<Work> && std::is_trivially_copyable_v<Shared>);
    if (blocks <= 0) return;
    context.stream()->queue([=] {
        for (std::int64_t block = blocks; block-- > 0;) {
            alignas(Shared) unsigned char memory[sizeof(Shared)];
            std::memset(memory, 0xFF, sizeof memory);
            run_phases<0>(work, block, *reinterpret_cast<Shared*>(memory));
        }
    });
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
