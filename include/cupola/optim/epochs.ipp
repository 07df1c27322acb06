// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/optim/epochs.hpp.
#pragma once

#include <cupola/optim/epochs.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

CUPOLA_DECL Schedule epochs_decay(double rate, std::int64_t images, std::int64_t global_batch, double epochs,
                                  double factor) {
    const Schedule decay = exponential_decay(rate, steps_in_epochs(epochs, images, global_batch), factor);
    return decay.described(text(decay.description(), ": ", exact_text(epochs), " epochs of ", images, " images seen, ",
                                global_batch, " per step"));
}

CUPOLA_DECL Schedule historic_epochs_decay(double rate, std::int64_t images, std::int64_t batch, int replicas,
                                           double epochs, double factor) {
    require(replicas > 0, "a schedule must be for 1 or more replicas, not ", replicas);
    const Schedule decay = exponential_decay(rate, steps_in_epochs(epochs, images, batch), factor);
    return decay.described(text(decay.description(), ": ", exact_text(epochs), " epochs by one replica's batch of ",
                                batch, ", which is ", epochs * replicas, " epochs of ", images, " images seen by ",
                                replicas, replicas == 1 ? " replica" : " replicas"));
}

CUPOLA_DECL Schedule piecewise_epochs(std::int64_t images, std::int64_t global_batch,
                                      const std::vector<std::int64_t>& boundaries, std::vector<double> values) {
    require(global_batch > 0 && images >= global_batch, "an epoch of ", images, " images in batches of ", global_batch,
            " has no steps");
    const std::int64_t steps = images / global_batch;
    std::vector<std::int64_t> edges;
    edges.reserve(boundaries.size());
    for (const std::int64_t epoch : boundaries) {
        require(epoch <= std::numeric_limits<std::int64_t>::max() / steps, "a schedule cannot change at epoch ", epoch,
                ", of ", steps, " steps each: that step has no place in 64 bits");
        edges.push_back(epoch * steps);
    }
    const Schedule schedule = piecewise(std::move(edges), std::move(values));
    return schedule.described(text(schedule.description(), ": epochs of ", steps, " steps, ", images, " images, ",
                                   global_batch, " per step"));
}

CUPOLA_DECL std::int64_t steps_in_epochs(double epochs, std::int64_t images, std::int64_t batch) {
    require(images > 0 && batch > 0, "an epoch of ", images, " images in batches of ", batch, " has no steps");
    double steps = epochs * static_cast<double>(images) / static_cast<double>(batch);
    // The number of epochs, the product and the quotient are each rounded by at most half an ulp.
    constexpr double rounding = 1.5 * std::numeric_limits<double>::epsilon();
    const double nearest = std::round(steps);
    if (nearest > steps && nearest - steps <= rounding * nearest) steps = nearest;
    require(impl::is_finite(steps) && steps >= 1 && steps < 9e15, epochs, " epochs of ", images,
            " images in batches of ", batch, " are ", steps, " steps, and a schedule needs 1 or more");
    return static_cast<std::int64_t>(steps);
}

CUPOLA_DECL Schedule resnet_epochs(double rate, std::int64_t global_batch, std::int64_t images) {
    // Divided, because 0.1 / 10 is 0.01 and 0.1 * 0.1 is not: the description shows every digit.
    return piecewise_epochs(images, global_batch, {82, 123, 300}, {rate, rate / 10, rate / 100, rate / 500});
}

}}  // namespace cupola::CUPOLA_ABI
