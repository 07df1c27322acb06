// SPDX-License-Identifier: Apache-2.0
//
// The layers of a network's list one after another, residual blocks opened: for what is made or asked of each type.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>

#include <cupola/core/sentence.hpp>
#include <cupola/net/impl/fused_pair.hpp>
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

/// Collects what makes each layer's stage on a device, and what makes one of two layers, where the network has such.
template <class Device, class T, std::size_t layers>
struct CollectMakers {
    std::array<StageMaker<Device, T>, layers> makers{};
    PairStageMaker<Device, T> pair = nullptr;
    std::size_t count = 0;

    template <class L>
    constexpr void layer() {
        if constexpr (HasOperation<L, Device, T> && traits_of<L>().normalizes_locally)
            pair = &make_pair_stage<Device, T>;
        if constexpr (HasOperation<L, Device, T>) makers[count] = &make_stage<L, Device, T>;
        ++count;
    }
};

/// Finds the first layer that cannot be trained on a device in a precision; without `backward`, that cannot be run.
template <class Device, class Precision, bool backward = true>
struct RequireTrainable {
    using T = typename Precision::Activation;
    std::span<const Row> rows;
    std::size_t place = 0;
    Sentence sentence{};

    template <class L>
    constexpr void layer() {
        ++place;
        if (!sentence.empty()) return;
        if constexpr (!HasOperation<L, Device, T>) {
            describe(sentence, place, rows[place - 1]);
            sentence << " has no `static auto operation(const Site&)` for " << Device::name;
            if constexpr (!std::same_as<T, float>) sentence << " in " << Precision::name;
        } else if constexpr (!HasForward<OperationOf<L, Device, T>, Device, T>) {
            describe(sentence, place, rows[place - 1]);
            sentence << " has no forward on " << Device::name << ": its operation lacks `void forward(const Pass&)`";
        } else if constexpr (backward && !HasBackward<OperationOf<L, Device, T>, Device, T>) {
            describe(sentence, place, rows[place - 1]);
            sentence << " has no backward on " << Device::name << ": its operation lacks `void backward(const Pass&)`";
        }
    }
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
