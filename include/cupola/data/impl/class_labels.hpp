// SPDX-License-Identifier: Apache-2.0
//
// The class of each sample of a data set, whichever way the data set states it: label(i), or the column "target" of
// class labels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Data>
class ClassLabels {
public:
    /// Throws InvalidArgument where the samples have no classes; `purpose` names what needs them.
    ClassLabels(const Data& data, std::string_view purpose) : data_(data) {
        if constexpr (HasTargets<Data>) {
            const Columns columns = data.target_columns();
            const ColumnSpec* const found = columns.find(target_column);
            require(found != nullptr, purpose, " needs classes, and the data set ", data.name(),
                    " has no column \"target\"");
            require(found->type == ElementType::int32 && found->shape.size() == 1, purpose,
                    " needs classes, and the targets of the data set ", data.name(), " are ", to_string(found->type),
                    " of ", to_string(found->shape));
            column_ = static_cast<std::size_t>(found - columns.begin());
        }
    }

    /// Throws DataError for a label below 0, and where the data set states the number of its classes, for one that is
    /// none of them.
    [[nodiscard]] std::size_t operator[](std::int64_t i) const {
        std::int32_t label = 0;
        if constexpr (HasTargets<Data>) {
            std::memcpy(&label, data_.target(i, column_), sizeof label);
        } else {
            label = data_.label(i);
        }
        require<DataError>(label >= 0, "the data set ", data_.name(), " has label ", label, " at sample ", i);
        if constexpr (HasLabels<Data> && !HasTargets<Data>) {
            const auto classes = static_cast<std::int64_t>(data_.class_count());
            require<DataError>(label < classes, "the data set ", data_.name(), " has label ", label, " at sample ", i,
                               "; with ", classes, " classes labels are 0 to ", classes - 1);
        }
        return static_cast<std::size_t>(label);
    }

private:
    const Data& data_;
    std::size_t column_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
