// SPDX-License-Identifier: Apache-2.0
//
// A maximum over windows on `Host`, with one byte saved for the window offset of each. ops::Pooling uses it where such
// an offset fits a byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/host/impl/pool_rows.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <class T>
class HostMaxPooling {
public:
    HostMaxPooling(const BuildContext<Host, T>& build, const PoolingShape& shape)
        : rows_(shape), batch_(build.batch), mask_(build.applies_relu_mask_of_previous), saves_(build.training) {}

    [[nodiscard]] MemoryNeeds needs() const {
        return {.saved = saves_ ? static_cast<std::size_t>(batch_ * rows_.outputs() * rows_.output_row()) : 0};
    }

    void forward(const ForwardArgs<Host, T>& args) const {
        parallel_for(args.context, batch_ * rows_.outputs(), [this, &args](std::int64_t at) {
            const T* const x = args.input + at / rows_.outputs() * rows_.inputs() * rows_.input_row();
            rows_.forward(
                at % rows_.outputs(), [&](std::int64_t a) { return x + a * rows_.input_row(); },
                args.output + at * rows_.output_row(), saves_ ? places(args) + at * rows_.output_row() : nullptr, mask_,
                [](std::int64_t) {});
        });
    }

    void backward(const BackwardArgs<Host, T>& args) const {
        if (args.input_gradient == nullptr) return;
        parallel_for(args.context, batch_ * rows_.inputs(), [this, &args](std::int64_t at) {
            const std::int64_t first = at / rows_.inputs() * rows_.outputs() * rows_.output_row();
            rows_.backward(at % rows_.inputs(), args.output_gradient + first, places(args) + first,
                           args.input_gradient + at * rows_.input_row());
        });
    }

private:
    [[nodiscard]] std::uint8_t* places(const ForwardArgs<Host, T>& args) const {
        return reinterpret_cast<std::uint8_t*>(args.saved);
    }

    impl::PoolRows rows_;
    std::int64_t batch_;
    bool mask_, saves_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
