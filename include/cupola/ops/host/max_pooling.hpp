// SPDX-License-Identifier: Apache-2.0
//
// A maximum over windows on `Host`, with a byte saved for the place of each. What ops::Pooling uses where such a place
// is a byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/host/impl/pool_rows.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <class T>
class HostMaxPooling {
public:
    HostMaxPooling(const Site<Host, T>& site, const PoolingShape& shape)
        : rows_(shape), batch_(site.batch), mask_(site.masks_for_previous), saves_(site.training) {}

    [[nodiscard]] MemoryNeeds needs() const {
        return {.saved = saves_ ? static_cast<std::size_t>(batch_ * rows_.outputs() * rows_.output_row()) : 0};
    }

    void forward(const Pass<Host, T>& pass) const {
        parallel_for(pass.context, batch_ * rows_.outputs(), [this, &pass](std::int64_t at) {
            const T* const x = pass.input + at / rows_.outputs() * rows_.inputs() * rows_.input_row();
            rows_.forward(
                at % rows_.outputs(), [&](std::int64_t a) { return x + a * rows_.input_row(); },
                pass.output + at * rows_.output_row(), saves_ ? places(pass) + at * rows_.output_row() : nullptr, mask_,
                [](std::int64_t) {});
        });
    }

    void backward(const Pass<Host, T>& pass) const {
        if (pass.input_gradient == nullptr) return;
        parallel_for(pass.context, batch_ * rows_.inputs(), [this, &pass](std::int64_t at) {
            const std::int64_t first = at / rows_.inputs() * rows_.outputs() * rows_.output_row();
            rows_.backward(at % rows_.inputs(), pass.output_gradient + first, places(pass) + first,
                           pass.input_gradient + at * rows_.input_row());
        });
    }

private:
    [[nodiscard]] std::uint8_t* places(const Pass<Host, T>& pass) const {
        return reinterpret_cast<std::uint8_t*>(pass.saved);
    }

    impl::PoolRows rows_;
    std::int64_t batch_;
    bool mask_, saves_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
