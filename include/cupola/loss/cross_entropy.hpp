// SPDX-License-Identifier: Apache-2.0
//
// CrossEntropy<classes>: softmax and cross-entropy of a network whose output is `classes` logits, the mean over a
// replica's batch (ops/softmax_cross_entropy.hpp has the formula).
#pragma once

#include <cstdint>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>

namespace cupola::inline CUPOLA_ABI {

template <std::int64_t classes>
struct CrossEntropy {
    static constexpr std::string_view name = "cross_entropy";

    /// The column "target": one class label per sample.
    using Target = std::int32_t;
    static constexpr Shape target(const Shape& /*output*/) { return {1}; }

    /// The fraction of the target that is spread evenly over all classes, in [0, 1).
    float label_smoothing = 0.0F;

    /// What is wrong with a network of this output, or nothing.
    static constexpr CompileTimeMessage diagnostic(const Shape& output) {
        CompileTimeMessage message;
        if (output != Shape{classes}) {
            message << "CrossEntropy<" << classes << "> expects an output of " << classes << ", but the network's is "
                    << output;
        }
        return message;
    }

    template <class Device>
    [[nodiscard]] ops::SoftmaxCrossEntropy<Device, float> operation() const {
        require(label_smoothing >= 0.0F && label_smoothing < 1.0F, "label smoothing must be in [0, 1), not ",
                label_smoothing);
        return ops::SoftmaxCrossEntropy<Device, float>(classes, label_smoothing);
    }
};

}  // namespace cupola::inline CUPOLA_ABI
