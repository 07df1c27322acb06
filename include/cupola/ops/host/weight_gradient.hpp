// SPDX-License-Identifier: Apache-2.0
//
// The gradients of a convolution's weight and bias by one of Cupola's own kernels where that is faster than oneDNN's:
// for depthwise convolutions; in float for convolutions with few channels on one side; in bfloat16 on AMX, for batches
// that fill tiles of 32 images. Sums are float, in an order that depends on the shape and, on AMX, on the number of
// threads.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>

#include <cupola/core/abi.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/device/host.hpp>
#include <cupola/ops/convolution.hpp>
#include <cupola/ops/host/impl/depthwise_weight_gradient.hpp>
#include <cupola/ops/host/impl/narrow_weight_gradient.hpp>
#if CUPOLA_ISA >= CUPOLA_ISA_AVX512
#include <cupola/ops/host/impl/amx_weight_gradient.hpp>
#endif

namespace cupola { inline namespace CUPOLA_ABI {

/// For activations in `T`.
template <class T>
class HostWeightGradient {
public:
    HostWeightGradient() = default;
    HostWeightGradient(const HostWeightGradient&) = delete;
    HostWeightGradient& operator=(const HostWeightGradient&) = delete;
    virtual ~HostWeightGradient() = default;

    [[nodiscard]] virtual std::size_t scratch_bytes() const = 0;
    /// Whether run() applies the mask of the convolution's ReLU itself, where told so.
    [[nodiscard]] virtual bool masks() const { return false; }
    /// Writes or adds to both parameters' gradients, from the pass's input and a masked gradient of the output, or one
    /// that is still to be masked by the pass's output, which then stays as it is.
    virtual void run(const BackwardArgs<Host, T>& args, bool mask) const = 0;
};

namespace impl {

class NarrowFloatWeightGradient final : public HostWeightGradient<float> {
public:
    NarrowFloatWeightGradient(const BuildContext<Host>& build, const ConvolutionShape& shape)
        : bias_(shape.bias), gradient_(shape, build.batch) {}
    [[nodiscard]] std::size_t scratch_bytes() const override { return gradient_.scratch_bytes(); }
    [[nodiscard]] bool masks() const override { return gradient_.masks(); }
    void run(const BackwardArgs<Host>& args, bool mask) const override {
        gradient_.run(args.context, args.input, args.output_gradient, mask ? args.output : nullptr,
                      args.parameter_gradients[0], bias_ ? args.parameter_gradients[1] : nullptr, args.accumulate,
                      args.scratch);
    }

private:
    bool bias_;
    NarrowWeightGradient gradient_;
};

/// By a kernel that is made for a number of threads and reads a masked gradient.
template <class T, class Kernel>
class ThreadedWeightGradient final : public HostWeightGradient<T> {
public:
    ThreadedWeightGradient(const BuildContext<Host, T>& build, const ConvolutionShape& shape)
        : bias_(shape.bias), gradient_(shape, build.batch, build.context.threads()) {}
    [[nodiscard]] std::size_t scratch_bytes() const override { return gradient_.scratch_bytes(); }
    void run(const BackwardArgs<Host, T>& args, bool /*mask*/) const override {
        gradient_.run(args.context, args.input, args.output_gradient, args.parameter_gradients[0],
                      bias_ ? args.parameter_gradients[1] : nullptr, args.accumulate, args.scratch);
    }

private:
    bool bias_;
    Kernel gradient_;
};

}  // namespace impl

/// Null where oneDNN should compute the convolution.
template <class T>
[[nodiscard, gnu::cold]] std::unique_ptr<HostWeightGradient<T>> make_weight_gradient(const BuildContext<Host, T>& build,
                                                                                     const ConvolutionShape& shape) {
    if (impl::DepthwiseWeightGradient<T>::suits(shape))
        return std::make_unique<impl::ThreadedWeightGradient<T, impl::DepthwiseWeightGradient<T>>>(build, shape);
    if constexpr (std::same_as<T, float>) {
        if (impl::NarrowWeightGradient::suits(shape))
            return std::make_unique<impl::NarrowFloatWeightGradient>(build, shape);
    }
#if defined(CUPOLA_HOST_AMX)
    if constexpr (std::same_as<T, BFloat16>) {
        if (impl::AmxWeightGradient::suits(shape, build.batch, build.context.threads()) && impl::has_amx()) {
            return std::make_unique<impl::ThreadedWeightGradient<T, impl::AmxWeightGradient>>(build, shape);
        }
    }
#endif
    return nullptr;
}

}}  // namespace cupola::CUPOLA_ABI
