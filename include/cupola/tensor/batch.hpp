// SPDX-License-Identifier: Apache-2.0
//
// A batch: one replica's samples of one step, as named columns. A column has one value of the same extents per sample;
// both the network and the losses read columns.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/borrowed.hpp>
#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/type_name.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The column that a network reads, and the column that the loss of a network with one output reads.
inline constexpr std::string_view input_column = "input", target_column = "target";

/// The maximum number of columns of a batch.
inline constexpr std::size_t max_columns = 8;

/// The name of a column, and the type and extents of its values per sample. The name is not copied; a temporary string
/// does not compile.
struct ColumnSpec {
    BorrowedString name{};
    ElementType type = ElementType::float32;
    /// The extents of one sample; a class label is an int32 of extents {1}.
    Shape shape{};

    /// The bytes of one sample.
    [[nodiscard]] constexpr std::size_t bytes() const { return static_cast<std::size_t>(shape.size()) * size_of(type); }
    bool operator==(const ColumnSpec&) const = default;
};

/// The columns of a data set or of a source of batches, in their order.
class Columns {
public:
    Columns() = default;
    /// Throws InvalidArgument for two columns of one name, and for more than `max_columns`.
    Columns(std::initializer_list<ColumnSpec> columns) {
        for (const ColumnSpec& each : columns) push_back(each);
    }

    void push_back(const ColumnSpec& column);

    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] const ColumnSpec& operator[](std::size_t i) const { return list_[i]; }
    [[nodiscard]] const ColumnSpec* begin() const { return list_.data(); }
    [[nodiscard]] const ColumnSpec* end() const { return list_.data() + size_; }
    /// The column of that name, or null.
    [[nodiscard]] const ColumnSpec* find(std::string_view name) const {
        for (const ColumnSpec& each : *this) {
            if (each.name == name) return &each;
        }
        return nullptr;
    }
    /// The number of the column of that name; size() without one.
    [[nodiscard]] std::size_t place_of(std::string_view name) const {
        const ColumnSpec* const found = find(name);
        return found == nullptr ? size_ : static_cast<std::size_t>(found - begin());
    }
    /// Columns of the same names, types and extents, in the same order.
    bool operator==(const Columns&) const = default;

private:
    std::array<ColumnSpec, max_columns> list_{};
    std::size_t size_ = 0;
};

/// The extents of the column "input"; none without it.
[[nodiscard]] inline Shape input_shape_of(const Columns& columns) {
    const ColumnSpec* const found = columns.find(input_column);
    return found == nullptr ? Shape{} : found->shape;
}

/// "input, target"; "none" without columns.
[[nodiscard, gnu::cold]] std::string names_of(const Columns& columns);

namespace impl {

/// "class labels are std::int32_t, not long int": the error message for values of another type.
template <class T>
[[nodiscard]] consteval CompileTimeMessage other_type(std::string_view accepted) {
    CompileTimeMessage message;
    message << accepted << ", not " << type_name<T>();
    return message;
}
template <class Input, class Target>
[[nodiscard]] consteval CompileTimeMessage other_type_of_batch(std::string_view targets) {
    if constexpr (!std::same_as<Input, float>) {
        return other_type<Input>("the inputs of such a BatchView are float (a list of columns has any types)");
    } else {
        return other_type<Target>(targets);
    }
}

}  // namespace impl

/// One column of a batch: the values of all samples, one sample after another.
struct Column {
    ColumnSpec spec{};
    const void* data = nullptr;
};

/// `size` samples in the device's memory; images are channels last. Owns nothing: the memory has to stay valid and
/// unchanged until the step that takes the batch has returned.
///
///     BatchView{images.data(), labels.data(), 128, Net::input_shape}
///     BatchView{inputs.data(), {3}, targets.data(), {1}, 128}
///     BatchView{128, {{{"input", ElementType::float32, {3}}, inputs}, {{"box", ElementType::float32, {4}}, boxes}}}
class BatchView {
public:
    /// The number of samples.
    std::int64_t size = 0;

    /// A batch without samples.
    BatchView() = default;
    /// The columns "input" and "target", the latter one class label per sample. `input_shape` has the extents of one
    /// sample; the functions that take the batch compare them with the network's.
    BatchView(const float* inputs, const std::int32_t* labels, std::int64_t sample_count, const Shape& input_shape);
    /// The columns "input" and "target", both of floats.
    BatchView(const float* inputs, const Shape& input_shape, const float* targets, const Shape& target_shape,
              std::int64_t sample_count);
    /// Any columns. Throws InvalidArgument for two of one name, and for more than `max_columns`.
    BatchView(std::int64_t sample_count, std::initializer_list<Column> columns);
    /// Other types do not compile.
    template <class Input, class Label>
    BatchView(const Input*, const Label*, std::int64_t, const Shape&) {
        static_assert(static_assert_message<impl::other_type_of_batch<Input, Label>(
                          "the class labels of a BatchView are std::int32_t")>());
    }
    template <class Input, class Target>
    BatchView(const Input*, const Shape&, const Target*, const Shape&, std::int64_t) {
        static_assert(static_assert_message<impl::other_type_of_batch<Input, Target>(
                          "the targets of such a BatchView are float (a list of columns has any types)")>());
    }
    template <std::integral Count>
    BatchView(const float*, const std::int32_t*, Count) {
        static_assert(sizeof(Count) == 0,
                      "a BatchView also needs the extents of a sample: BatchView{inputs, labels, size, input_shape}");
    }

    void push_back(const Column& column) {
        columns_.push_back(column.spec);
        data_[columns_.size() - 1] = column.data;
    }

    [[nodiscard]] const Columns& columns() const { return columns_; }
    /// The values of column i.
    [[nodiscard]] const void* data(std::size_t i) const { return data_[i]; }
    void set_data(std::size_t i, const void* data) { data_[i] = data; }
    /// The values of a column; null if there is no column of that name and type.
    template <class T>
    [[nodiscard]] const T* data(std::string_view name) const {
        return static_cast<const T*>(data_of(name, element_type_of<T>));
    }
    [[nodiscard]] const void* data_of(std::string_view name, ElementType type) const {
        const ColumnSpec* const found = columns_.find(name);
        if (found == nullptr || found->type != type) return nullptr;
        return data_[static_cast<std::size_t>(found - columns_.begin())];
    }
    /// The column "input", which a network reads.
    [[nodiscard]] const float* inputs() const { return data<float>(input_column); }
    /// The column "target", if it has class labels.
    [[nodiscard]] const std::int32_t* labels() const { return data<std::int32_t>(target_column); }

private:
    Columns columns_;
    std::array<const void*, max_columns> data_{};
};

/// The memory that a source of batches writes: one address per column, in the order of its `columns()`, of the whole
/// batch. Owns nothing.
class BatchSpan {
public:
    /// `columns` must outlive this.
    explicit BatchSpan(const Columns& columns) : columns_(&columns) {}
    explicit BatchSpan(const Columns&&) = delete;  // a temporary dies at once

    [[nodiscard]] const Columns& columns() const { return *columns_; }
    /// The values of column i.
    [[nodiscard]] std::byte* data(std::size_t i) const { return data_[i]; }
    void set_data(std::size_t i, std::byte* data) { data_[i] = data; }
    /// The values of sample `sample` in column i.
    [[nodiscard]] std::byte* at(std::size_t i, std::int64_t sample) const {
        return data_[i] + static_cast<std::size_t>(sample) * (*columns_)[i].bytes();
    }
    /// The values of a column. Throws InvalidArgument if there is no column of that name and type.
    template <class T>
    [[nodiscard]] T* data(std::string_view name) const {
        return reinterpret_cast<T*>(data_[index_of(name, element_type_of<T>)]);
    }
    [[nodiscard]] float* inputs() const { return data<float>(input_column); }
    [[nodiscard]] std::int32_t* labels() const { return data<std::int32_t>(target_column); }
    /// The first `size` samples.
    [[nodiscard]] BatchView view(std::int64_t size) const;

private:
    [[nodiscard]] std::size_t index_of(std::string_view name, ElementType type) const;

    const Columns* columns_;
    std::array<std::byte*, max_columns> data_{};
};

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/tensor/batch.ipp>
#endif
