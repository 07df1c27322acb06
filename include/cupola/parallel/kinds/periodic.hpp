// SPDX-License-Identifier: Apache-2.0
//
// Periodic<Averaging>: local SGD. Each replica has parameters of its own and is updated with its own gradient; every
// `every` steps the centre becomes the mean of the replicas, by their samples since the last agreement, and all
// continue from it. Between agreements no gradients are exchanged.
//
//   DataParallel<Net, Loss, Sgd, Periodic<ConcatMean>, Host> training(
//       {.replicas = 4, .averaging = {.every = 16, .from_step = 1000}});
//
// Periodic<Averaging, Outer>: DiLoCo. The centre takes a step of the optimiser `Outer` instead, whose gradient is the
// centre minus the mean of the replicas; its learning rate is that of the number of the agreement. It sees no
// regularisers and no factors of parameter groups, which the replicas' updates had.
//
//   Periodic<ConcatMean, Sgd>{.every = 64, .outer = {.learning_rate = 0.7, .momentum = 0.9, .nesterov = true}}
//
// Streaming (Streaming DiLoCo; Douillard et al. 2025): with `fragments`, the parameters are in so many contiguous
// parts, each of which agrees once in a period, at steps of their own, so that a link carries a part at a time. With
// `delay`, the mean moves the centre so many steps later, and training goes on meanwhile: by MpiAllReduce the exchange
// costs no time if it takes no longer. The steps are fixed, so the bits do not depend on the network. A replica's
// progress in between is dropped, or kept to the part `mix`:
//
//   Periodic<MpiAllReduce, Sgd>{.every = 64, .fragments = 4, .delay = 4, .mix = 0.5, .outer = ...}
//
// The centre is the model: evaluation, predict(), parameters(), the moving averages and the plain names of a checkpoint
// are those of the centre. Running statistics of batch normalisation are those of the replicas and do not fit it
// exactly. The optimiser's state of each replica stays its own. The rule: parallel/kinds/centre_rule.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/kinds/centre_agreement.hpp>
#include <cupola/parallel/kinds/centre_rule.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The centre becomes the mean of the replicas.
struct NoOuter {};

template <class A, class Outer = NoOuter>
struct Periodic {
    static constexpr std::string_view name = "Periodic";
    using Averaging = A;

    /// Steps between two agreements, 1 or more; the replicas agree after the update of step every - 1, 2 * every - 1
    /// and so on.
    std::int64_t every = 16;
    /// Before this step the gradients are averaged in each step, as by `Averaging` alone.
    std::int64_t from_step = 0;
    /// Fragment f agrees f * every / fragments steps after fragment 0: 1 to every, and at most the elements.
    std::int64_t fragments = 1;
    /// Steps from the differences of a fragment to its move of the centre, 0 or more and below every / fragments.
    std::int64_t delay = 0;
    /// How much of its own parameters a replica keeps when its fragment moves, 0 to 1.
    double mix = 0;
    A averaging{};
    [[no_unique_address]] Outer outer{};

    [[nodiscard]] CentreRule rule(int /*replicas*/) const {
        const CentreRule rule{
            .every = every, .from_step = from_step, .fragments = fragments, .delay = delay, .mix = mix};
        rule.check(name);
        return rule;
    }
    /// "Periodic every 16 steps around ConcatMean"
    [[nodiscard]] std::string description() const {
        std::string result = text(name, " every ", every, every == 1 ? " step" : " steps");
        if (from_step > 0) result += text(" from step ", from_step, " on");
        result += fragments_description_of({.fragments = fragments, .delay = delay, .mix = mix});
        result += text(fragments > 1 || delay > 0 || mix > 0 ? ", around " : " around ", A::name);
        if constexpr (requires { outer.description(); }) {
            result +=
                text(", the centre by ", outer.description(), ", learning rate ", learning_rate_description_of(outer));
        }
        return result;
    }
};

}}  // namespace cupola::CUPOLA_ABI
