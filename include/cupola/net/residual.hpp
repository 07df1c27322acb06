// SPDX-License-Identifier: Apache-2.0
//
// Residual<Shortcut, Layers...>: the sum of a block of layers and of a way around it (He et al. 2015), an item of a
// `Sequential` like a layer. What follows it, a ReLU for example, stands after it in the list.
//
//   Residual<Identity, Conv2d<16, 3, no_bias>, BatchNorm2d<>, ReLU, Conv2d<16, 3, no_bias>, BatchNorm2d<>>, ReLU
//
// The shortcut is `Identity`, `Projection<Layers...>`, or a layer that is made to be one and says so by
// `static constexpr bool is_shortcut = true`, as `PadShortcut<32, 2>` does. Any other first item does not compile: it
// would be a layer of the block for which Identity was forgotten. A residual block is no network inside a network: it
// adds its rows to the flat list, Fork, the block's, the shortcut's and Add. A name is
// put before the names inside: `Named<"layer1.0", Residual<..., Named<"conv1", ...>>>` has "layer1.0.conv1.weight".
#pragma once

#include <concepts>

#include <cupola/layers/layer.hpp>
#include <cupola/ops/residual.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class... Items>
struct ItemList {};

/// Hands its input to the block and to the shortcut.
struct Fork {
    static constexpr LayerTraits traits{
        .backward_reads_input = false, .backward_reads_output = false, .view = true, .two_readers = true};

    static constexpr Inferred output(const Shape& input) { return input; }

    template <class Site>
    static ops::Fork<typename Site::DeviceType, typename Site::Element> operation(const Site& site) {
        return ops::Fork<typename Site::DeviceType, typename Site::Element>(site);
    }
};

/// The sum of the block's output and the shortcut's.
struct Add {
    static constexpr LayerTraits traits{
        .backward_reads_input = false, .backward_reads_output = false, .absorbs_relu = true, .two_inputs = true};

    static constexpr Inferred output(const Shape& input) { return input; }

    template <class Site>
    static ops::Add<typename Site::DeviceType, typename Site::Element> operation(const Site& site) {
        return ops::Add<typename Site::DeviceType, typename Site::Element>(site);
    }
};

}  // namespace impl

/// The shortcut that hands the block's input on as it is.
struct Identity {};

/// A shortcut of layers: `Projection<Conv2d<32, 1, stride(2), no_bias>, BatchNorm2d<>>`.
template <class... Layers>
struct Projection {
    using ShortcutItems = impl::ItemList<Layers...>;
};

/// See the head of this file.
template <class Shortcut, class... Layers>
struct Residual {
    using ResidualShortcut = Shortcut;
    using ResidualItems = impl::ItemList<Layers...>;
};

namespace impl {

template <class Item>
concept IsResidual = requires { typename Item::ResidualItems; };

/// What may stand first in a Residual.
template <class Item>
concept IsShortcut = std::same_as<Item, Identity> || requires { typename Item::ShortcutItems; } ||
                     requires { requires Item::is_shortcut; };

/// The shortcut's layers.
template <class Shortcut>
struct ShortcutItems {
    using Type = ItemList<Shortcut>;
};
template <>
struct ShortcutItems<Identity> {
    using Type = ItemList<>;
};
template <class Shortcut>
    requires requires { typename Shortcut::ShortcutItems; }
struct ShortcutItems<Shortcut> {
    using Type = typename Shortcut::ShortcutItems;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
