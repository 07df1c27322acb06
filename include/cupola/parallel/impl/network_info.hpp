// SPDX-License-Identifier: Apache-2.0
//
// NetworkInfo: the properties of a network that a training needs, as values, so that the parts of a training have one
// type for every network of a device and an element type. DeviceParts: what the replicas know of the devices of a
// group, which has the parts of a network that is cut; PartWorkers is all of it, and only a program that cuts a network
// compiles it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <cupola/net/pipeline/cut_choice.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/parallel/replicas/plans.hpp>
#include <cupola/parallel/replicas/replica_gradients.hpp>
#include <cupola/parallel/replicas/replica_settings.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Device, class T>
class DeviceWorker;
template <class Device, class T>
struct NetworkInfo;

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

    /// Runs the network forward without training; output(k) is then in memory of the first device, until the next pass.
    /// `of_group` know whether the parameters have changed.
    virtual void evaluate(MakePlan make, const BatchView& samples, const EvaluatedArrays& arrays,
                          const Plans<Device, T>& of_group) = 0;
    [[nodiscard]] virtual const float* output(std::size_t k) = 0;
    /// The bytes that allocate() allocates on all devices together.
    [[nodiscard]] virtual std::size_t bytes() const = 0;
    /// Where each device has memory of its own: makes `memory.each_device` what this group needs there, if that is
    /// more. `gradients` are the bytes of the rows of the group, `averages` those of all groups.
    virtual void find_memory(MemoryReport& memory, std::size_t gradients, std::size_t averages) const = 0;
    virtual void allocate() = 0;
    /// The memory of an array: each device of the group has the columns of its parts, if it has memory of its own. See
    /// MakeArena.
    [[nodiscard]] virtual typename Device::Arena arena(std::size_t bytes, RowOf rows, std::string_view what) = 0;
    /// Throws DeviceError if a device of the group has failed, for which the work of the first one may wait for ever.
    virtual void require_working() const = 0;

protected:
    DeviceParts() = default;
};

/// What the parts of a group are made from.
template <class Device, class T>
struct GroupSetup {
    const NetworkInfo<Device, T>& network;
    const ReplicaSettings& settings;
    const typename Device::Options& options;
    /// The group, and the number of batches that it runs in a step.
    int group;
    std::int64_t batches;
    /// The bytes of a status, and the columns of a batch.
    std::size_t status_bytes;
    const Columns& columns;
    /// That of the group's first device, which is started.
    DeviceWorker<Device, T>& worker;
};

/// Makes the parts of a group and their plans. Throws InvalidArgument if the timetable cannot be run with that number
/// of batches. Defined in parallel/pipeline/make_part_workers.hpp.
template <class Device, class T>
[[nodiscard]] std::unique_ptr<DeviceParts<Device, T>> make_part_workers(const GroupSetup<Device, T>& setup);

template <class Kernels, class T>
struct NetworkInfo {
    std::span<const LayerInfo> layers{};
    Shape input{};
    /// `trained_elements` is the size of gradients, optimiser state and moving averages.
    std::int64_t parameter_elements = 0, trained_elements = 0, buffer_elements = 0, input_elements = 0,
                 output_elements = 0;
    bool fusion = true;
    Plan<Kernels, T> (*make)(typename Kernels::Context&, const PlanOptions&) = nullptr;
    /// The parts of a network that is cut: a training's "devices" are then groups, each of which has all parts. Null
    /// for another network.
    const CutInfo* cut = nullptr;
    int parts = 1, devices_of_group = 1;
    /// make_part_workers(), for a network that may be cut.
    std::unique_ptr<DeviceParts<Kernels, T>> (*make_parts)(const GroupSetup<Kernels, T>& setup) = nullptr;
};

/// `cut` is that of NetworkInfo.
template <Network Net, class Kernels>
[[nodiscard]] NetworkInfo<Kernels, typename Net::Precision::Activation> network_info(const CutInfo* cut) {
    using T = typename Net::Precision::Activation;
    NetworkInfo<Kernels, T> info{.layers = Net::layers,
                                 .input = Net::input,
                                 .parameter_elements = Net::parameter_elements,
                                 .trained_elements = Net::trained_elements,
                                 .buffer_elements = Net::buffer_elements,
                                 .input_elements = Net::input.size(),
                                 .output_elements = Net::output_shape.size(),
                                 .fusion = Net::fusion,
                                 .make = &Plan<Kernels, T>::template make<Net>,
                                 .cut = cut};
    if constexpr (may_be_cut<Net>) {
        info.make_parts = &make_part_workers<Kernels, T>;
        if (const CutInfoFor<Net>* const known = cut; known != nullptr) {
            info.parts = static_cast<int>(known->parts());
            info.devices_of_group = static_cast<int>(known->devices);
        }
    }
    return info;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
