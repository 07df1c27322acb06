// SPDX-License-Identifier: Apache-2.0
//
// A choice for `HostOptions::convolution`: an algorithm that computes float convolutions of the shapes that it
// supports, instead of oneDNN's direct algorithm. It is selected by a pointer, so that programs that do not use it do
// not compile it.
#pragma once

#include <memory>
#include <string_view>

#include <cupola/device/host.hpp>
#include <cupola/ops/convolution.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A convolution by such an algorithm, as an operation.
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
    /// Null where oneDNN should compute the convolution: the shape is not supported, or the algorithm is not faster.
    std::unique_ptr<HostConvolution> (*make)(const BuildContext<Host>& build, const ConvolutionShape& shape);
};

}}  // namespace cupola::CUPOLA_ABI
