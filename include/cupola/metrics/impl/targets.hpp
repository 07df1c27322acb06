// SPDX-License-Identifier: Apache-2.0
//
// The targets of metrics. The column that a metric reads is compared with the network and its losses at compile time;
// the metrics share these checks and the loops over targets. Metrics of classes have rows of logits,
// one row per label; metrics of numbers have a target for each element of the output.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/loss/several_outputs.hpp>
#include <cupola/metrics/metric_batch.hpp>
#include <cupola/net/table.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Sets `result` if loss k of the data reads `column`. (A function, not a lambda: nvcc rejects a template member of a
/// dependent type in a generic lambda.)
template <class Data, std::size_t k>
constexpr void look_for_target(const NetworkOutputs& outputs, std::string_view column, ColumnSpec& result) {
    using Loss = DataLossAt<Data, k>;
    constexpr const LossEntry& entry = DataLosses<Data>::entries[k];
    if constexpr (requires(const Shape& output) {
                      typename Loss::Target;
                      Loss::target(output);
                  }) {
        const std::size_t output = outputs.find(entry.output);
        if (entry.column == column && output < outputs.size())
            result = {target_column, element_type_of<typename Loss::Target>, Loss::target(outputs[output].shape)};
    }
}

template <class Data, std::size_t... k>
[[nodiscard]] constexpr ColumnSpec look_for_target(const NetworkOutputs& outputs, std::string_view column,
                                                   std::index_sequence<k...>) {
    ColumnSpec result;
    (look_for_target<Data, k>(outputs, column, result), ...);
    return result;
}

/// The column that the loss of the data reads; if there are several losses, the column of the one that reads `column`,
/// or a column without extents if none does.
template <class Data>
[[nodiscard]] consteval ColumnSpec target_of(std::span<const LayerInfo> layers, std::string_view column) {
    return look_for_target<Data>(NetworkOutputs(layers), column,
                                 std::make_index_sequence<DataLosses<Data>::entries.size()>());
}

/// A metric of one output among several: see metrics::At.
template <class M>
concept NamesOutput = requires {
    { M::output } -> std::convertible_to<std::string_view>;
    { M::column } -> std::convertible_to<std::string_view>;
    typename M::OfOutput;
};
template <class M>
concept HasMetricDiagnostic = requires(const Shape& output, const ColumnSpec& target) {
    { M::diagnostic(output, target) } -> std::same_as<CompileTimeMessage>;
};

/// The error in the column that a metric of an output reads; empty if there is none.
[[nodiscard]] constexpr CompileTimeMessage column_diagnostic(std::span<const LayerInfo> layers,
                                                             std::span<const LossEntry> losses, std::string_view output,
                                                             std::string_view column) {
    CompileTimeMessage message, names;
    bool found = false;
    const auto add = [&](std::string_view name) {
        found = found || name == column;
        names << (names.empty() ? "" : ", ") << name;
    };
    add(input_column);
    for (const LayerInfo& layer : layers) {
        if (!layer.column.empty()) add(layer.column);
    }
    for (const LossEntry& loss : losses) add(loss.column);
    if (found) return message;
    message << "a metric of the output " << output << " reads the column " << column
            << ", but the network and its losses read: ";
    message << std::string_view(names.characters, names.size) << ": the third argument of metrics::At is the column";
    return message;
}

template <class M>
[[nodiscard]] consteval bool reads_all_outputs() {
    if constexpr (requires { static_cast<bool>(M::reads_all_outputs); })
        return M::reads_all_outputs;
    else
        return false;
}

/// a / b; NaN for 0 / 0.
[[nodiscard]] constexpr double ratio(std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
}

/// The error in these targets for a metric that compares class labels with rows of logits; empty if there is none.
[[nodiscard]] constexpr CompileTimeMessage class_labels_diagnostic(std::string_view metric, const Shape& output,
                                                                   const ColumnSpec& target) {
    CompileTimeMessage message;
    const std::int64_t classes = output.rank == 0 ? 0 : output[output.rank - 1];
    if (target.type != ElementType::int32 || classes < 2 || output.size() != target.shape.size() * classes) {
        message << metric
                << " compares logits of two or more classes with labels (int32), one per row of logits; the output is "
                << output << ", and the loss reads " << to_string(target.type) << " " << target.shape;
    }
    return message;
}

/// Calls visit(logits, label) for each label that is a class and not `ignored`. A label that is not a class is one that
/// the loss ignores: the loss rejects any other.
template <class Visit>
void for_each_label(const MetricBatch& batch, const std::optional<std::int32_t>& ignored, Visit&& visit) {
    const auto classes = static_cast<std::size_t>(batch.output_shape[batch.output_shape.rank - 1]);
    const std::span<const std::int32_t> labels = batch.target<std::int32_t>();
    for (std::size_t i = 0; i < labels.size(); ++i) {
        const std::int32_t label = labels[i];
        if (label < 0 || static_cast<std::size_t>(label) >= classes || label == ignored) continue;
        visit(batch.outputs.subspan(i * classes, classes), static_cast<std::size_t>(label));
    }
}

/// The class of the largest logit, the first of equal ones; the number of logits if one of them is NaN.
[[nodiscard]] std::size_t largest_of(std::span<const float> logits);

/// How many logits come before that of the label, from the largest on, the first of equal ones first; the number of
/// logits if one of them is NaN.
[[nodiscard]] std::int64_t rank_of(std::span<const float> logits, std::size_t label);

inline std::size_t largest_of(std::span<const float> logits) {
    std::size_t largest = 0;
    for (std::size_t c = 0; c < logits.size(); ++c) {
        if (is_nan(logits[c])) return logits.size();
        if (logits[c] > logits[largest]) largest = c;
    }
    return largest;
}

inline std::int64_t rank_of(std::span<const float> logits, std::size_t label) {
    std::int64_t rank = 0;
    for (std::size_t c = 0; c < logits.size(); ++c) {
        if (is_nan(logits[c])) return static_cast<std::int64_t>(logits.size());
        rank += logits[c] > logits[label] || (c < label && logits[c] == logits[label]) ? 1 : 0;
    }
    return rank;
}

/// The error in these targets for a metric that needs a float per element of the output; empty if there is none.
[[nodiscard]] constexpr CompileTimeMessage float_targets_diagnostic(std::string_view metric, const Shape& output,
                                                                    const ColumnSpec& target) {
    CompileTimeMessage message;
    if (target.type != ElementType::float32 || target.shape != output) {
        message << metric << " compares the output with targets (float32) of its extents; the output is " << output
                << ", and the loss reads " << to_string(target.type) << " " << target.shape;
    }
    return message;
}

/// Throws InvalidArgument unless `target` is 0 or 1.
template <class T>
[[nodiscard]] bool target_is_one(T target, std::size_t element) {
    require(target == T(0) || target == T(1), "a binary metric needs targets of 0 and 1, and element ", element,
            " of a batch's target is ", target);
    return target == T(1);
}

/// Calls visit(output, whether the target is 1) for each element.
template <class Visit>
void for_each_binary(const MetricBatch& batch, Visit&& visit) {
    const std::span<const float> targets = batch.target<float>();
    for (std::size_t i = 0; i < targets.size(); ++i) visit(batch.outputs[i], target_is_one(targets[i], i));
}

}}}  // namespace cupola::CUPOLA_ABI::impl
