// SPDX-License-Identifier: Apache-2.0
//
// Checks a training's options before they are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/error.hpp>
#include <cupola/net/table.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/impl/device_worker.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Returns `o`; throws InvalidArgument if an option is invalid.
template <class Options>
[[gnu::cold]] const Options& checked_options(const Options& o, std::span<const LayerInfo> layers) {
    constexpr int limit = 1 << 20;
    require(o.replicas >= 1 && o.replicas <= limit, "a training has 1 to ", limit, " replicas, not ", o.replicas);
    require(o.devices >= 1 && o.devices <= o.replicas, "a training of ", o.replicas, " replicas has 1 to ", o.replicas,
            " devices, not ", o.devices);
    require(o.batch_size >= 1, "a batch has at least 1 sample, not ", o.batch_size);
    for (const std::int64_t size : o.other_batch_sizes) {
        require(size >= 1 && size <= o.batch_size, "the other batch sizes are 1 to batch_size, ", o.batch_size,
                ", not ", size);
    }
    require(o.evaluation_batch_size >= 0, "evaluation_batch_size is 0 (that of training) or more, not ",
            o.evaluation_batch_size);
    require(o.gradient_accumulation_steps >= 1 && o.gradient_accumulation_steps <= limit, "a step adds up 1 to ", limit,
            " batches of a replica, not ", o.gradient_accumulation_steps);
    require(o.check_every >= 0, "parameters are compared every 0 (never) or more steps, not ", o.check_every);
    o.moving_average.check();
    check_optimizer(o.optimizer);
    for (const NamedInitializer& named : o.initializers) {
        bool found = false;
        for (std::size_t layer = 0; layer < layers.size(); ++layer) {
            for (std::size_t p = 0; p < layers[layer].parameters.count; ++p) {
                found = found || parameter_name(layers, layer, p) == named.parameter;
            }
        }
        require(found, "an initialiser is given for ", named.parameter, ", which the network does not have");
    }
    return o;
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
