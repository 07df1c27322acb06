// SPDX-License-Identifier: Apache-2.0
//
// FromBytes on `Host`. The constants are repeated over a block of bytes whose length is a multiple of any number of
// them, so that the loop over a block is vectorised.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/from_bytes.hpp>
#include <cupola/ops/host/impl/element.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <impl::HostElement T>
class FromBytes<Host, T> {
public:
    FromBytes(const BuildContext<Host, T>& build, const BytesShape& shape) : count_(build.batch * build.input.size()) {
        for (int i = 0; i < block; ++i) {
            mean_[i] = shape.mean[i % shape.constants];
            scale_[i] = shape.scale[i % shape.constants];
        }
    }

    void forward(const ForwardArgs<Host, T>& args) const {
        const auto* const bytes = static_cast<const std::uint8_t*>(args.column);
        constexpr std::int64_t blocks_per_part = 32;
        constexpr std::int64_t part_size = blocks_per_part * block;
        parallel_for(args.context, (count_ + part_size - 1) / part_size, [&](std::int64_t part) {
            const std::int64_t end = std::min(count_, (part + 1) * part_size);
            for (std::int64_t begin = part * part_size; begin < end; begin += block)
                convert(bytes + begin, std::min<std::int64_t>(block, end - begin), args.output + begin);
        });
    }
    void backward(const BackwardArgs<Host, T>&) const {}

private:
    static constexpr int block = 192;

    // Not inlined: g++ -O3 keeps a scalar copy of an inlined loop.
    [[gnu::noinline]] void convert(const std::uint8_t* from, std::int64_t count, T* to) const {
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) impl::put(to[i], (static_cast<float>(from[i]) - mean_[i]) * scale_[i]);
    }

    std::int64_t count_;
    alignas(64) float mean_[block];
    alignas(64) float scale_[block];
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
