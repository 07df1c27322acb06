// SPDX-License-Identifier: Apache-2.0
//
// The averaging policies of one process that the command line can name, as one type: a training is instantiated once
// and not once per policy.
#pragma once

#include <string>

#include <cupola/cupola.hpp>
#include <cupola/parallel/kinds/elastic_averaging.hpp>
#include <cupola/parallel/kinds/one_of.hpp>
#include <cupola/parallel/kinds/periodic.hpp>

#include "options.hpp"

namespace cifar10 {

using NamedAveraging = OneOf<ConcatMean, Periodic<ConcatMean>, Periodic<ConcatMean, Sgd>, ElasticAveraging<ConcatMean>>;

/// Throws InvalidArgument for an unknown name.
inline NamedAveraging averaging_of(const TrainOptions& options) {
    const std::string& name = options.averaging;
    if (name == "local-sgd") return Periodic<ConcatMean>{.every = options.period, .from_step = options.from_step};
    if (name == "diloco") {
        const double momentum = options.outer_momentum;
        return Periodic<ConcatMean, Sgd>{
            .every = options.period,
            .from_step = options.from_step,
            .outer = {.learning_rate = options.outer_rate, .momentum = momentum, .nesterov = momentum != 0}};
    }
    if (name == "elastic") {
        ElasticAveraging<ConcatMean> elastic{.every = options.period};
        if (options.moving_rate) elastic.rate = *options.moving_rate;
        return elastic;
    }
    require(name == "concat-mean", "there is no --averaging ", name, " of one process");
    return ConcatMean{};
}

}  // namespace cifar10
