// SPDX-License-Identifier: Apache-2.0
//
// Conversions from float of several arrays as one kernel: see the joined work of CudaContext.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The arrays, one after another: an index is that of a pack of n elements, or of an element where the array is not
/// aligned.
template <class T>
struct ConvertArrays {
    static constexpr int n = pack_size<T>, max_arrays = 32;

    struct Array {
        const float* from;
        T* to;
        std::int64_t count;
        /// The index at which the array ends.
        std::int64_t end;
        bool packs;

        template <int m>
        CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
            float value[m];
            load_floats<m>(from + i, value);
            Pack<T, m> pack;
            CUPOLA_UNROLL
            for (int k = 0; k < m; ++k) pack.element[k] = T(value[k]);
            pack_at<m>(to + i) = pack;
        }
    };

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        int k = 0;
        while (i >= array[k].end) ++k;
        if (k > 0) i -= array[k - 1].end;
        const Array here = array[k];
        if (here.packs) {
            InPacks<n, Array>{here.count, here}(i);
        } else {
            here.template at<1>(i);
        }
    }

    int arrays;
    Array array[max_arrays];
};

template <class T>
struct JoinedConversions {
    [[nodiscard]] bool takes_more() const { return convert.arrays < ConvertArrays<T>::max_arrays; }
    void add(const float* from, T* to, std::int64_t count) {
        const bool packs = aligned_for_packs(from, to);
        const std::int64_t begin = convert.arrays == 0 ? 0 : convert.array[convert.arrays - 1].end;
        convert.array[convert.arrays++] = {
            from, to, count, begin + (packs ? (count + ConvertArrays<T>::n - 1) / ConvertArrays<T>::n : count), packs};
    }
    void launch(const CudaContext& context) const {
        impl::launch(context, convert.array[convert.arrays - 1].end, convert);
    }

    ConvertArrays<T> convert{};
};

}}}  // namespace cupola::CUPOLA_ABI::impl
