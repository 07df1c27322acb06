// SPDX-License-Identifier: Apache-2.0
//
// The classes that the data of a training state, and their comparison with those that its losses distinguish.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Batches of a data set, such as TrainingBatches and EvaluationBatches.
template <class Batches>
concept HasDataset =
    requires(const Batches& batches) { requires Dataset<std::remove_cvref_t<decltype(batches.data())>>; };
/// Batches that wrap another source, such as Prefetch.
template <class Batches>
concept HasSource = requires(const Batches& batches) { batches.source(); };

/// The classes of a column of labels, as far as the data set states them.
struct StatedClasses {
    /// 0 if unknown.
    std::int64_t count = 0;
    /// Empty if they have no names.
    std::vector<std::string> names{};
    /// The data set's name.
    std::string data{};
};

template <class Names>
concept ListOfNames = std::convertible_to<Names, std::span<const std::string>>;

template <class Data>
[[nodiscard, gnu::cold]] StatedClasses stated_classes_of(const Data& data, std::string_view column) {
    StatedClasses result{.data = std::string(data.name())};
    const auto take = [&](std::span<const std::string> names) {
        result.names.assign(names.begin(), names.end());
        result.count = static_cast<std::int64_t>(names.size());
    };
    if constexpr (requires { requires ListOfNames<decltype(data.classes(column))>; }) {
        if (Columns(data.target_columns()).find(column) != nullptr) take(data.classes(column));
    } else if constexpr (requires { requires ListOfNames<decltype(data.classes())>; }) {
        if (column == target_column) take(data.classes());
    } else if constexpr (HasDataset<Data>) {  // a part of another data set, or one that replaces its targets
        result = stated_classes_of(data.data(), column);
    } else if constexpr (requires { static_cast<std::int64_t>(data.class_count()); }) {
        if (column == target_column) result.count = static_cast<std::int64_t>(data.class_count());
    }
    return result;
}

template <class Batches>
[[nodiscard, gnu::cold]] StatedClasses stated_classes(const Batches& batches, std::string_view column) {
    if constexpr (HasDataset<Batches>) {
        return stated_classes_of(batches.data(), column);
    } else if constexpr (HasSource<Batches>) {
        return stated_classes(batches.source(), column);
    } else {
        return {};
    }
}

/// Compares the classes of the data with those that the losses of a training distinguish. Throws InvalidArgument if the
/// data have more, since a label would then be outside the loss's classes. If they have fewer, the result is a warning,
/// since outputs may be unused on purpose; otherwise it is empty.
template <class Training, class Batches>
[[nodiscard, gnu::cold]] std::string check_classes([[maybe_unused]] const Training& training,
                                                   [[maybe_unused]] const Batches& batches) {
    std::string warning;
    if constexpr ((HasDataset<Batches> || HasSource<Batches>)&&requires {
                      training.options.loss.classes_of(target_column);
                      training.required_columns();
                  }) {
        for (const RequiredColumn& each : training.required_columns()) {
            const std::int64_t distinguished = training.options.loss.classes_of(each.column.name);
            if (distinguished == 0) continue;
            const StatedClasses stated = stated_classes(batches, each.column.name);
            if (stated.count == 0 || stated.count == distinguished) continue;
            const std::string both =
                text("the data set ", stated.data, " has ", stated.count, stated.count == 1 ? " class" : " classes",
                     each.column.name == target_column ? std::string() : text(" in its column ", each.column.name),
                     ", and the loss ", each.reader, " distinguishes ", distinguished);
            require(stated.count < distinguished, both);
            warning += text(warning.empty() ? "" : "; ", both, ": the network has outputs that are of no class");
        }
    }
    return warning;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
