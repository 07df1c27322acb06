// SPDX-License-Identifier: Apache-2.0
//
// OnDevice<Device, Layers...>: runs these layers of a network on the named device, wherever the rest of the network
// runs. It is for an operation that a GPU lacks, or one that is faster near its data (TensorFlow's soft placement, but
// explicit).
//
//   MaxPool2d<3, 2>, OnDevice<Host, LocalResponseNorm<4>>, Named<"conv2", Conv2d<64, 5>>
//
// The tensors of each layer are copied there and back, which the network's summary shows; where the network runs on
// that device already, nothing is copied. A placed layer is not fused with its neighbours. A layer that computes
// statistics of its batch cannot be placed, because replicas could not exchange them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/offloaded.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// One layer of OnDevice.
template <class Device, class L>
struct OffloadedLayer {
    /// A view computes nothing, so its placement has no effect. Any other placed layer has the kind `plain`: it is not
    /// fused.
    static constexpr bool is_view = kind_of<L>() == LayerKind::view;
    static constexpr LayerKind kind = is_view ? LayerKind::view : LayerKind::plain;
    static constexpr std::string_view description = description_of<L>();
    static constexpr LayerTraits traits = [] {
        LayerTraits traits = traits_of<L>();
        if (is_view) return traits;
        traits.absorbs_relu = traits.absorbs_relu6 = traits.can_apply_relu_mask = false;
        traits.input_gradient_in_place = false;
        traits.runs_on = Device::name;
        return traits;
    }();

    static constexpr ShapeResult output(const Shape& input) {
        if (buffers_of<L>(input).count > 0)
            return ShapeError{"keeps statistics of its batch, so OnDevice cannot place it on another device"};
        return L::output(input);
    }
    template <class Layers>
        requires requires(const Layers& layers, std::size_t value) { L::conflict_with(layers, value); }
    static constexpr std::string_view conflict_with(const Layers& layers, std::size_t value) {
        return L::conflict_with(layers, value);
    }
    static constexpr Parameters parameters(const Shape& input) { return parameters_of<L>(input); }
    static constexpr std::int64_t multiply_adds(const Shape& input) { return multiply_adds_of<L>(input); }
    static constexpr GraphOperators onnx(const Shape& input)
        requires HasGraphOperators<L>
    {
        return L::onnx(input);
    }

    template <class BuildContext>
        requires(HasOperation<L, Device, typename BuildContext::Element> &&
                 (std::is_same_v<typename BuildContext::DeviceType, Device> ||
                  std::is_same_v<typename BuildContext::Element, float>))
    static auto operation(const BuildContext& build) {
        using Here = typename BuildContext::DeviceType;
        if constexpr (std::is_same_v<Here, Device> || is_view) {
            return L::operation(build);
        } else {
            using Op = OperationOf<L, Device>;
            std::array<std::int64_t, max_parameters> sizes{};
            const Parameters parameters = parameters_of<L>(build.input);
            for (std::size_t p = 0; p < parameters.count; ++p) sizes[p] = parameters.list[p].shape.size();
            return ops::Offloaded<Here, Device, Op>(build, &make_node<L, Device, float>, sizes);
        }
    }
};

}  // namespace impl

/// See the head of this file.
template <class Device, class... Layers>
struct OnDevice {
    using OffloadDevice = Device;
    template <template <class...> class List>
    using Modules = List<Layers...>;
};

}}  // namespace cupola::CUPOLA_ABI
