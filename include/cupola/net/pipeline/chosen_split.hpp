// SPDX-License-Identifier: Apache-2.0
//
// A network whose cut into parts is chosen when the program runs, by a flag for example, without a training per cut:
//
//   struct Parts : ChosenSplit<ResNet<44>> {};
//   DataParallel<Parts, Loss, Sgd, ConcatMean, Host> training(
//       {.replicas = 2, .devices = 6, .cut = {.parts = 3, .timetable = by_timetable<GPipe>}});
//
// Its parts are those of Split (net/pipeline/split.hpp), and everything else is that of `Net`. What cannot be combined
// with a cut throws InvalidArgument where the training is made: more parts than there are places for cuts,
// `Synchronized` statistics, and an averaging policy whose replicas do not wait for each other; and so does a timetable
// without a cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/net/pipeline/pipeline.hpp>
#include <cupola/net/pipeline/split.hpp>
#include <cupola/net/pipeline/timetable_of.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Throws InvalidArgument for fewer than one part, and for more than the network can be cut into.
[[nodiscard, gnu::cold]] inline FixedArray<std::size_t> chosen_begins(std::span<const LayerInfo> layers, bool fusion,
                                                                      int parts) {
    require(parts >= 1, "a network has at least one part, not ", parts);
    CompileTimeMessage diagnostic;
    FixedArray<std::size_t> begins(static_cast<std::size_t>(parts));
    balance(layers, fusion, begins.span(), diagnostic);
    require(diagnostic.empty(), std::string(diagnostic.characters, diagnostic.size));
    return begins;
}

/// The error of a network that is cut already.
template <class Net>
[[nodiscard]] consteval CompileTimeMessage chosen_split_diagnostic() {
    if constexpr (may_be_cut<Net>) {
        return refuse_second_cut<Net, 1>("ChosenSplit").diagnostic;
    } else {
        return {};
    }
}

template <class Net>
struct ChosenCutOf {
    [[nodiscard, gnu::cold]] static ChosenCut make(const CutChoice& choice) {
        if (choice.parts == 1) {
            require(choice.timetable == nullptr,
                    "the option `cut` has 1 part and a timetable, which is for a network in parts");
            return {};
        }
        ChosenCut chosen{.begins = chosen_begins(Net::layers, Net::fusion, choice.parts)};
        const std::size_t parts = chosen.begins.size();
        chosen.info =
            choice.timetable == nullptr ? by_timetable<OneForwardOneBackward>(parts) : choice.timetable(parts);
        chosen.info = cut_of_network<Net>(chosen.info, chosen.begins.span());
        return chosen;
    }
};

}  // namespace impl

/// See the head of this file.
template <Network Net>
struct ChosenSplit : Net {
private:
    static constexpr CompileTimeMessage diagnostic = impl::chosen_split_diagnostic<Net>();
    static_assert(!Net::valid || static_assert_message<diagnostic>());

public:
    static constexpr bool valid = Net::valid && diagnostic.empty();
    static constexpr bool cut_is_chosen = true;
};

}}  // namespace cupola::CUPOLA_ABI
