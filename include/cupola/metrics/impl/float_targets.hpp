// SPDX-License-Identifier: Apache-2.0
//
// Shared by the metrics of numbers: a target for each element of the output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/metrics/impl/ratio.hpp>
#include <cupola/parallel/metric_batch.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

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
