// SPDX-License-Identifier: Apache-2.0
//
// Softmax cross-entropy on `Host`. Rows are independent; their losses are added in the order of the rows.
#pragma once

#include <cstdint>

#include <cupola/core/finite.hpp>
#include <cupola/device/host.hpp>
#include <cupola/ops/host/rows.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <class Targets>
class SoftmaxCrossEntropy<Host, float, Targets> {
    using Target = typename Targets::Target;

public:
    explicit SoftmaxCrossEntropy(const CrossEntropySettings& settings) : settings_(settings) {}
    SoftmaxCrossEntropy(std::int64_t classes, float label_smoothing)
        : SoftmaxCrossEntropy(CrossEntropySettings{.classes = classes, .label_smoothing = label_smoothing}) {}

    /// The rows of `batch` samples; `gradient` is written if it is not null.
    LossResult forward(HostContext& context, const float* logits, const Target* targets, std::int64_t batch,
                       float* gradient) const {
        LossReport report = impl::no_loss;
        queue(context, logits, targets, batch, gradient, &report);
        return result_of(report);
    }
    /// The same for a step: an invalid target is reported, and the gradient is then not written.
    void queue(HostContext& context, const float* logits, const Target* targets, std::int64_t batch, float* gradient,
               LossReport* report) const;
    [[nodiscard]] LossResult result_of(const LossReport& report) const {
        return impl::result_of<Targets>(report, settings_);
    }

private:
    [[nodiscard]] Targets targets_of(const Target* targets) const {
        if constexpr (requires { Targets(settings_, targets); }) {
            return Targets(settings_, targets);
        } else {
            return Targets(settings_, targets, settings_.class_weights.data());
        }
    }

    CrossEntropySettings settings_;
};

template <class Targets>
void SoftmaxCrossEntropy<Host, float, Targets>::queue(HostContext& context, const float* logits, const Target* targets,
                                                      std::int64_t batch, float* gradient, LossReport* report) const {
    const Targets of_rows = targets_of(targets);
    const std::int64_t rows = batch * settings_.positions;
    for (std::int64_t n = 0; n < rows; ++n) {
        if (of_rows.valid(n)) continue;
        *report = impl::no_loss;
        report->sum = impl::not_a_number<double>();
        impl::set_bad_target(*report, of_rows, n);
        return;
    }
    report_rows(context, rows, settings_.classes, settings_.positions,
                impl::CrossEntropyRow<float, Targets>{logits, gradient, rows, of_rows}, report);
}

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
