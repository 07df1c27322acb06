// SPDX-License-Identifier: Apache-2.0
//
// A choice for `HostOptions::convolution`: an algorithm that computes convolutions of the shapes that it supports, in
// float and in bfloat16 or in float alone, instead of oneDNN's direct algorithm. It is selected by a pointer, so that
// programs that do not use it do not compile it.
#pragma once

#include <concepts>
#include <memory>
#include <string_view>

#include <cupola/core/element_type.hpp>
#include <cupola/device/host.hpp>
#include <cupola/ops/convolution.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A convolution by such an algorithm, as an operation on activations in `T`.
template <class T>
class HostConvolution {
public:
    HostConvolution() = default;
    HostConvolution(const HostConvolution&) = delete;
    HostConvolution& operator=(const HostConvolution&) = delete;
    virtual ~HostConvolution() = default;

    [[nodiscard]] virtual MemoryNeeds needs() const = 0;
    [[nodiscard]] virtual OperationWork work(Direction) const { return {}; }
    virtual void prepare(const ForwardArgs<Host, T>& args) = 0;
    virtual void forward(const ForwardArgs<Host, T>& args) = 0;
    virtual void backward(const BackwardArgs<Host, T>& args) = 0;
};

struct ConvolutionAlgorithm {
    std::string_view name;
    /// Null where oneDNN should compute the convolution: the shape is not supported, or the algorithm is not faster for
    /// `build.batch` samples.
    /// The operation applies `build.activation`, whichever it is, to its outputs.
    std::unique_ptr<HostConvolution<float>> (*make)(const BuildContext<Host>& build, const ConvolutionShape& shape);
    /// The same in bfloat16. Null if the algorithm has no bfloat16, as `make` if it has no float.
    std::unique_ptr<HostConvolution<BFloat16>> (*make_bfloat16)(const BuildContext<Host, BFloat16>& build,
                                                                const ConvolutionShape& shape) = nullptr;
    /// Whether its operations also do what BuildContext::adds_to_output and formula say; where not, oneDNN computes.
    bool joins = false;

    template <class T>
    [[nodiscard]] std::unique_ptr<HostConvolution<T>> make_for(const BuildContext<Host, T>& build,
                                                               const ConvolutionShape& shape) const {
        if (!joins && (build.adds_to_output || build.formula != nullptr)) return nullptr;
        if constexpr (std::same_as<T, float>) {
            return make == nullptr ? nullptr : make(build, shape);
        } else {
            return make_bfloat16 == nullptr ? nullptr : make_bfloat16(build, shape);
        }
    }
};

}}  // namespace cupola::CUPOLA_ABI
