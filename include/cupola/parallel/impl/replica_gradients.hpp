// SPDX-License-Identifier: Apache-2.0
//
// The memory of the replicas' gradients and of their average. Devices whose memory the host shares have one row per
// replica and one average, of which each device computes a slice. Any other device has the rows of its own replicas and
// its own average.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/device/device.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class D>
class ReplicaGradients {
public:
    /// `apart`: the average is not the gradient even of a single replica, because other processes have replicas too.
    ReplicaGradients(int replicas, int devices, std::int64_t elements, bool apart)
        : elements_(elements),
          apart_(apart),
          rows_(static_cast<std::size_t>(replicas)),
          averages_(static_cast<std::size_t>(devices)),
          arenas_(2 * averages_.size()) {}

    /// The bytes of all rows together, and of all averages.
    [[nodiscard]] std::size_t row_bytes() const { return arena_bytes() * rows_.size(); }
    [[nodiscard]] std::size_t average_bytes() const {
        if (!has_averages()) return 0;  // one replica's gradient is the average, in place
        return arena_bytes() * (D::host_memory ? 1 : averages_.size());
    }

    /// Allocates the memory of a device, whose replicas are [first, last), on its own thread.
    [[gnu::cold]] void allocate(int device, int first, int last) {
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
        if (has_averages())
            average = typename D::Arena(arena_bytes(), text("the averaged gradient of device ", device));
        float* const place = has_averages() ? reinterpret_cast<float*>(average.data()) : rows_[0];
        averages_[index] = place;
        if (D::host_memory) averages_.assign(averages_.size(), place);
    }

    [[nodiscard]] float* row(int replica) const { return rows_[static_cast<std::size_t>(replica)]; }
    [[nodiscard]] float* average(int device) const { return averages_[static_cast<std::size_t>(device)]; }

private:
    [[nodiscard]] std::size_t arena_bytes() const { return static_cast<std::size_t>(elements_) * sizeof(float); }

    [[nodiscard]] bool has_averages() const { return apart_ || rows_.size() > 1; }

    std::int64_t elements_;
    bool apart_;
    std::vector<float*> rows_, averages_;
    std::vector<typename D::Arena> arenas_;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
