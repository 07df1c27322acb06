// SPDX-License-Identifier: Apache-2.0
//
// A transform as a text, by which two runs are compared.
#pragma once

#include <string>

#include <cupola/core/type_name.hpp>
#include <cupola/data/dataset.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The transform's `description()`, or the name of its type.
template <class Transform>
[[nodiscard, gnu::cold]] std::string description_of_transform([[maybe_unused]] const Transform& transform) {
    if constexpr (Described<Transform>) {
        return std::string(transform.description());
    } else {
        return std::string(short_type_name<Transform>());
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
