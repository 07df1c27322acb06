// SPDX-License-Identifier: Apache-2.0
//
// Dropout on `Host`: both directions draw the mask anew, a sample at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/dropout.hpp>
#include <cupola/ops/onednn/impl/element.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::HostElement T>
class Dropout<Host, T> {
public:
    Dropout(const Site<Host, T>& site, double rate)
        : batch_(site.batch), features_(site.output.size()), layer_(site.layer), rate_(static_cast<float>(rate)) {}

    void forward(const Pass<Host, T>& pass) const { apply(pass, pass.input, pass.output); }

    void backward(const Pass<Host, T>& pass) const {
        if (pass.input_gradient != nullptr) apply(pass, pass.output_gradient, pass.input_gradient);
    }

private:
    void apply(const Pass<Host, T>& pass, const T* from, T* to) const {
        const float scale = pass.training ? 1.0F / (1.0F - rate_) : 1.0F;
        parallel_for(pass.context, batch_, [&, from, to](std::int64_t sample) {
            const T* const source = from + sample * features_;
            T* const target = to + sample * features_;
            if (!pass.training) {
                std::copy(source, source + features_, target);
                return;
            }
            const RandomStream stream = dropout_stream(pass.seed, layer_, pass.step, pass.first_sample + sample);
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
