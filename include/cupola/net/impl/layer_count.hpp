// SPDX-License-Identifier: Apache-2.0
//
// The number of layers in a list of modules, those inside blocks included: the size of the network's table.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <utility>

#include <cupola/net/modules.hpp>
#include <cupola/net/residual.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

[[nodiscard]] consteval std::size_t sum_of(std::initializer_list<std::size_t> counts) {
    std::size_t sum = 0;
    for (const std::size_t count : counts) sum += count;
    return sum;
}

template <class Module>
[[nodiscard]] consteval std::size_t layers_of();

template <class... Modules>
[[nodiscard]] consteval std::size_t layers_of(ModuleList<Modules...>) {
    return sum_of({layers_of<Modules>()...});
}

/// The number of layers in a block of branches: the Fork, those of the branches and their beginnings, and the layers
/// that join the branches, one fewer than there are branches.
template <class... Branches>
[[nodiscard]] consteval std::size_t layers_of_block(ModuleList<Branches...>) {
    constexpr std::size_t count = sizeof...(Branches);
    const std::size_t starts = []<std::size_t... places>(std::index_sequence<places...>) {
        return (std::size_t{0} + ... + (has_branch_start<Branches>(places, count) ? 1U : 0U));
    }(std::make_index_sequence<count>{});
    return sum_of({layers_of(BranchModulesOf<Branches>{})...}) + starts + (count == 0 ? 1 : count);
}

/// The number of layers in a module.
template <class Module>
[[nodiscard]] consteval std::size_t layers_of() {
    if constexpr (is_input<Module>) {
        return 0;
    } else if constexpr (IsBlock<Module>) {
        return layers_of_block(typename Module::BlockBranches{});
    } else if constexpr (IsOffloaded<Module>) {
        return []<class... Layers>(ModuleList<Layers...>) { return sizeof...(Layers); }(OffloadedModules<Module>{});
    } else {
        return 1;
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
