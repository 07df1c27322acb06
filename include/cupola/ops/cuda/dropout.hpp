// SPDX-License-Identifier: Apache-2.0
//
// The dropout kernel on `Cuda`: each thread uses the four random numbers of one block. The numbers, and so the bits of
// the result, are those of every other device. In a captured step, the step's number is read on the device.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/elementwise.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/dropout.hpp>
#include <cupola/ops/impl/kernel_parts/divisor.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Called per group of four elements of a sample; the last group of a sample may be smaller. With `packed` all groups
/// are full and are read with one instruction.
template <class T, bool packed>
struct DropoutFour {
    DropoutPass dropout;
    const T* from;
    T* to;
    const std::uint32_t* step_scalar;  // if not null, the step is read from here
    Divisor fours;                     // groups of four in a sample

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const auto [sample, four] = fours.divide(i);
        const std::uint32_t now = step_scalar != nullptr ? *step_scalar : dropout.step;
        const auto words = dropout.stream(sample, now).words(static_cast<std::uint32_t>(four));
        const std::int64_t first = sample * dropout.features + 4 * four;
        if constexpr (packed) {
            float values[4];
            load_floats<4>(from + first, values);
            CUPOLA_UNROLL
            for (int k = 0; k < 4; ++k) values[k] = dropout(words.word[k], values[k]);
            store_floats<4>(to + first, values);
        } else {
            const std::int64_t left = dropout.features - 4 * four;
            for (int k = 0; k < 4 && k < left; ++k)
                to[first + k] = T(dropout(words.word[k], static_cast<float>(from[first + k])));
        }
    }
};

template <CudaElement T>
void drop_elements(const CudaContext& context, const DropoutPass& dropout, const T* from, T* to) {
    const std::int64_t fours = (dropout.features + 3) / 4, count = dropout.batch * fours;
    const std::uint32_t* const step = context.step_scalars().step;
    if (dropout.features % 4 == 0 && aligned_for_packs(from, to)) {
        launch(context, count, DropoutFour<T, true>{dropout, from, to, step, Divisor(fours)});
    } else {
        launch(context, count, DropoutFour<T, false>{dropout, from, to, step, Divisor(fours)});
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
