// SPDX-License-Identifier: Apache-2.0
//
// The data of a training as texts, with which a resumed run is compared (train/training_run.hpp).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/transform_description.hpp>
#include <cupola/io/checkpoint_info.hpp>
#include <cupola/io/fingerprint.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/train/impl/stated_classes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Sample>
inline constexpr bool refers_to_memory = std::is_lvalue_reference_v<Sample>;
template <class T, std::size_t extent>
inline constexpr bool refers_to_memory<std::span<T, extent>> = true;

/// Data whose samples are in memory, so that reading all of them takes little time, and are not computed per call.
template <class Data>
concept HasSamplesInMemory =
    HasStoredSamples<Data> || requires(const Data& data) { requires refers_to_memory<decltype(data.sample(0))>; };

/// The names of the classes; empty if unknown.
template <class Batches>
[[nodiscard]] Columns columns_of_batches([[maybe_unused]] const Batches& batches) {
    if constexpr (requires { Columns(batches.columns()); }) {
        return batches.columns();
    } else {
        return {};
    }
}

/// Throws InvalidArgument if two data sets that both name their classes have different classes for a label.
template <class Batches, class Test>
[[gnu::cold]] void require_same_classes(const Batches& batches, const Test& test) {
    if constexpr ((HasDataset<Batches> || HasSource<Batches>)&&(HasDataset<Test> || HasSource<Test>)) {
        for (const ColumnSpec& column : columns_of_batches(batches)) {
            const StatedClasses training = stated_classes(batches, column.name),
                                own = stated_classes(test, column.name);
            if (training.names.empty() || own.names.empty() || training.names == own.names) continue;
            throw InvalidArgument(text(
                "the test data ", own.data, " have other classes than the training data ", training.data, ": ",
                to_string(InfoDifference{std::string(classes_key), list_text(training.names), list_text(own.names)})));
        }
    }
}

/// "50000 images, crc32c 1a2b3c4d"; for computed data, their name, number and extents.
template <class Data>
[[nodiscard, gnu::cold]] std::string description_of_data(const Data& data) {
    if constexpr (Described<Data>) {
        return std::string(data.description());
    } else if constexpr (HasSamplesInMemory<Data>) {
        constexpr std::int64_t max_bytes = std::int64_t{1} << 32;
        const std::int64_t bytes = std::max<std::int64_t>(1, Shape(data.sample_shape()).size()) * 4;
        return fingerprint_of_part(data, 1 + data.size() / (max_bytes / bytes + 1));
    } else {
        const std::string name(data.name());
        return text(list_text({&name, 1}), ", ", data.size(), " samples of ", to_string(Shape(data.sample_shape())));
    }
}

/// The order's `description()`, or its type and its seed.
template <class Order>
[[nodiscard, gnu::cold]] std::string description_of_order(const Order& order, std::uint64_t seed_of_transform) {
    std::string result, more = text("; random numbers of seed ", seed_of_transform);
    if constexpr (requires { std::string(order.description()); }) {
        result = order.description();
    } else {
        result = short_type_name<Order>();
    }
    if constexpr (requires { static_cast<std::uint64_t>(order.seed()); }) {
        if (static_cast<std::uint64_t>(order.seed()) == seed_of_transform) more = text(", seed ", seed_of_transform);
    }
    return result + more;
}

/// Sets the entries "data", "order", "transform" and "classes" that `info` does not have, as far as they are known for
/// these batches. A user-defined source has `describe(add)`, which calls add(key, text) for each entry.
template <class Batches>
[[gnu::cold]] void describe_batches(const Batches& batches, CheckpointInfo& info) {
    const auto add = [&](std::string_view key, std::string value) {
        if (info.find(key) == nullptr) info.set(key, std::move(value));
    };
    if constexpr (requires { batches.describe(add); }) {
        batches.describe(add);
    } else if constexpr (HasSource<Batches>) {
        describe_batches(batches.source(), info);
    } else if constexpr (HasDataset<Batches>) {
        if (info.find("data") == nullptr) info.set("data", description_of_data(batches.data()));
        if constexpr (requires {
                          batches.order();
                          batches.seed();
                      })
            add("order", description_of_order(batches.order(), batches.seed()));
        if constexpr (requires { batches.transform(); })
            add("transform", description_of_transform(batches.transform()));
        for (const ColumnSpec& column : columns_of_batches(batches)) {
            const StatedClasses stated = stated_classes(batches, column.name);
            if (stated.names.empty()) continue;
            add(column.name == target_column ? std::string(classes_key) : text(classes_key, '.', column.name),
                list_text(stated.names));
        }
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
