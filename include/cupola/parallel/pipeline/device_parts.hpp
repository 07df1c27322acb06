// SPDX-License-Identifier: Apache-2.0
//
// DeviceParts: what the replicas of a training know of the devices of a group, which has the parts of a network that is
// cut. PartWorkers is all of it; only a program that cuts a network compiles it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Members are called by the thread of the group's first device.
template <class Device, class T>
class DeviceParts {
public:
    using MakePlan = Plan<Device, T> (*)(typename Device::Context&, const PlanOptions&);

    DeviceParts(const DeviceParts&) = delete;
    DeviceParts& operator=(const DeviceParts&) = delete;
    virtual ~DeviceParts() = default;

    /// Makes the plans of all parts and batches in flight; the layers of `options` are replaced.
    virtual void add(MakePlan make, const PlanOptions& options) = 0;
    /// Each batch is copied to memory of its own, of these columns and at most `size` samples, because its source gives
    /// the next one before it has been used.
    virtual void keep_batches(const Columns& columns, std::int64_t size) = 0;
    /// The bytes of all batches in flight, after the plans are made.
    [[nodiscard]] virtual std::size_t bytes() const = 0;
    virtual void allocate() = 0;

protected:
    DeviceParts() = default;
};

/// Those of the group of `first`, for this number of batches of a step; defined in part_workers.hpp.
template <class Device, class T>
[[nodiscard]] std::unique_ptr<DeviceParts<Device, T>> make_part_workers(const CutInfo& cut, std::int64_t batches,
                                                                        typename Device::Context& first, int devices,
                                                                        const typename Device::Options& options);

}}}  // namespace cupola::CUPOLA_ABI::impl
