// SPDX-License-Identifier: Apache-2.0
//
// SoftCrossEntropy<classes>: softmax and cross-entropy with targets that are not one class: a float per class, from 0
// to 1, which usually sum to 1, of the output's extents. The mean over a replica's batch and the positions, whatever
// the weights of the classes are (PyTorch's CrossEntropyLoss with targets of probabilities). The prediction is correct
// if its largest logit is that of the largest target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/loss/impl/classes.hpp>
#include <cupola/loss/impl/weight_per_class.hpp>
#include <cupola/ops/weighted_targets.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t classes>
struct SoftCrossEntropy {
    static constexpr std::string_view name = "soft_cross_entropy";
    using Target = float;

    /// The fraction of the target that is spread evenly over all classes, in [0, 1).
    float label_smoothing = 0.0F;
    /// The weights of the classes: finite, not negative, and not all 0.
    impl::WeightPerClass<static_cast<std::size_t>(classes)> class_weights =
        impl::WeightPerClass<static_cast<std::size_t>(classes)>::ones();

    /// The extents of the target of one sample.
    static constexpr Shape target(const Shape& output) { return output; }
    /// The error message for a network with this output; empty if there is none.
    static constexpr CompileTimeMessage diagnostic(const Shape& output) {
        return impl::classes_diagnostic("SoftCrossEntropy", classes, output);
    }

    /// Throws InvalidArgument if an option is invalid.
    void require_valid() const {
        impl::require_label_smoothing(label_smoothing);
        impl::require_class_weights(class_weights);
    }
    /// The options as a text, by which two trainings are compared.
    [[nodiscard, gnu::cold]] std::string description() const {
        return impl::description_of_option("label_smoothing", {&label_smoothing, 1}) + ", " +
               impl::description_of_option("class_weights", class_weights);
    }

    /// The operation reads the weights here: this object must outlive it.
    template <class Device>
    [[nodiscard]] ops::SoftmaxCrossEntropy<Device, float, impl::SoftTargets<>> operation(const Shape& output = {
                                                                                             classes}) const {
        require_valid();
        return ops::SoftmaxCrossEntropy<Device, float, impl::SoftTargets<>>({.classes = classes,
                                                                             .label_smoothing = label_smoothing,
                                                                             .positions = impl::positions_of(output),
                                                                             .class_weights = class_weights});
    }
};

}}  // namespace cupola::CUPOLA_ABI
