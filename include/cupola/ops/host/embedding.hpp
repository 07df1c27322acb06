// SPDX-License-Identifier: Apache-2.0
//
// Embedding on `Host`: a block of positions per thread forward, and a block of the table's rows backward.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/embedding.hpp>
#include <cupola/ops/host/impl/element.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <impl::HostElement T>
class Embedding<Host, T> {
public:
    Embedding(const BuildContext<Host, T>& build, const EmbeddingShape& shape)
        : shape_(shape), positions_(build.batch * build.input.size()) {}

    void forward(const ForwardArgs<Host, T>& args) const {
        const auto* const ids = static_cast<const std::int32_t*>(args.column);
        const std::int64_t width = shape_.width;
        for_each_part(args.context, positions_, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                T* const to = args.output + i * width;
                if (shape_.has_row(ids[i])) {
                    copy_row(args.parameters[0] + ids[i] * width, width, to);
                } else {
                    std::fill_n(to, width, T{});
                }
            }
        });
    }

    void backward(const BackwardArgs<Host, T>& args) const {
        float* const gradient = args.parameter_gradients[0];
        if (gradient == nullptr) return;
        const auto* const ids = static_cast<const std::int32_t*>(args.column);
        const std::int64_t width = shape_.width;
        for_each_part(args.context, shape_.count, [&](std::int64_t begin, std::int64_t end) {
            if (!args.accumulate) std::fill_n(gradient + begin * width, (end - begin) * width, 0.0F);
            for (std::int64_t i = 0; i < positions_; ++i) {
                if (ids[i] < begin || ids[i] >= end || !shape_.has_row(ids[i])) continue;
                add_row(args.output_gradient + i * width, width, gradient + ids[i] * width);
            }
        });
    }

private:
    /// Calls f(begin, end) for parts of [0, count) rows of the table, or positions. Few parts, because each part of the
    /// table reads all ids.
    template <class Function>
    void for_each_part(const HostContext& context, std::int64_t count, Function&& f) const {
        const std::int64_t worth = std::max<std::int64_t>(1, block_size / shape_.width);
        const std::int64_t most = std::max<std::int64_t>(1, 2 * context.threads());
        const std::int64_t parts = std::clamp<std::int64_t>(count / worth, 1, most);
        parallel_for(context, parts, [&](std::int64_t part) { f(part * count / parts, (part + 1) * count / parts); });
    }
    // Not inlined: g++ -O3 keeps a scalar copy of an inlined loop.
    [[gnu::noinline]] static void copy_row(const float* from, std::int64_t count, T* to) {
#pragma omp simd
        for (std::int64_t c = 0; c < count; ++c) impl::put(to[c], from[c]);
    }
    [[gnu::noinline]] static void add_row(const T* from, std::int64_t count, float* sum) {
#pragma omp simd
        for (std::int64_t c = 0; c < count; ++c) sum[c] += static_cast<float>(from[c]);
    }

    EmbeddingShape shape_;
    std::int64_t positions_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
