// SPDX-License-Identifier: Apache-2.0
//
// Another input of a network: y = the column of the batch, in the activations' type. The column is float; it has no
// gradient.
#pragma once

#include <cstdint>

#include <cupola/ops/convert.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

/// Made as `ColumnInput(build)`.
template <class Device, class T>
    requires ComputesElements<Device, T>
class ColumnInput {
public:
    explicit ColumnInput(const BuildContext<Device, T>& build) : count_(build.batch * build.output.size()) {}

    void forward(const ForwardArgs<Device, T>& args) const {
        Convert<Device>::run(args.context, static_cast<const float*>(args.column), args.output, count_);
    }
    void backward(const BackwardArgs<Device, T>&) const {}

private:
    std::int64_t count_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
