// SPDX-License-Identifier: Apache-2.0
//
// The layout of a context's memory for sums. This is the only user of CudaContext::sums(): an offset computed elsewhere
// could be within a part whose contents another kernel relies on.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The maximum number of partial sums of a sum over a whole array.
inline constexpr std::int64_t max_partial_sums = 1024;
/// The maximum number of sums of squares in one kernel.
inline constexpr int max_joined_sums = 16;

/// The parts of the memory. The first two belong to one reduction at a time, in the stream's order; the others keep
/// their values between kernels. All bytes are 0 at first.
struct SumsMemory {
    static constexpr std::size_t partial_bytes = static_cast<std::size_t>(max_partial_sums) * 16;

    /// Partial sums of values of up to 16 bytes, or fewer of larger ones.
    alignas(16) std::byte partial[partial_bytes];
    /// A result, for kernels that are queued next or for the host.
    alignas(16) std::byte result[64];
    /// For each of the joined sums, the number of blocks that have written their partial sum: 0 between two kernels.
    unsigned arrived[max_joined_sums];
    /// The sum of squares of a gradient that is clipped, and the scale that clips it.
    double clipping;
    float clip_scale;

    /// Whether each part begins at or after the end of the one before it, and the last ends in the memory.
    [[nodiscard]] static consteval bool is_disjoint() {
        return partial_bytes <= offsetof(SumsMemory, result) &&
               offsetof(SumsMemory, result) + sizeof(result) <= offsetof(SumsMemory, arrived) &&
               offsetof(SumsMemory, arrived) + sizeof(arrived) <= offsetof(SumsMemory, clipping) &&
               offsetof(SumsMemory, clipping) + sizeof(clipping) <= offsetof(SumsMemory, clip_scale) &&
               offsetof(SumsMemory, clip_scale) + sizeof(clip_scale) <= CudaContext::sums_bytes;
    }
    /// The number of values `V` that `partial` holds.
    template <class V>
    [[nodiscard]] static constexpr std::int64_t capacity() {
        return static_cast<std::int64_t>(partial_bytes / sizeof(V));
    }
};
static_assert(SumsMemory::is_disjoint(), "parts of the memory for sums overlap, or do not fit in it");

/// The addresses of the parts, which are on the device.
[[nodiscard]] inline SumsMemory& sums_memory(const CudaContext& context) {
    return *reinterpret_cast<SumsMemory*>(context.sums());
}

}}}  // namespace cupola::CUPOLA_ABI::impl
