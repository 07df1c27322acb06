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

    [[nodiscard]] bool averages_gradients(std::int64_t step) const { return step < from_step; }
    [[nodiscard]] bool agrees_in(std::int64_t step) const {
        if (averages_gradients(step)) return false;
        return (in_update ? step : step + 1) % every == 0;
    }

    /// Throws InvalidArgument for numbers below their least; `policy` names the policy.
    void check(std::string_view policy) const {
        require(every >= 1, policy, " must agree every 1 or more steps, not every ", every);
        require(from_step >= 0, policy, " must have its first own step at 0 or later, not at ", from_step);
    }
};

/// "every 16 steps from step 0 on, factor 1", for comparisons between processes.
[[nodiscard, gnu::cold]] inline std::string description_of(const CentreRule& rule) {
    std::string result = text("every ", rule.every, " steps from step ", rule.from_step, " on, factor ", rule.factor);
    if (rule.in_update) result += text(", moving rate ", rule.moving_rate);
    return result;
}

}}  // namespace cupola::CUPOLA_ABI
