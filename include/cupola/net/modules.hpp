// SPDX-License-Identifier: Apache-2.0
//
// The modules of a network's list that are not layers: its Input, and names.
#pragma once

#include <cstdint>
#include <string_view>

#include <cupola/core/extents.hpp>
#include <cupola/core/fixed_string.hpp>
#include <cupola/net/residual.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The extents of one sample, channels last: the first module of a `Sequential`.
template <std::int64_t... extents>
struct Input {
    static constexpr Shape shape{extents...};
};

/// A layer, or a residual block, with a name: its parameters are named "name.weight" and so on in reports and in
/// checkpoints.
template <FixedString layer_name, class L>
struct Named : L {
    static constexpr std::string_view name = layer_name.view();
    using Unnamed = L;
};

namespace impl {

template <class Module>
inline constexpr bool is_input = false;
template <std::int64_t... extents>
inline constexpr bool is_input<Input<extents...>> = true;

/// A Tied (net/tied.hpp), or a type derived from one.
template <class Module>
concept IsTied = requires { typename Module::TiedLayer; };

template <class Module>
inline constexpr bool is_named = false;
template <FixedString name, class L>
inline constexpr bool is_named<Named<name, L>> = true;

/// The layer without its name: equal layers share one instantiation.
template <class L>
struct Unnamed {
    using Type = L;
};
template <FixedString name, class L>
    requires(!IsTied<L>)
struct Unnamed<Named<name, L>> {
    using Type = L;
};

template <IsTied Module>
struct Unnamed<Module> {
    using Type = typename Module::TiedLayer;
};

/// The layers of an OnDevice (layers/on_device.hpp), as they are entered in the network's table.
template <class Device, class L>
struct OffloadedLayer;
template <class Module>
concept IsOffloaded = requires { typename Module::OffloadDevice; };
template <class Module>
using OffloadedModules = typename Module::template Modules<ModuleList>;
template <class Device, class Module>
using OffloadedLayerOf = OffloadedLayer<Device, typename Unnamed<Module>::Type>;

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
