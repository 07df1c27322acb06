// SPDX-License-Identifier: Apache-2.0
//
// WeightedCrossEntropy<classes>: CrossEntropy<classes> with a weight per class and a label that is ignored. The mean is
// the sum of weight times loss over the sum of the weights of the labels; a label that is ignored has the weight 0
// (PyTorch's CrossEntropyLoss with `weight` and `ignore_index`). Replicas and parts of a step count by these sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <cupola/loss/impl/classes.hpp>
#include <cupola/loss/impl/weight_per_class.hpp>
#include <cupola/ops/weighted_targets.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t classes>
struct WeightedCrossEntropy {
    static constexpr std::string_view name = "weighted_cross_entropy";
    using Target = std::int32_t;
    static constexpr std::int64_t class_count = classes;
    static constexpr bool weighted = true;

    /// The fraction of the target that is spread evenly over all classes, in [0, 1).
    float label_smoothing = 0.0F;
    /// The weights of the classes: finite, not negative, and not all 0.
    impl::WeightPerClass<static_cast<std::size_t>(classes)> class_weights =
        impl::WeightPerClass<static_cast<std::size_t>(classes)>::ones();
    /// The label of samples or positions that do not count; it may be a class.
    std::optional<std::int32_t> ignored_label{};

    /// The extents of the target of one sample: 1, or those of the output without the classes.
    static constexpr Shape target(const Shape& output) { return impl::label_extents(output); }
    /// The error message for a network with this output; empty if there is none.
    static constexpr CompileTimeMessage diagnostic(const Shape& output) {
        return impl::classes_diagnostic("WeightedCrossEntropy", classes, output);
    }

    /// Throws InvalidArgument if an option is invalid.
    void require_valid() const {
        impl::require_label_smoothing(label_smoothing);
        impl::require_class_weights(class_weights);
    }
    /// The options as a text, by which two trainings are compared.
    [[nodiscard, gnu::cold]] std::string description() const {
        return impl::description_of_option("label_smoothing", {&label_smoothing, 1}) + ", " +
               impl::description_of_option("class_weights", class_weights) +
               (ignored_label ? text(", ignored_label ", *ignored_label) : std::string());
    }

    /// The operation reads the weights here: this object must outlive it.
    template <class Device>
    [[nodiscard]] ops::SoftmaxCrossEntropy<Device, float, impl::WeightedLabelTargets<>> operation(
        const Shape& output = {classes}) const {
        require_valid();
        return ops::SoftmaxCrossEntropy<Device, float, impl::WeightedLabelTargets<>>(
            {.classes = classes,
             .label_smoothing = label_smoothing,
             .positions = impl::positions_of(output),
             .class_weights = class_weights,
             .ignored_label = ignored_label});
    }
};

}}  // namespace cupola::CUPOLA_ABI
