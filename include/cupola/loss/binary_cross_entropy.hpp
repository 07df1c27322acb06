// SPDX-License-Identifier: Apache-2.0
//
// BinaryCrossEntropy: the mean over the elements of
//
//   positive_weight t log(1 + exp(-x)) + (1 - t) log(1 + exp(x))
//
// for logits x of any extents and targets t, from 0 to 1, of the same: a sigmoid and its cross-entropy in one formula,
// which overflows for no logit (PyTorch's BCEWithLogitsLoss). The network ends without a Sigmoid.
// WeightedBinaryCrossEntropy<channels> has a weight of positives per channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/loss/elementwise_loss.hpp>
#include <cupola/loss/impl/classes.hpp>
#include <cupola/loss/impl/weight_per_class.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct BinaryCrossEntropyFormula {
    static constexpr std::string_view accepted = "from 0 to 1";
    float positive_weight;

    CUPOLA_HOST_DEVICE bool accepts(float t) const { return (t >= 0.0F) & (t <= 1.0F); }
    /// log(1 + exp(x)) is max(x, 0) + log(1 + exp(-|x|)).
    CUPOLA_HOST_DEVICE float operator()(float x, float t) const {
        const float rest = math::log1p(math::exp(-math::abs(x)));
        const float positive = math::select(x < 0.0F, 0.0F, x) + rest,
                    negative = math::select(x > 0.0F, 0.0F, -x) + rest;
        return positive_weight * t * negative + (1.0F - t) * positive;
    }
    CUPOLA_HOST_DEVICE float derivative(float x, float t) const {
        const float e = math::exp(-math::abs(x)), near = 1.0F / (1.0F + e), far = e / (1.0F + e);
        const float probability = math::select(x < 0.0F, far, near), rest = math::select(x < 0.0F, near, far);
        return (1.0F - t) * probability - positive_weight * t * rest;
    }
};

/// The same with the weight of the channel.
struct ChannelBinaryCrossEntropyFormula {
    static constexpr std::string_view accepted = BinaryCrossEntropyFormula::accepted;

    CUPOLA_HOST_DEVICE bool accepts(float t) const { return BinaryCrossEntropyFormula{1.0F}.accepts(t); }
    CUPOLA_HOST_DEVICE float operator()(float x, float t, float positive_weight) const {
        return BinaryCrossEntropyFormula{positive_weight}(x, t);
    }
    CUPOLA_HOST_DEVICE float derivative(float x, float t, float positive_weight) const {
        return BinaryCrossEntropyFormula{positive_weight}.derivative(x, t);
    }
};

void require_positive_weight(float weight);

}  // namespace impl

struct BinaryCrossEntropy {
    static constexpr std::string_view name = "binary_cross_entropy";
    using Target = float;

    /// The weight of the targets that are 1 relative to those that are 0, positive.
    float positive_weight = 1.0F;

    /// The extents of the target of one sample.
    static constexpr Shape target(const Shape& output) { return output; }
    /// Empty: every output is accepted.
    static constexpr CompileTimeMessage diagnostic(const Shape&) { return {}; }

    /// Throws InvalidArgument if an option is invalid.
    void require_valid() const { impl::require_positive_weight(positive_weight); }
    /// The options as a text, by which two trainings are compared.
    [[nodiscard, gnu::cold]] std::string description() const {
        return impl::description_of_option("positive_weight", {&positive_weight, 1});
    }

    template <class Device>
    [[nodiscard]] ops::ElementwiseLoss<Device, impl::BinaryCrossEntropyFormula> operation(const Shape& output) const {
        require_valid();
        return ops::ElementwiseLoss<Device, impl::BinaryCrossEntropyFormula>(output.size(), {positive_weight});
    }
};

/// BinaryCrossEntropy with a weight of positives per channel: the last of the output's extents, or the labels of a
/// multi-label classification.
template <std::int64_t channels>
struct WeightedBinaryCrossEntropy {
    static constexpr std::string_view name = "weighted_binary_cross_entropy";
    using Target = float;

    /// The weights of the targets that are 1 relative to those that are 0, positive; all 1 by default.
    impl::WeightPerClass<static_cast<std::size_t>(channels)> positive_weights =
        impl::WeightPerClass<static_cast<std::size_t>(channels)>::ones();

    /// The extents of the target of one sample.
    static constexpr Shape target(const Shape& output) { return output; }
    /// The error message for a network with this output; empty if there is none.
    static constexpr CompileTimeMessage diagnostic(const Shape& output) {
        return impl::classes_diagnostic("WeightedBinaryCrossEntropy", channels, output, 1);
    }

    /// Throws InvalidArgument if an option is invalid.
    void require_valid() const {
        for (const float weight : positive_weights) impl::require_positive_weight(weight);
    }
    /// The options as a text, by which two trainings are compared.
    [[nodiscard, gnu::cold]] std::string description() const {
        return impl::description_of_option("positive_weights", positive_weights);
    }

    /// The operation reads the weights here: this object must outlive it.
    template <class Device>
    [[nodiscard]] ops::ElementwiseLoss<Device, impl::ChannelBinaryCrossEntropyFormula> operation(
        const Shape& output) const {
        require_valid();
        return ops::ElementwiseLoss<Device, impl::ChannelBinaryCrossEntropyFormula>(output.size(), {},
                                                                                    positive_weights);
    }
};

namespace impl {

inline void require_positive_weight(float weight) {
    require(is_finite(weight) && weight > 0.0F,
            "the weight of positives of a binary cross-entropy must be finite and above 0, not ", weight);
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
