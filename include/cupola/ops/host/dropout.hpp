// SPDX-License-Identifier: Apache-2.0
//
// Dropout on `Host`: both directions draw the mask anew, a sample at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/dropout.hpp>
#include <cupola/ops/host/impl/element.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::HostElement T>
class Dropout<Host, T> {
public:
    Dropout(const BuildContext<Host, T>& build, double rate)
        : batch_(build.batch), features_(build.output.size()), layer_(build.layer), rate_(static_cast<float>(rate)) {}

    void forward(const PassArgs<Host, T>& args) const { apply(args, args.input, args.output); }

    void backward(const PassArgs<Host, T>& args) const {
        if (args.input_gradient != nullptr) apply(args, args.output_gradient, args.input_gradient);
    }

private:
    void apply(const PassArgs<Host, T>& args, const T* from, T* to) const {
        const float scale = args.training ? 1.0F / (1.0F - rate_) : 1.0F;
        parallel_for(args.context, batch_, [&, from, to](std::int64_t sample) {
            const T* const source = from + sample * features_;
            T* const target = to + sample * features_;
            if (!args.training) {
                std::copy(source, source + features_, target);
                return;
            }
            const RandomStream stream = dropout_stream(args.seed, layer_, args.step, args.first_sample + sample);
            for (std::int64_t i = 0; i < features_; i += 4) {
                const auto words = stream.words(static_cast<std::uint32_t>(i / 4));
                for (std::int64_t k = 0; k < 4 && i + k < features_; ++k) {
                    const bool dropped = uniform(words[static_cast<std::size_t>(k)]) < rate_;
                    impl::put(target[i + k], dropped ? 0.0F : static_cast<float>(source[i + k]) * scale);
                }
            }
        });
    }

    std::int64_t batch_, features_;
    std::uint32_t layer_;
    float rate_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
