// SPDX-License-Identifier: Apache-2.0
//
// The averaging policies that the command line can name, as one type for each that moves values between the replicas:
// a training is instantiated once for it, and not once per policy.
#pragma once

#include <string>

#include <cupola/cupola.hpp>
#include <cupola/parallel/kinds/elastic_averaging.hpp>
#include <cupola/parallel/kinds/one_of.hpp>
#include <cupola/parallel/kinds/periodic.hpp>

#include "options.hpp"

namespace cifar10 {

template <class Carrier>
using NamedAveraging = OneOf<Carrier, Periodic<Carrier>, Periodic<Carrier, Sgd>, ElasticAveraging<Carrier>>;

/// The policy of --averaging, around `carrier`; `carrier` itself unless replicas have parameters of their own.
template <class Carrier>
NamedAveraging<Carrier> averaging_of(const TrainOptions& options, const Carrier& carrier) {
    if (!options.own_parameters()) return carrier;
    const std::string& name = options.averaging;
    if (name == "local-sgd")
        return Periodic<Carrier>{.every = options.period, .from_step = options.from_step, .averaging = carrier};
    if (name == "diloco") {
        const double momentum = options.outer_momentum;
        return Periodic<Carrier, Sgd>{
            .every = options.period,
            .from_step = options.from_step,
            .averaging = carrier,
            .outer = {.learning_rate = options.outer_rate, .momentum = momentum, .nesterov = momentum != 0}};
    }
    ElasticAveraging<Carrier> elastic{.every = options.period, .averaging = carrier};
    if (options.moving_rate) elastic.rate = *options.moving_rate;
    return elastic;
}

}  // namespace cifar10
