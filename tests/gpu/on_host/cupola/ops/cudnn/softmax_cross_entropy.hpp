// SPDX-License-Identifier: Apache-2.0
//
// Softmax cross-entropy of `Cuda` on the host, a sample after another: the real one needs a warp. See
// ../../device/cuda.hpp.
#pragma once

#include <cmath>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cudnn/impl/launch.cuh>
#include <cupola/ops/cudnn/impl/loss_report.hpp>
#include <cupola/ops/cudnn/impl/pack.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::CudaElement T>
class SoftmaxCrossEntropy<Cuda, T> {
public:
    SoftmaxCrossEntropy(std::int64_t classes, float smoothing) : classes_(classes), smoothing_(smoothing) {}

    void queue(const CudaContext& context, const T* logits, const std::int32_t* labels, std::int64_t batch, T* gradient,
               LossReport* report) const {
        context.stream()->queue([*this, logits, labels, batch, gradient, report] {
            LossReport result{0, 0, -1, 0};
            for (std::int64_t n = 0; n < batch; ++n) {
                sample(logits + n * classes_, labels[n], n, batch,
                       gradient == nullptr ? nullptr : gradient + n * classes_, result);
            }
            *report = result;
        });
    }

    [[nodiscard]] LossResult result_of(const LossReport& report) const { return impl::result_of(report, classes_); }

    LossResult forward(const CudaContext& context, const T* logits, const std::int32_t* labels, std::int64_t batch,
                       T* gradient) const {
        queue(context, logits, labels, batch, gradient, impl::result_of_sum<LossReport>(context));
        return result_of(impl::read_result<LossReport>(context));
    }

private:
    void sample(const T* z, std::int32_t label, std::int64_t n, std::int64_t batch, T* gradient,
                LossReport& result) const {
        const auto at = [&](std::int64_t c) { return static_cast<double>(static_cast<float>(z[c])); };
        const auto smoothing = static_cast<double>(smoothing_), classes = static_cast<double>(classes_);
        std::int64_t top = 0;
        double mean = 0, total = 0;
        for (std::int64_t c = 0; c < classes_; ++c) {
            if (at(c) > at(top)) top = c;
            mean += at(c) / classes;
        }
        for (std::int64_t c = 0; c < classes_; ++c) total += std::exp(at(c) - at(top));
        const double log_total = std::log(total) + at(top);
        const bool is_class = label >= 0 && label < classes_;
        const double loss = log_total - ((1.0 - smoothing) * (is_class ? at(label) : std::nan("")) + smoothing * mean);
        for (std::int64_t c = 0; gradient != nullptr && c < classes_; ++c) {
            const double q = (c == label ? 1.0 - smoothing : 0.0) + smoothing / classes;
            gradient[c] = T(static_cast<float>((std::exp(at(c) - log_total) - q) / static_cast<double>(batch)));
        }
        result.sum += loss;
        result.correct += top == label && !std::isnan(log_total) ? 1 : 0;
        if (!is_class && result.bad_sample < 0) {
            result.bad_sample = n;
            result.bad_label = label;
        }
    }

    std::int64_t classes_;
    float smoothing_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
