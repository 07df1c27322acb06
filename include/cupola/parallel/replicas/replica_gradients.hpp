// SPDX-License-Identifier: Apache-2.0
//
// The memory of the replicas' gradients and of their average. Devices whose memory the host shares have one row per
// replica and one average, of which each device computes a slice; or one per device, where a collective sums over the
// devices. Any other device has the rows of its own replicas and its own average. A single replica's row is the average
// too, in place. There is no average where each replica updates its own parameters with its own row. Replicas of other
// processes have rows here only where the processes have memory in common; the average is there then, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/device/device.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// What a row of an array has an element of: each parameter; each one that is trained; each running statistic.
enum class RowOf : std::uint8_t { parameters, trained, buffers };

/// Makes the memory of an array of such rows, which may be in the memory of several devices: `bytes` bytes, or none;
/// `what` names it in an error.
template <class Device>
using MakeArena = FunctionRef<typename Device::Arena(std::size_t bytes, RowOf rows, std::string_view what)>;

template <class D>
class ReplicaGradients {
public:
    /// `has_averages`: whether memory for the average is allocated beside the rows. `on_each_device`: whether each
    /// device writes an average of its own; otherwise devices that are all in the host's memory have one together.
    ReplicaGradients(const ReplicaPlacement& placement, std::int64_t elements, bool has_averages, bool on_each_device)
        : elements_(elements),
          has_averages_(has_averages),
          has_one_average_(D::host_memory && !(has_averages && on_each_device)),
          placement_(placement),
          rows_(static_cast<std::size_t>(placement.replicas())),
          averages_(static_cast<std::size_t>(placement.device_count())),
          arenas_(2 * averages_.size()) {}

    /// The bytes of all rows of this process together, and of all averages.
    [[nodiscard]] std::size_t row_bytes() const { return arena_bytes() * replicas_here(); }
    [[nodiscard]] std::size_t average_bytes() const;

    /// Allocates the memory of a device, whose replicas are [first, last), on its own thread.
    [[gnu::cold]] void allocate(int device, int first, int last, MakeArena<D> make);
    /// Places the memory of all devices in memory that all processes read and write, by Processes::share(). Returns
    /// false, and does nothing, if they have none in common.
    [[nodiscard, gnu::cold]] bool place_in_shared(FunctionRef<std::vector<std::byte*>(std::size_t)> share);

    /// Null for a replica whose row this process cannot read.
    [[nodiscard]] float* row(int replica) const { return rows_[static_cast<std::size_t>(replica)]; }
    /// The average of a device; without one, the first row.
    [[nodiscard]] float* average(int device) const { return averages_[static_cast<std::size_t>(device)]; }
    /// All of it.
    [[nodiscard]] std::span<float> average_span(int device) const {
        return {average(device), static_cast<std::size_t>(elements_)};
    }
    /// These columns of it.
    [[nodiscard]] std::span<float> average_span(int device, ReplicaPlacement::ColumnRange columns) const {
        return {average(device) + columns.begin, static_cast<std::size_t>(columns.end - columns.begin)};
    }
    /// Whether the average of a single replica is its gradient, in place.
    [[nodiscard]] bool in_place() const { return average_bytes() == 0; }
    /// The columns of the average that a device computes.
    [[nodiscard]] ReplicaPlacement::ColumnRange columns_of(int device) const {
        return placement_.columns_of(device, elements_);
    }
    /// The rows of the replicas [first, last), from column `begin` on, for the search of what makes their mean not
    /// finite; `ends` are those of StatusLayout::not_finite, from the first replica on.
    [[nodiscard]] ops::RowsOfMean rows_of_mean(int first, int last, std::int64_t begin,
                                               unsigned long long* ends) const {
        return {.rows = row(first) + begin,
                .stride = elements_,
                .count = last - first,
                .first_column = begin,
                .ends = ends};
    }

private:
    [[nodiscard]] std::size_t arena_bytes() const { return static_cast<std::size_t>(elements_) * sizeof(float); }
    [[nodiscard]] std::size_t replicas_here() const { return static_cast<std::size_t>(placement_.replicas_here()); }

    std::int64_t elements_;
    bool has_averages_, has_one_average_;
    ReplicaPlacement placement_;
    FixedArray<float*> rows_, averages_;
    FixedArray<typename D::Arena> arenas_;
};

template <class D>
std::size_t ReplicaGradients<D>::average_bytes() const {
    if (!has_averages_) return 0;
    return arena_bytes() * (has_one_average_ ? 1 : averages_.size());
}

template <class D>
void ReplicaGradients<D>::allocate(int device, int first, int last, MakeArena<D> make) {
    const auto index = static_cast<std::size_t>(device);
    typename D::Arena &rows = arenas_[2 * index], &average = arenas_[2 * index + 1];
    if (!D::host_memory || device == 0) {
        if (D::host_memory) last = first + placement_.replicas_here();
        rows = make(arena_bytes() * static_cast<std::size_t>(last - first), RowOf::trained,
                    text("the gradients of replicas ", first, " to ", last - 1));
        for (int r = first; r < last; ++r) {
            rows_[static_cast<std::size_t>(r)] = reinterpret_cast<float*>(rows.data()) + (r - first) * elements_;
        }
    } else if (has_one_average_) {
        return;
    }
    if (has_averages_) average = make(arena_bytes(), RowOf::trained, text("the averaged gradient of device ", device));
    float* const place =
        has_averages_ ? reinterpret_cast<float*>(average.data()) : rows_[static_cast<std::size_t>(first)];
    averages_[index] = place;
    if (has_one_average_) {
        for (float*& each : averages_) each = place;
    }
}

template <class D>
bool ReplicaGradients<D>::place_in_shared(FunctionRef<std::vector<std::byte*>(std::size_t)> share) {
    // The average is after the rows of the last process.
    const bool last = placement_.process_number() + 1 == placement_.process_count();
    const std::vector<std::byte*> parts = share(arena_bytes() * (replicas_here() + (last ? 1 : 0)));
    if (parts.empty()) return false;
    for (int r = 0; r < placement_.replicas(); ++r) {
        const int process = placement_.process_of(r);
        rows_[static_cast<std::size_t>(r)] = reinterpret_cast<float*>(parts[static_cast<std::size_t>(process)]) +
                                             (r - placement_.first_replica_of_process(process)) * elements_;
    }
    for (float*& each : averages_) each = rows_[rows_.size() - 1] + elements_;
    return true;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
