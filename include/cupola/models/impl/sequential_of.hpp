// SPDX-License-Identifier: Apache-2.0
//
// The Sequential of the modules of several lists, for networks with blocks that are more than one module.
#pragma once

#include <cupola/core/abi.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/sequential.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class... Lists>
struct SequentialOf;
template <class... Modules>
struct SequentialOf<ModuleList<Modules...>> {
    using Type = Sequential<Modules...>;
};
template <class... First, class... Second, class... Others>
struct SequentialOf<ModuleList<First...>, ModuleList<Second...>, Others...>
    : SequentialOf<ModuleList<First..., Second...>, Others...> {};

}}}  // namespace cupola::CUPOLA_ABI::impl
