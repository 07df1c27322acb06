// SPDX-License-Identifier: Apache-2.0
//
// CrossEntropy<classes>: softmax and cross-entropy of a network whose output is `classes` logits, with one label per
// sample, or height x width x classes logits, with one label per position; the mean over a replica's batch and the
// positions (ops/softmax_cross_entropy.hpp has the formula). WeightedCrossEntropy has weights of classes and a label
// that is ignored, SoftCrossEntropy targets that are not one class.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/loss/impl/classes.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t classes>
struct CrossEntropy {
    static constexpr std::string_view name = "cross_entropy";
    using Target = std::int32_t;
    static constexpr std::int64_t class_count = classes;

    /// The fraction of the target that is spread evenly over all classes, in [0, 1).
    float label_smoothing = 0.0F;

    /// The extents of the target of one sample: 1, or those of the output without the classes.
    static constexpr Shape target(const Shape& output) { return impl::label_extents(output); }
    /// The error message for a network with this output; empty if there is none.
    static constexpr CompileTimeMessage diagnostic(const Shape& output) {
        return impl::classes_diagnostic("CrossEntropy", classes, output);
    }

    /// Throws InvalidArgument if an option is invalid.
    void require_valid() const { impl::require_label_smoothing(label_smoothing); }
    /// The options as a text, by which two trainings are compared.
    [[nodiscard, gnu::cold]] std::string description() const {
        return impl::description_of_option("label_smoothing", {&label_smoothing, 1});
    }

    template <class Device>
    [[nodiscard]] ops::SoftmaxCrossEntropy<Device, float> operation(const Shape& output = {classes}) const {
        require_valid();
        return ops::SoftmaxCrossEntropy<Device, float>(
            {.classes = classes, .label_smoothing = label_smoothing, .positions = impl::positions_of(output)});
    }
};

}}  // namespace cupola::CUPOLA_ABI
