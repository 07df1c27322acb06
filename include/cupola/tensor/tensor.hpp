// SPDX-License-Identifier: Apache-2.0
//
// The device tensor: (batch at run time) x (sample extents at compile time), row-major, channels last, and its views.
//
//   Tensor<Host, float, Extents<24, 24, 3>> images(128);
//   images(0, 12, 12, 2) = 1.0F;          // sample, row, column, channel; where the host can read the memory
//   TensorView<const float, Extents<10>> logits = ...;
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <cupola/core/checked_product.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/device/device.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Elements that another object owns.
template <class T, class SampleExtents>
class TensorView {
public:
    static constexpr Shape shape = SampleExtents::shape;

    TensorView(T* data, std::int64_t batch) : data_(data), batch_(batch) {}
    /// `elements` is a whole number of samples; throws InvalidArgument otherwise.
    explicit TensorView(std::span<T> elements) : data_(elements.data()), batch_(samples_in(elements.size())) {}
    /// A view of writable elements converts to one of constant elements.
    template <class U>
        requires(std::is_const_v<T> && std::same_as<const U, T>)
    TensorView(TensorView<U, SampleExtents> other) : data_(other.data()), batch_(other.batch()) {}  // NOLINT

    [[nodiscard]] T* data() const { return data_; }
    [[nodiscard]] std::int64_t batch() const { return batch_; }
    [[nodiscard]] std::int64_t size() const { return batch_ * SampleExtents::size(); }
    [[nodiscard]] std::span<T> elements() const { return {data_, static_cast<std::size_t>(size())}; }
    /// Sample n alone.
    [[nodiscard]] std::span<T> sample(std::int64_t n) const {
        return elements().subspan(static_cast<std::size_t>(n * SampleExtents::size()),
                                  static_cast<std::size_t>(SampleExtents::size()));
    }
    /// One element of sample n, by one index per extent. Not checked.
    template <std::integral... Indices>
        requires(sizeof...(Indices) == SampleExtents::rank)
    [[nodiscard]] T& operator()(std::int64_t n, Indices... indices) const {
        std::int64_t place = n;
        std::size_t axis = 0;
        ((place = place * shape[axis++] + static_cast<std::int64_t>(indices)), ...);
        return data_[place];
    }

private:
    static std::int64_t samples_in(std::size_t count) {
        const auto elements = static_cast<std::int64_t>(count);
        require(elements % SampleExtents::size() == 0, elements, " elements are not a whole number of samples of ",
                SampleExtents::size());
        return elements / SampleExtents::size();
    }

    T* data_;
    std::int64_t batch_;
};

/// Elements in a device's memory, zero at first; freed by the destructor.
template <Device D, class T, class SampleExtents>
class Tensor {
public:
    static constexpr ElementType element_type = element_type_of<T>;

    /// Throws OutOfMemory.
    explicit Tensor(std::int64_t batch)
        : arena_(checked_bytes(text("a tensor of ", batch, " samples needs"),
                               {checked(batch), SampleExtents::size(), static_cast<std::int64_t>(sizeof(T))}),
                 "a tensor"),
          batch_(batch) {}

    [[nodiscard]] std::int64_t batch() const { return batch_; }
    [[nodiscard]] std::int64_t size() const { return batch_ * SampleExtents::size(); }
    [[nodiscard]] T* data() { return reinterpret_cast<T*>(arena_.data()); }
    [[nodiscard]] const T* data() const { return reinterpret_cast<const T*>(arena_.data()); }
    [[nodiscard]] TensorView<T, SampleExtents> view() { return {data(), batch_}; }
    [[nodiscard]] TensorView<const T, SampleExtents> view() const { return {data(), batch_}; }
    template <std::integral... Indices>
    [[nodiscard]] T& operator()(std::int64_t n, Indices... indices) {
        return view()(n, indices...);
    }
    template <std::integral... Indices>
    [[nodiscard]] const T& operator()(std::int64_t n, Indices... indices) const {
        return view()(n, indices...);
    }

private:
    static std::int64_t checked(std::int64_t batch) {
        require(batch >= 0, "a tensor must have 0 or more samples, not ", batch);
        return batch;
    }

    typename D::Arena arena_;
    std::int64_t batch_;
};

/// Copies a view of host memory to a tensor of a device, of the same batch.
template <Device D, class T, class SampleExtents>
void copy_from_host(typename D::Context& context, Tensor<D, T, SampleExtents>& to,
                    std::type_identity_t<TensorView<const T, SampleExtents>> from) {
    require(to.batch() == from.batch(), "a tensor of ", from.batch(), " samples cannot be copied to one of ",
            to.batch());
    D::copy_from_host(context, reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<const std::byte*>(from.data()),
                      from.elements().size_bytes());
}

/// Copies a tensor of a device to a view of host memory, of the same batch.
template <Device D, class T, class SampleExtents>
void copy_to_host(typename D::Context& context, std::type_identity_t<TensorView<T, SampleExtents>> to,
                  const Tensor<D, T, SampleExtents>& from) {
    require(to.batch() == from.batch(), "a tensor of ", from.batch(), " samples cannot be copied to one of ",
            to.batch());
    D::copy_to_host(context, reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<const std::byte*>(from.data()),
                    to.elements().size_bytes());
}

}}  // namespace cupola::CUPOLA_ABI
