// SPDX-License-Identifier: Apache-2.0
//
// Everything that can be read of a training after a few steps, to compare a network in parts with the whole network on
// any device.
#pragma once

#include "../../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/pipeline.hpp>
#include <cupola/parallel/state_transfer.hpp>

namespace cupola {

struct Sizes {
    int replicas = 2, accumulation = 2;
    std::int64_t short_size = 3;
    CutChoice cut{};
};

/// Of a training with a clipped optimiser.
template <class T>
typename T::Options options_for(int devices, const Sizes& shape = {}) {
    typename T::Options options{.replicas = shape.replicas,
                                .devices = devices,
                                .batch_size = 4,
                                .other_batch_sizes = {3},
                                .gradient_accumulation_steps = shape.accumulation,
                                .seed = 5,
                                .moving_average = {.decay = 0.9},
                                .cut = shape.cut};
    auto& clipped = options.optimizer;
    clipped.max_norm = 1;
    clipped.optimizer.learning_rate = 0.05;
    if constexpr (requires { clipped.optimizer.momentum; }) clipped.optimizer.momentum = 0.9;
    if constexpr (requires { options.averaging.every; }) options.averaging.every = 2;
    if constexpr (requires { options.device.deterministic; }) {
        options.device.deterministic = true;
        options.device.plan_seconds = 0;
    }
    return options;
}

struct Ended {
    std::vector<std::vector<float>> values;
    std::vector<double> numbers;
    bool operator==(const Ended&) const = default;
};

template <class T>
void add_state(Ended& ended, T& training) {
    const TrainingState state = training.state();
    for (const auto* const each : {&state.parameters, &state.averages, &state.buffers}) ended.values.push_back(*each);
    for (const OptimizerState& each : state.optimizer) ended.values.push_back(each.values);
    for (const ReplicaState& each : state.replicas) ended.values.push_back(each.parameters);
}

/// The training takes its steps from `source`; `evaluated` are three batches, and `predicted` the inputs of a
/// prediction.
template <class T, class Source, class Evaluated>
Ended ended_after(T& training, int steps, Source& source, const Evaluated& evaluated,
                  std::span<const float> predicted) {
    Ended ended;
    for (int s = 0; s < steps; ++s) {
        const StepReport& report = training.step(source);
        ended.numbers.push_back(report.loss);
        for (const ReplicaReport& each : report.replicas) ended.numbers.push_back(each.total);
    }
    if constexpr (!AgreesOnCentre<decltype(training.options.averaging)>) {
        for (int r = 0; r < training.options.replicas; ++r) ended.values.push_back(training.gradient(r));
        ended.values.push_back(training.averaged_gradient());
    }
    add_state(ended, training);
    ended.values.push_back(training.parameters(training.options.devices - 1));
    for (const Weights weights : {Weights::trained, Weights::averages})
        ended.numbers.push_back(training.evaluate(evaluated, 3, weights).loss);
    ended.values.push_back(training.predict(predicted));
    CHECK(training.healthy());
    return ended;
}

}  // namespace cupola
