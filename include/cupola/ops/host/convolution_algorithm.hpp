// SPDX-License-Identifier: Apache-2.0
//
// A choice for `HostOptions::convolution`: an algorithm that computes convolutions in float instead of oneDNN's direct
// one, where it knows their shape. It is named by a pointer, so that who does not ask for it does not compile it.
#pragma once

#include <memory>
#include <string_view>

#include <cupola/device/host.hpp>
#include <cupola/ops/convolution.hpp>

namespace cupola::inline CUPOLA_ABI {

/// One convolution by such an algorithm: an operation.
class HostConvolution {
public:
    HostConvolution() = default;
    HostConvolution(const HostConvolution&) = delete;
    HostConvolution& operator=(const HostConvolution&) = delete;
    virtual ~HostConvolution() = default;

    [[nodiscard]] virtual MemoryNeeds needs() const = 0;
    virtual void prepare(const ForwardArgs<Host>& args) = 0;
    virtual void forward(const ForwardArgs<Host>& args) = 0;
    virtual void backward(const BackwardArgs<Host>& args) = 0;
};

struct ConvolutionAlgorithm {
    std::string_view name;
    /// Null where the convolution is better left to oneDNN: one of another shape, or one that this makes no faster.
    std::unique_ptr<HostConvolution> (*make)(const BuildContext<Host>& build, const ConvolutionShape& shape);
};

}  // namespace cupola::inline CUPOLA_ABI
