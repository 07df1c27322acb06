// SPDX-License-Identifier: Apache-2.0
//
// CentreRule: when replicas with parameters x of their own agree on their common centre c, and by how much the mean of
// the differences x - c moves it. Periodic and ElasticAveraging have one each; a policy of your own makes one in
// `rule(replicas)` (concept AgreesOnCentre in parallel/agreement.hpp):
//
//   after the update     d = x - c for each replica, c = c + factor * mean(d), x = c
//   in the update        d = x - c and x = x - moving_rate * d - the optimiser's step, then c = c + factor * mean(d)
//
// mean(d) is by the samples since the last agreement; in the update each replica counts the same.
//
// The arena may be divided into F contiguous fragments, which agree after the update, one after another in a period:
// the mean of fragment f is that of the differences f * every / F steps later than that of fragment 0. It moves the
// centre `delay` steps later, with x = mix * x + (1 - mix) * c then, so that training goes on while the mean is
// computed, and its bits do not depend on how long that takes (Streaming DiLoCo; Douillard et al. 2025).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct CentreRule {
    /// Steps between two agreements. They are numbers of steps, also of those that are skipped.
    std::int64_t every = 1;
    /// In earlier steps the gradients are averaged, and all replicas have the parameters of the centre.
    std::int64_t from_step = 0;
    /// By how much the mean moves the centre. Not used with an outer optimiser.
    double factor = 1;
    /// Whether the differences are those before the update of a step that `every` divides, which pulls each replica to
    /// the centre by `moving_rate`; otherwise they are those after the update of the last of `every` steps.
    bool in_update = false;
    double moving_rate = 0;
    /// The fragments, each of which agrees once in `every` steps; the steps from its differences to the centre that has
    /// moved; and what a replica keeps of its own parameters then.
    std::int64_t fragments = 1, delay = 0;
    double mix = 0;

    [[nodiscard]] bool averages_gradients(std::int64_t step) const { return step < from_step; }
    [[nodiscard]] bool agrees_in(std::int64_t step) const {
        if (averages_gradients(step)) return false;
        return (in_update ? step : step + 1) % every == 0;
    }
    /// Steps from the first fragment's agreement to that of a fragment.
    [[nodiscard]] std::int64_t offset_of(std::int64_t fragment) const { return fragment * every / fragments; }
    /// The fragment whose differences are those after a step, and the one whose mean moves the centre then; -1 if
    /// there is none. In a rule in the update the only one.
    [[nodiscard]] std::int64_t begins_in(std::int64_t step) const {
        if (fragments == 1) return agrees_in(step) ? 0 : -1;
        if (averages_gradients(step)) return -1;
        const std::int64_t place = (step + 1) % every, fragment = (place * fragments + every - 1) / every;
        return fragment < fragments && offset_of(fragment) == place ? fragment : -1;
    }
    [[nodiscard]] std::int64_t moves_in(std::int64_t step) const { return step < delay ? -1 : begins_in(step - delay); }
    /// The number of the agreement, from 0 on, in which a fragment moves the centre after a step.
    [[nodiscard]] std::int64_t agreement_of(std::int64_t step, std::int64_t fragment) const {
        if (in_update) return step / every;
        // Those before from_step are not counted.
        const std::int64_t skipped = from_step + 1 - offset_of(fragment);
        return (step - delay + 1 - offset_of(fragment)) / every - (skipped > 0 ? (skipped + every - 1) / every : 0);
    }

    /// Throws InvalidArgument for numbers below their least; `policy` names the policy.
    void check(std::string_view policy) const {
        require(every >= 1, policy, " must agree every 1 or more steps, not every ", every);
        require(from_step >= 0, policy, " must have its first own step at 0 or later, not at ", from_step);
        require(fragments >= 1 && fragments <= every, policy, " that agrees every ", every,
                every == 1 ? " step" : " steps", " must have 1 to ", every, " fragments, not ", fragments);
        require(delay >= 0 && delay < every / fragments, policy, " with ", fragments,
                fragments == 1 ? " fragment" : " fragments", " every ", every, every == 1 ? " step" : " steps",
                " must move the centre 0 to ", every / fragments - 1,
                " steps later, before the next fragment begins, not ", delay);
        require(mix >= 0 && mix <= 1, policy, " must mix in 0 to 1 of a replica's own parameters, not ", mix);
        require(!in_update || (fragments == 1 && delay == 0), policy,
                " has a rule with in_update, which has one fragment and no delay");
    }
};

/// ", in 4 fragments, 2 steps later, mix 0.5"; empty for the rule of one fragment without delay.
[[nodiscard, gnu::cold]] inline std::string fragments_description_of(const CentreRule& rule) {
    std::string result;
    if (rule.fragments > 1) result += text(", in ", rule.fragments, " fragments");
    if (rule.delay > 0) result += text(", ", rule.delay, rule.delay == 1 ? " step" : " steps", " later");
    if (rule.mix > 0) result += text(", mix ", rule.mix);
    return result;
}

/// "every 16 steps from step 0 on, factor 1", for comparisons between processes.
[[nodiscard, gnu::cold]] inline std::string description_of(const CentreRule& rule) {
    std::string result = text("every ", rule.every, " steps from step ", rule.from_step, " on, factor ", rule.factor);
    if (rule.in_update) result += text(", moving rate ", rule.moving_rate);
    result += fragments_description_of(rule);
    return result;
}

}}  // namespace cupola::CUPOLA_ABI
