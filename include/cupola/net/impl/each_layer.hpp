// SPDX-License-Identifier: Apache-2.0
//
// The layers of a network's list one after another, residual blocks opened: for what is made or asked of each type.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <cupola/core/sentence.hpp>
#include <cupola/net/impl/walk.hpp>
#include <cupola/net/items.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/stage.hpp>
#include <cupola/net/table.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Calls visitor.template layer<L>() for each layer of an item, in the order of the rows.
template <class Item, class Visitor>
constexpr void for_each_layer(Visitor& visitor);

template <class... Items, class Visitor>
constexpr void for_each_layer_of(ItemList<Items...>, Visitor& visitor) {
    [[maybe_unused]] const int visited[] = {0, (for_each_layer<Items>(visitor), 0)...};
}

template <class Item, class Visitor>
constexpr void for_each_layer(Visitor& visitor) {
    if constexpr (IsResidual<Item>) {
        visitor.template layer<Fork>();
        for_each_layer_of(typename Item::ResidualItems{}, visitor);
        for_each_layer_of(typename ShortcutItems<typename Item::ResidualShortcut>::Type{}, visitor);
        visitor.template layer<Add>();
    } else if constexpr (IsPlaced<Item>) {
        [&]<class... Layers>(ItemList<Layers...>) {
            [[maybe_unused]] const int visited[] = {
                0, (visitor.template layer<PlacedLayerOf<typename Item::PlacedDevice, Layers>>(), 0)...};
        }(PlacedItems<Item>{});
    } else if constexpr (!is_input<Item>) {
        visitor.template layer<typename Unnamed<Item>::Type>();
    }
}

/// Collects what makes each layer's stage on a device.
template <class Device, std::size_t layers>
struct CollectMakers {
    std::array<StageMaker<Device>, layers> makers{};
    std::size_t count = 0;

    template <class L>
    constexpr void layer() {
        if constexpr (HasOperation<L, Device>) makers[count] = &make_stage<L, Device>;
        ++count;
    }
};

/// Finds the first layer that cannot be trained on a device.
template <class Device>
struct RequireTrainable {
    std::span<const Row> rows;
    std::size_t place = 0;
    Sentence sentence{};

    template <class L>
    constexpr void layer() {
        ++place;
        if (!sentence.empty()) return;
        if constexpr (!HasOperation<L, Device>) {
            describe(sentence, place, rows[place - 1]);
            sentence << " has no `static auto operation(const Site&)` for " << Device::name;
        } else if constexpr (!HasForward<OperationOf<L, Device>, Device>) {
            describe(sentence, place, rows[place - 1]);
            sentence << " has no forward on " << Device::name << ": its operation lacks `void forward(const Pass&)`";
        } else if constexpr (!HasBackward<OperationOf<L, Device>, Device>) {
            describe(sentence, place, rows[place - 1]);
            sentence << " has no backward on " << Device::name << ": its operation lacks `void backward(const Pass&)`";
        }
    }
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
