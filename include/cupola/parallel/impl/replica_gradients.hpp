// SPDX-License-Identifier: Apache-2.0
//
// The memory of the replicas' gradients and of their average. Devices whose memory the host shares have one row per
// replica and one average, of which each device computes a slice. Any other device has the rows of its own replicas and
// its own average. A single replica's row is the average too, in place. There is no average where each replica updates
// its own parameters with its own row.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/device/device.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class D>
class ReplicaGradients {
public:
    /// `has_averages`: whether memory for the average is allocated beside the rows.
    ReplicaGradients(int replicas, int devices, std::int64_t elements, bool has_averages)
        : elements_(elements),
          has_averages_(has_averages),
          rows_(static_cast<std::size_t>(replicas)),
          averages_(static_cast<std::size_t>(devices)),
          arenas_(2 * averages_.size()) {}

    /// The bytes of all rows together, and of all averages.
    [[nodiscard]] std::size_t row_bytes() const { return arena_bytes() * rows_.size(); }
    [[nodiscard]] std::size_t average_bytes() const;

    /// Allocates the memory of a device, whose replicas are [first, last), on its own thread.
    [[gnu::cold]] void allocate(int device, int first, int last);

    [[nodiscard]] float* row(int replica) const { return rows_[static_cast<std::size_t>(replica)]; }
    /// The average of a device; without one, the first row.
    [[nodiscard]] float* average(int device) const { return averages_[static_cast<std::size_t>(device)]; }

private:
    [[nodiscard]] std::size_t arena_bytes() const { return static_cast<std::size_t>(elements_) * sizeof(float); }

    std::int64_t elements_;
    bool has_averages_;
    FixedArray<float*> rows_, averages_;
    FixedArray<typename D::Arena> arenas_;
};

template <class D>
std::size_t ReplicaGradients<D>::average_bytes() const {
    if (!has_averages_) return 0;
    return arena_bytes() * (D::host_memory ? 1 : averages_.size());
}

template <class D>
void ReplicaGradients<D>::allocate(int device, int first, int last) {
    const auto index = static_cast<std::size_t>(device);
    if (D::host_memory) {
        if (device > 0) return;
        first = 0;
        last = static_cast<int>(rows_.size());
    }
    typename D::Arena &rows = arenas_[2 * index], &average = arenas_[2 * index + 1];
    rows = typename D::Arena(arena_bytes() * static_cast<std::size_t>(last - first),
                             text("the gradients of replicas ", first, " to ", last - 1));
    for (int r = first; r < last; ++r) {
        rows_[static_cast<std::size_t>(r)] = reinterpret_cast<float*>(rows.data()) + (r - first) * elements_;
    }
    if (has_averages_) average = typename D::Arena(arena_bytes(), text("the averaged gradient of device ", device));
    float* const place = has_averages_ ? reinterpret_cast<float*>(average.data()) : rows_[0];
    averages_[index] = place;
    if constexpr (D::host_memory) {
        for (float*& each : averages_) each = place;
    }
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
