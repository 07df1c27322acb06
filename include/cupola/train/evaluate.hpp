// SPDX-License-Identifier: Apache-2.0
//
// evaluate(training, batches): the loss and the accuracy over a whole test set, counting each sample once (TensorFlow's
// tutorial counted 112 images of 10,000 twice); and any metrics, from the same forward pass:
//
//   const Evaluation result = evaluate(training, test, metrics::TopK<5>{}, metrics::ConfusionMatrix{});
//   std::printf("%.3f\n", result.metric("top_5_accuracy"));
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include <cupola/parallel/evaluation_feed.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/train/impl/stated_classes.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Defined in metrics/metric.hpp.
template <class Training>
struct MetricsOf;

}  // namespace impl

/// Metrics of any types for evaluations of a `Training`: `{metrics::Accuracy{}, matrix}`. Lvalues are stored by
/// reference, rvalues by value. Does not compile for a metric that does not fit the training's network and loss. Needs
/// #include <cupola/metrics/metric.hpp>, which the header of each metric includes.
template <class Training>
class MetricList {
public:
    MetricList() = default;
    template <class... M>
        requires(sizeof...(M) > 0 && !(std::same_as<std::remove_cvref_t<M>, MetricList> || ...))
    // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint leaves copies to the copy constructor
    MetricList(M&&... metrics) {  // implicit: `.metrics = {metrics::Accuracy{}}`
        constexpr bool included = requires { sizeof(impl::MetricsOf<Training>); };
        static_assert(included, "metrics need #include <cupola/metrics/metric.hpp>; <cupola/metrics.hpp> has them all");
        if constexpr (included) feed_ = impl::MetricsOf<Training>::make(std::forward<M>(metrics)...);
    }

    /// Null without metrics.
    [[nodiscard]] impl::EvaluationFeed* feed() const { return feed_.get(); }

private:
    std::shared_ptr<impl::EvaluationFeed> feed_;
};

/// `batches` has `count()`, and `batches(i, device, context)` returns batch i, as in EvaluationBatches; if it prepares
/// batches in its own memory, its `provide_slots` is called with the number of devices. `weights` selects the trained
/// parameters or their moving averages. Throws DataError if there are no samples, and InvalidArgument if the data state
/// more classes than the loss distinguishes.
template <class Training, class Batches>
[[nodiscard]] Evaluation evaluate(Training& training, Batches&& batches, Weights weights = Weights::trained) {
    static_cast<void>(impl::check_classes(training, batches));
    if constexpr (requires { batches.provide_slots(1); }) batches.provide_slots(training.options.devices);
    return training.evaluate(batches, batches.count(), weights);
}

namespace impl {

/// The same with metrics, unless they are null; their results are in `metrics` of the Evaluation.
template <class Training, class Batches>
[[nodiscard]] Evaluation evaluate_with(Training& training, Batches& batches, Weights weights, EvaluationFeed* metrics) {
    if (metrics == nullptr) return evaluate(training, batches, weights);
    static_cast<void>(check_classes(training, batches));
    if constexpr (requires { batches.provide_slots(1); }) batches.provide_slots(training.options.devices);
    if constexpr (requires { training.required_columns(); })
        metrics->begin(Training::NetworkType::layers, training.required_columns());
    Evaluation result = training.evaluate(batches, batches.count(), weights, metrics);
    result.metrics = metrics->values();
    return result;
}

}  // namespace impl

/// The same with metrics; their results are in `metrics` of the Evaluation.
template <class Training, class Batches>
[[nodiscard]] Evaluation evaluate(Training& training, Batches&& batches, Weights weights,
                                  const MetricList<Training>& metrics) {
    return impl::evaluate_with(training, batches, weights, metrics.feed());
}
template <class Training, class Batches, class First, class... More>
    requires(!std::same_as<std::remove_cvref_t<First>, MetricList<Training>>)
Evaluation evaluate(Training& training, Batches&& batches, Weights weights, First&& first, More&&... more) {
    return evaluate(training, batches, weights,
                    MetricList<Training>(std::forward<First>(first), std::forward<More>(more)...));
}
template <class Training, class Batches, class First, class... More>
    requires(!std::same_as<std::remove_cvref_t<First>, Weights>)
Evaluation evaluate(Training& training, Batches&& batches, First&& first, More&&... more) {
    return evaluate(training, batches, Weights::trained,
                    MetricList<Training>(std::forward<First>(first), std::forward<More>(more)...));
}

}}  // namespace cupola::CUPOLA_ABI
