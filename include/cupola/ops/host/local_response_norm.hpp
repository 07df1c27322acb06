// SPDX-License-Identifier: Apache-2.0
//
// Local response normalisation on `Host`: one pass over each pixel's channels, nothing kept between forward and
// backward. oneDNN's own keeps a workspace of twice the activation's size, and without AVX-512 has only reference code
// for channels last.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/host/impl/norm_rows.hpp>
#include <cupola/ops/local_response_norm.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <class T>
class LocalResponseNorm<Host, T> {
public:
    LocalResponseNorm(const Site<Host, T>& site, const LocalResponseNormShape& shape)
        : rows_(shape), channels_(shape.channels), pixels_(site.batch * site.output.size() / shape.channels) {}

    void forward(const Pass<Host, T>& pass) const {
        for_each_run(pass.context, [this, &pass](std::int64_t first, std::int64_t count) {
            rows_.forward(pass.input + first * channels_, pass.output + first * channels_, count);
        });
    }

    void backward(const Pass<Host, T>& pass) const {
        if (pass.input_gradient == nullptr) return;
        for_each_run(pass.context, [this, &pass](std::int64_t first, std::int64_t count) {
            const std::int64_t at = first * channels_;
            rows_.backward(pass.input + at, pass.output_gradient + at, pass.input_gradient + at, count, false);
        });
    }

private:
    template <class Function>
    void for_each_run(const HostContext& context, Function&& f) const {
        constexpr std::int64_t pixels_a_run = 64;
        parallel_for(context, (pixels_ + pixels_a_run - 1) / pixels_a_run, [&](std::int64_t run) {
            f(run * pixels_a_run, std::min(pixels_a_run, pixels_ - run * pixels_a_run));
        });
    }

    impl::NormRows rows_;
    std::int64_t channels_, pixels_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
