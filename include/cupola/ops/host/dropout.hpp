// SPDX-License-Identifier: Apache-2.0
//
// The dropout loop on `Host`: one sample at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/dropout.hpp>
#include <cupola/ops/host/elementwise.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <HostElement T>
void drop_elements(const HostContext& context, const DropoutPass& dropout, const T* from, T* to) {
    parallel_for(context, dropout.batch, [=](std::int64_t sample) {
        const T* const source = from + sample * dropout.features;
        T* const target = to + sample * dropout.features;
        const RandomStream stream = dropout.stream(sample, dropout.step);
        for (std::int64_t i = 0; i < dropout.features; i += 4) {
            const auto words = stream.words(static_cast<std::uint32_t>(i / 4));
            for (std::int64_t k = 0; k < 4 && i + k < dropout.features; ++k)
                put(target[i + k], dropout(words[static_cast<std::size_t>(k)], static_cast<float>(source[i + k])));
        }
    });
}

}}}  // namespace cupola::CUPOLA_ABI::impl
