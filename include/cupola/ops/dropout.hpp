// SPDX-License-Identifier: Apache-2.0
//
// Inverted dropout (Srivastava et al. 2014): in training each element is set to zero with probability `rate` and
// otherwise divided by 1 - rate; outside training it is the identity. The mask is never stored: forward and backward
// draw the same Philox numbers, keyed by seed, layer, step and the sample's place in the global batch, so it does not
// depend on the number of replicas.
#pragma once

#include <cstdint>

#include <cupola/core/philox.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The random numbers of one sample in one layer and step; element i uses word i % 4 of block i / 4.
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr RandomStream dropout_stream(std::uint64_t seed, std::uint32_t layer,
                                                                       std::uint32_t step, std::int64_t sample) {
    return {seed, RngDomain::dropout, step,
            (static_cast<std::uint64_t>(layer) << 32) | static_cast<std::uint32_t>(sample)};
}

namespace impl {

/// One pass over a batch in training: the argument of a device's drop_elements(context, dropout, from, to).
struct DropoutPass {
    std::int64_t batch, features;
    float rate, scale;
    std::uint64_t seed;
    std::uint32_t layer, step;
    std::int64_t first_sample;

    /// The random numbers of a sample of this batch.
    [[nodiscard]] CUPOLA_HOST_DEVICE RandomStream stream(std::int64_t sample, std::uint32_t now) const {
        return dropout_stream(seed, layer, now, first_sample + sample);
    }
    /// The result for an element, given its random word.
    [[nodiscard]] CUPOLA_HOST_DEVICE float operator()(std::uint32_t word, float value) const {
        return uniform(word) < rate ? 0.0F : value * scale;
    }
};

}  // namespace impl

namespace ops {

/// Made as `Dropout(build, rate)`.
template <class Device, class T>
    requires ComputesElements<Device, T>
class Dropout {
public:
    Dropout(const BuildContext<Device, T>& build, double rate)
        : batch_(build.batch), features_(build.output.size()), layer_(build.layer), rate_(static_cast<float>(rate)) {}

    void forward(const ForwardArgs<Device, T>& args) const { apply(args, args.input, args.output); }

    void backward(const BackwardArgs<Device, T>& args) const {
        if (args.input_gradient != nullptr) apply(args, args.output_gradient, args.input_gradient);
    }

private:
    void apply(const ForwardArgs<Device, T>& args, const T* from, T* to) const {
        if (!args.training) return for_each_element(args.context, batch_ * features_, impl::CopyElement{}, to, from);
        drop_elements(args.context,
                      impl::DropoutPass{batch_, features_, rate_, 1.0F / (1.0F - rate_), args.seed, layer_, args.step,
                                        args.first_sample},
                      from, to);
    }

    std::int64_t batch_, features_;
    std::uint32_t layer_;
    float rate_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
