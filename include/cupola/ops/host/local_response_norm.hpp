// SPDX-License-Identifier: Apache-2.0
//
// Local response normalisation on `Host`: one pass over each pixel's channels, with nothing kept between forward and
// backward. oneDNN's implementation keeps a workspace of twice the activation's size, and without AVX-512 has only
// reference code for channels last.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/host/impl/norm_rows.hpp>
#include <cupola/ops/local_response_norm.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <class T>
class LocalResponseNorm<Host, T> {
public:
    LocalResponseNorm(const BuildContext<Host, T>& build, const LocalResponseNormShape& shape)
        : rows_(shape), channels_(shape.channels), pixels_(build.batch * build.output.size() / shape.channels) {}

    [[nodiscard]] OperationWork work(Direction to) const { return impl::NormRows::work(to, pixels_ * channels_); }
    void forward(const ForwardArgs<Host, T>& args) const {
        for_each_run(args.context, [this, &args](std::int64_t first, std::int64_t count) {
            rows_.forward(args.input + first * channels_, args.output + first * channels_, count);
        });
    }

    void backward(const BackwardArgs<Host, T>& args) const {
        if (args.input_gradient == nullptr) return;
        for_each_run(args.context, [this, &args](std::int64_t first, std::int64_t count) {
            const std::int64_t at = first * channels_;
            rows_.backward(args.input + at, args.output_gradient + at, args.input_gradient + at, count, false);
        });
    }

private:
    template <class Function>
    void for_each_run(const HostContext& context, Function&& f) const {
        constexpr std::int64_t pixels_per_run = 64;
        parallel_for(context, (pixels_ + pixels_per_run - 1) / pixels_per_run, [&](std::int64_t run) {
            f(run * pixels_per_run, std::min(pixels_per_run, pixels_ - run * pixels_per_run));
        });
    }

    impl::NormRows rows_;
    std::int64_t channels_, pixels_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
