// SPDX-License-Identifier: Apache-2.0
//
// NetworkInfo: the properties of a network that a training needs, as values, so that the parts of a training have one
// type for every network of a device and an element type.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/parallel/pipeline/device_parts.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

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
    /// That of part_workers.hpp, for a network that is cut.
    std::unique_ptr<DeviceParts<Kernels, T>> (*make_parts)(const CutInfo& cut, std::int64_t batches,
                                                           typename Kernels::Context& first, int devices,
                                                           const typename Kernels::Options& options) = nullptr;
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
    if constexpr (may_be_cut<Net>) info.make_parts = &make_part_workers<Kernels, T>;
    return info;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
