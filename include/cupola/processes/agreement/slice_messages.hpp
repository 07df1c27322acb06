// SPDX-License-Identifier: Apache-2.0
//
// SliceMessages: the slices of the gradient rows and of their average that processes without shared memory exchange.
// Messages contain values of type `Element`, in which rows and averages are exact.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <cupola/core/fixed_array.hpp>
#include <cupola/ops/convert.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/processes/processes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// to = from / by.
struct QuotientFormula {
    float by;
    CUPOLA_HOST_DEVICE void operator()(float& to, float from) const { to = from / by; }
};

/// A list of messages to or from other processes, in the order of the calls of add().
template <class Element>
class MessageList {
public:
    void add(int process, Element* elements, std::int64_t count) {
        if (count > 0)
            list_.push_back(
                {process, reinterpret_cast<std::byte*>(elements), static_cast<std::size_t>(count) * sizeof(Element)});
    }
    [[nodiscard]] std::span<const ProcessMessage> messages() const { return list_; }

private:
    std::vector<ProcessMessage> list_;
};

/// A device's part when the devices of a process divide all columns.
template <class D, class T>
[[nodiscard]] ReplicaPlacement::ColumnRange part_of_all_columns(const Replicas<D, T>& replicas, int device) {
    return ReplicaPlacement(replicas.placement().device_count(), replicas.placement().device_count(), false)
        .columns_of(device, replicas.network().trained_elements);
}

/// Members with a `device` parameter are called by that device's thread. In each step:
///   pack_rows      | exchange rows_out, rows_in       | unpack_rows, row()
///   pack_average   | exchange average_out, average_in | unpack_average
template <class D, class T, class Element>
class SliceMessages {
    using Kernels = typename D::Kernels;
    using ColumnRange = ReplicaPlacement::ColumnRange;
    static constexpr bool packs = !std::same_as<Element, float>;

public:
    /// Empty, for a training whose processes share memory.
    SliceMessages() = default;
    /// Each process averages a part of these columns; of messages that are not floats, of all columns.
    [[gnu::cold]] SliceMessages(Replicas<D, T>& replicas, ColumnRange columns, const Processes& processes);

    /// Whether there are messages.
    [[nodiscard]] bool any() const { return !received_.empty(); }
    [[nodiscard]] std::span<const ProcessMessage> rows_out() const { return rows_out_.messages(); }
    [[nodiscard]] std::span<const ProcessMessage> rows_in() const { return rows_in_.messages(); }
    [[nodiscard]] std::span<const ProcessMessage> average_out() const { return average_out_.messages(); }
    [[nodiscard]] std::span<const ProcessMessage> average_in() const { return average_in_.messages(); }

    /// The gradient of a replica of another process, from column `begin` of the slice.
    [[nodiscard]] const float* row(int replica, std::int64_t begin) const {
        return received_.data() + place(replica, begin);
    }

    /// Converts the rows of the device's replicas to the type of the messages.
    void pack_rows(Replicas<D, T>& replicas, int device) {
        if constexpr (packs) {
            for (int r = replicas.placement().first_replica(device); r < replicas.placement().first_replica(device + 1);
                 ++r)
                ops::Convert<Kernels>::run(replicas.context(device), replicas.gradients().row(r),
                                           packed_row(replicas, r), elements_);
        }
    }
    /// Converts the received rows back, in the given columns of the slice.
    void unpack_rows(Replicas<D, T>& replicas, int device, ColumnRange columns) {
        if constexpr (packs) {
            for (int r = 0; r < replicas.placement().replicas(); ++r) {
                if (replicas.placement().is_here(r)) continue;
                const std::int64_t at = place(r, columns.begin);
                ops::Convert<Kernels>::run(replicas.context(device), packed_received_.data() + at,
                                           received_.data() + at, columns.end - columns.begin);
            }
        }
    }
    /// Converts the average, before it is divided, in the given columns of the slice.
    void pack_average(Replicas<D, T>& replicas, int device, ColumnRange columns) {
        if constexpr (packs)
            ops::Convert<Kernels>::run(replicas.context(device), replicas.gradients().average(device) + columns.begin,
                                       packed_average_.data() + columns.begin, columns.end - columns.begin);
    }
    /// Converts the device's part of the received average back and divides it.
    void unpack_average(Replicas<D, T>& replicas, int device, float divisor) {
        if constexpr (packs) {
            const auto [begin, end] = part_of_all_columns(replicas, device);
            const auto unpack = [&](std::int64_t from, std::int64_t to) {
                if (from >= to) return;
                const Element* const packed = packed_average_.data() + from;
                for_each_element(replicas.context(device), to - from, QuotientFormula{divisor},
                                 replicas.gradients().average(device) + from, packed);
            };
            unpack(begin, std::min(end, slice_.begin));
            unpack(std::max(begin, slice_.end), end);
        }
    }

private:
    [[nodiscard]] std::int64_t place(int replica, std::int64_t column) const {
        return static_cast<std::int64_t>(replica) * (slice_.end - slice_.begin) + column - slice_.begin;
    }
    /// The row of a replica of this process in the type of the messages.
    [[nodiscard]] Element* packed_row(Replicas<D, T>& replicas, int replica) {
        if constexpr (packs)
            return packed_rows_.data() +
                   static_cast<std::int64_t>(replica - replicas.placement().first_replica(0)) * elements_;
        else
            return replicas.gradients().row(replica);
    }

    std::int64_t elements_ = 0;
    ColumnRange slice_{0, 0};
    /// The slices of the rows of other processes.
    FixedArray<float> received_;
    /// The buffers of messages whose type is not float; empty otherwise.
    FixedArray<Element> packed_rows_, packed_received_, packed_average_;
    MessageList<Element> rows_out_, rows_in_, average_out_, average_in_;
};

template <class D, class T, class Element>
SliceMessages<D, T, Element>::SliceMessages(Replicas<D, T>& replicas, ColumnRange columns, const Processes& processes)
    : elements_(replicas.network().trained_elements),
      slice_(replicas.placement().columns_of_process(processes.number(), columns)) {
    const int me = processes.number();
    const std::int64_t width = slice_.end - slice_.begin;
    const auto received = static_cast<std::size_t>(replicas.placement().replicas() * width);
    received_ = FixedArray<float>(std::max<std::size_t>(1, received));
    Element *rows = nullptr, *average = nullptr;
    if constexpr (packs) {
        packed_rows_ = FixedArray<Element>(static_cast<std::size_t>(replicas.placement().replicas_here() * elements_));
        packed_received_ = FixedArray<Element>(received);
        packed_average_ = FixedArray<Element>(replicas.elements());
        rows = packed_received_.data();
        average = packed_average_.data();
    } else {
        rows = received_.data();
        average = replicas.gradients().average(0);
    }
    for (int p = 0; p < processes.count(); ++p) {
        if (p == me) continue;
        const auto [begin, end] = replicas.placement().columns_of_process(p, columns);
        for (int r = 0; r < replicas.placement().replicas(); ++r) {
            if (replicas.placement().is_here(r)) rows_out_.add(p, packed_row(replicas, r) + begin, end - begin);
            if (replicas.placement().process_of(r) == p) rows_in_.add(p, rows + r * width, width);
        }
        average_out_.add(p, average + slice_.begin, width);
        average_in_.add(p, average + begin, end - begin);
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
