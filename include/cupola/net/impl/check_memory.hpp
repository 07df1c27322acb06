// SPDX-License-Identifier: Apache-2.0
//
// Device memory between guards that detect writes out of bounds: for checks, not for training.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <cupola/device/device.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// `bytes` of memory between two guards; starts as NaN.
template <class D>
class CheckMemory {
public:
    using Context = typename D::Context;

    CheckMemory(Context& context, std::size_t bytes)
        : context_(&context), bytes_(bytes), arena_(guard + bytes + guard, "a check of gradients") {
        const std::vector<std::byte> pattern(guard, guard_byte);
        D::copy_from_host(context, arena_.data(), pattern.data(), guard);
        D::copy_from_host(context, arena_.data() + guard + bytes, pattern.data(), guard);
        poison();
    }

    [[nodiscard]] std::byte* bytes() { return arena_.data() + guard; }
    [[nodiscard]] float* data() { return reinterpret_cast<float*>(bytes()); }

    /// Makes every float a NaN.
    void poison() {
        const std::vector<std::byte> ones(bytes_, std::byte{0xFF});
        D::copy_from_host(*context_, bytes(), ones.data(), bytes_);
    }
    void write(std::span<const float> values) {
        D::copy_from_host(*context_, bytes(), reinterpret_cast<const std::byte*>(values.data()), values.size_bytes());
    }
    [[nodiscard]] std::vector<float> read() {
        std::vector<float> values(bytes_ / sizeof(float));
        D::copy_to_host(*context_, reinterpret_cast<std::byte*>(values.data()), bytes(), values.size() * sizeof(float));
        return values;
    }
    /// Whether nothing was written outside it.
    [[nodiscard]] bool intact() {
        std::vector<std::byte> guards(2 * guard);
        D::copy_to_host(*context_, guards.data(), arena_.data(), guard);
        D::copy_to_host(*context_, guards.data() + guard, arena_.data() + guard + bytes_, guard);
        for (const std::byte value : guards) {
            if (value != guard_byte) return false;
        }
        return true;
    }

private:
    static constexpr std::size_t guard = 4 * alignment;
    static_assert(guard % scratch_alignment<D> == 0);
    static constexpr std::byte guard_byte{0xA5};
    Context* context_;
    std::size_t bytes_;
    typename D::Arena arena_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
