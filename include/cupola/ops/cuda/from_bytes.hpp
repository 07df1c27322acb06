// SPDX-License-Identifier: Apache-2.0
//
// FromBytes on `Cuda`: a thread writes 16 bytes of activations.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch_packs.cuh>
#include <cupola/ops/from_bytes.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <class T>
struct FromBytesAt {
    static constexpr bool indexes_own_array = true;

    BytesShape shape;
    const std::uint8_t* x;
    T* y;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        const Pack<std::uint8_t, n> bytes = pack_at<n>(x + i);
        int channel = static_cast<int>(i % shape.constants);
        float value[n];
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) {
            value[k] = (static_cast<float>(bytes.element[k]) - shape.mean[channel]) * shape.scale[channel];
            channel = channel + 1 == shape.constants ? 0 : channel + 1;
        }
        store_floats<n>(y + i, value);
    }
};

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class FromBytes<Cuda, T> {
public:
    FromBytes(const BuildContext<Cuda, T>& build, const BytesShape& shape)
        : shape_(shape), count_(build.batch * build.input.size()) {}

    void forward(const ForwardArgs<Cuda, T>& args) const {
        const auto* const bytes = static_cast<const std::uint8_t*>(args.column);
        impl::launch_elementwise<T>(args.context, count_, impl::aligned_for_packs(bytes, args.output),
                                    impl::FromBytesAt<T>{shape_, bytes, args.output});
    }
    void backward(const BackwardArgs<Cuda, T>&) const {}

private:
    BytesShape shape_;
    std::int64_t count_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
