// SPDX-License-Identifier: Apache-2.0
//
// DeviceParts: what the replicas of a training know of the devices of a group, which has the parts of a network that is
// cut. PartWorkers is all of it; only a program that cuts a network compiles it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/parallel/replicas/make_arena.hpp>
#include <cupola/parallel/replicas/plans.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// What a group has beside its plans.
struct GroupMemory {
    /// The elements of the rows of its arrays.
    std::int64_t parameter_elements = 0, trained_elements = 0, buffer_elements = 0;
    std::size_t status_bytes = 0;
    /// The columns of a batch, of at most `batch_size` samples.
    Columns columns{};
    std::int64_t batch_size = 0;
    /// Whether each batch is copied to memory of its own, because its source gives the next one before it has been
    /// used.
    bool keeps_batches = false;
};

/// The arrays of an evaluation: see PassBuffers.
struct EvaluatedArrays {
    const float *parameters = nullptr, *frozen = nullptr, *running = nullptr;
};

/// Members are called by the thread of the group's first device.
template <class Device, class T>
class DeviceParts {
public:
    using MakePlan = Plan<Device, T> (*)(typename Device::Context&, const PlanOptions&);

    DeviceParts(const DeviceParts&) = delete;
    DeviceParts& operator=(const DeviceParts&) = delete;
    virtual ~DeviceParts() = default;

    /// Before plans are made.
    virtual void describe(const GroupMemory& memory) = 0;
    /// Makes the plans of all parts and batches in flight; the layers of `options` are replaced.
    virtual void add(MakePlan make, const PlanOptions& options) = 0;
    /// The same for forward passes without training; the memory is for the largest of these batches.
    virtual void add_evaluation(MakePlan make, std::int64_t batch) = 0;
    /// Runs the network forward without training; output(k) is then in memory of the first device, until the next pass.
    /// `of_group` know whether the parameters have changed.
    virtual void evaluate(MakePlan make, const BatchView& samples, const EvaluatedArrays& arrays,
                          const Plans<Device, T>& of_group) = 0;
    [[nodiscard]] virtual const float* output(std::size_t k) = 0;
    /// The bytes that allocate() allocates, after the plans are made: on all devices together, and on each.
    [[nodiscard]] virtual std::size_t bytes() const = 0;
    [[nodiscard]] virtual std::vector<std::size_t> bytes_of_devices() const = 0;
    virtual void allocate() = 0;
    /// The memory of an array: each device of the group has the columns of its parts, if it has memory of its own. See
    /// MakeArena.
    [[nodiscard]] virtual typename Device::Arena arena(std::size_t bytes, RowOf rows, std::string_view what) = 0;
    /// The bytes of it on each device.
    [[nodiscard]] virtual std::vector<std::size_t> divided(std::size_t bytes, RowOf rows) const = 0;
    /// Throws DeviceError if a device of the group has failed, for which the work of the first one may wait for ever.
    virtual void require_working() const = 0;

protected:
    DeviceParts() = default;
};

/// Those of the group of `first`, for this number of batches of a step; defined in part_workers.hpp.
template <class Device, class T>
[[nodiscard]] std::unique_ptr<DeviceParts<Device, T>> make_part_workers(const CutInfo& cut, std::int64_t batches,
                                                                        typename Device::Context& first, int devices,
                                                                        const typename Device::Options& options);

}}}  // namespace cupola::CUPOLA_ABI::impl
