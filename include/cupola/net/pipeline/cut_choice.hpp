// SPDX-License-Identifier: Apache-2.0
//
// Whether a network is cut into parts, and the choice of a ChosenSplit (net/pipeline/chosen_split.hpp), for all
// trainings: those of a network in parts include net/pipeline/cut_info.hpp.
#pragma once

#include <cstddef>
#include <type_traits>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct CutInfo;

/// `CutInfoOf<Net>::value`, for a network that is cut.
template <class Net>
struct CutInfoOf;
/// Null for another network.
template <class Net>
[[nodiscard]] constexpr const CutInfo* cut_info_of() {
    if constexpr (requires { Net::part_begins; }) {
        return &CutInfoOf<Net>::value;
    } else {
        return nullptr;
    }
}

/// The cut of a ChosenSplit (net/pipeline/chosen_split.hpp), in the options of its training: balanced parts, as those
/// of Split.
struct CutChoice {
    /// 1 for the network without cuts.
    int parts = 1;
    /// `by_timetable<GPipe>`, for example; null for OneForwardOneBackward, and without cuts.
    CutInfo (*timetable)(std::size_t parts) = nullptr;
};

/// Whether the options of a training may cut the network.
template <class Net>
inline constexpr bool cut_is_chosen = requires { Net::cut_is_chosen; };
/// Whether the network is cut by its type, or may be by the options.
template <class Net>
inline constexpr bool may_be_cut = cut_is_chosen<Net> || requires { Net::part_begins; };

namespace impl {

/// CutInfo, where it is complete: for a network that may be cut.
template <class Net>
using CutInfoFor = std::conditional_t<may_be_cut<Net>, CutInfo, void>;

struct ChosenCut;
/// `ChosenCutOf<Net>::make(choice)`, for a ChosenSplit: in net/pipeline/chosen_split.hpp.
template <class Net>
struct ChosenCutOf;

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
