// SPDX-License-Identifier: Apache-2.0
//
// The concatenation of two tensors along their last axis, the channels:
//
//   y[..., c] = a[..., c] for c < channels of a,    y[..., c] = b[..., c - channels of a] for the others
//
// `b` is the second input. Backward copies the part of each input out of the output's gradient; the part of the second
// is added where BuildContext::adds_second_gradient is set. It reads neither input nor output.
#pragma once

#include <cstdint>

#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

/// Made as `Concatenation(build)`: the output of `build` has the channels of both inputs, and its input is the first.
template <class Device, class T>
    requires ComputesElements<Device, T>
class Concatenation {
public:
    explicit Concatenation(const BuildContext<Device, T>& build)
        : rows_(build.batch * build.input.size() / build.input.channels()),
          first_(build.input.channels()),
          all_(build.output.channels()),
          adds_(build.adds_second_gradient) {}

    void forward(const ForwardArgs<Device, T>& args) const {
        const std::int64_t second = all_ - first_;
        for_each_in_rows(args.context, rows_, first_, impl::CopyElement{}, Rows<T>{args.output, all_},
                         Rows<const T>{args.input, first_});
        for_each_in_rows(args.context, rows_, second, impl::CopyElement{}, Rows<T>{args.output + first_, all_},
                         Rows<const T>{args.second_input, second});
    }

    void backward(const BackwardArgs<Device, T>& args) const {
        const std::int64_t second = all_ - first_;
        const Rows<const T> dy{args.output_gradient, all_}, dy_second{args.output_gradient + first_, all_};
        if (args.input_gradient != nullptr) {
            for_each_in_rows(args.context, rows_, first_, impl::CopyElement{}, Rows<T>{args.input_gradient, first_},
                             dy);
        }
        if (args.second_input_gradient == nullptr) return;
        const Rows<T> db{args.second_input_gradient, second};
        if (adds_) {
            for_each_in_rows(args.context, rows_, second, impl::AddElement{}, db, dy_second);
        } else {
            for_each_in_rows(args.context, rows_, second, impl::CopyElement{}, db, dy_second);
        }
    }

private:
    std::int64_t rows_, first_, all_;
    bool adds_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
