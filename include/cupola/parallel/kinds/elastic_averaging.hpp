// SPDX-License-Identifier: Apache-2.0
//
// ElasticAveraging<Averaging>: synchronous elastic averaging (EASGD; Zhang, Choromanska, LeCun 2015). Each replica has
// parameters x of its own and is updated with its own gradient. In each step t that `every` divides, for p replicas:
//
//   d_r = x_r - c,    x_r = x_r - alpha * d_r - the optimiser's step,    c = c + alpha * sum of d_r
//
// all with the values before the step. With NesterovVelocity it is EAMSGD, whose d_r is that of the position without
// the look-ahead. Every optimiser with a formula of one element takes the force.
//
//   DataParallel<Net, Loss, NesterovVelocity, ElasticAveraging<ConcatMean>, Host> training(
//       {.replicas = 4, .averaging = {.every = 16, .rate = MovingRate::paper(0.9)}});
//
// The centre c is the model: see parallel/kinds/periodic.hpp. In the mean each replica counts the same, however many
// samples it has, so that the force on the centre is that on the replicas.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/parallel/kinds/centre_agreement.hpp>
#include <cupola/parallel/kinds/centre_rule.hpp>
#include <cupola/parallel/kinds/moving_rate.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class A>
struct ElasticAveraging {
    static constexpr std::string_view name = "ElasticAveraging";
    static constexpr bool has_force = true;
    using Averaging = A;

    /// Steps between two exchanges, 1 or more; the first is that of step 0.
    std::int64_t every = 16;
    /// alpha, as a number or by a convention.
    MovingRate rate = MovingRate::paper(0.9);
    A averaging{};

    [[nodiscard]] CentreRule rule(int replicas) const {
        rate.check();
        const CentreRule counted{.every = every};
        counted.check(name);
        const double alpha = rate.of(replicas, every);
        return {.every = every, .factor = replicas * alpha, .in_update = true, .moving_rate = alpha};
    }
    /// "ElasticAveraging every 16 steps, moving rate 0.9 / replicas, around ConcatMean"
    [[nodiscard]] std::string description() const {
        return text(name, " every ", every, every == 1 ? " step, " : " steps, ", rate.description(), ", around ",
                    A::name);
    }
    /// A line for the header of a run whose moving rate is not stable; otherwise empty.
    [[nodiscard]] std::string warning(int replicas) const {
        return synchronous_moving_rate_warning(rate, replicas, every);
    }
};

}}  // namespace cupola::CUPOLA_ABI
