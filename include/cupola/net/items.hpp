// SPDX-License-Identifier: Apache-2.0
//
// What stands in a network's list beside layers: its Input, and names.
#pragma once

#include <cstdint>
#include <string_view>

#include <cupola/core/extents.hpp>
#include <cupola/core/fixed_string.hpp>
#include <cupola/layers/on.hpp>
#include <cupola/net/residual.hpp>

namespace cupola::inline CUPOLA_ABI {

/// The extents of one sample, channels last: the first item of a `Sequential`.
template <std::int64_t... extents>
struct Input {
    static constexpr Shape shape{extents...};
};

/// A layer, or a residual block, with a name: parameters are "name.weight" and so on, in reports and in checkpoints.
template <FixedString layer_name, class L>
struct Named : L {
    static constexpr std::string_view name = layer_name.view();
    using Unnamed = L;
};

namespace impl {

template <class Item>
inline constexpr bool is_input = false;
template <std::int64_t... extents>
inline constexpr bool is_input<Input<extents...>> = true;

/// The layer itself, without its name: equal layers share one instantiation.
template <class L>
struct Unnamed {
    using Type = L;
};
template <FixedString name, class L>
struct Unnamed<Named<name, L>> {
    using Type = L;
};

/// The layers of an On, each as the row has it.
template <class Item>
concept IsPlaced = requires { typename Item::PlacedDevice; };
template <class Item>
using PlacedItems = typename Item::template Items<ItemList>;
template <class Device, class Item>
using PlacedLayerOf = PlacedLayer<Device, typename Unnamed<Item>::Type>;

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
