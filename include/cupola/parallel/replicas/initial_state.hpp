// SPDX-License-Identifier: Apache-2.0
//
// The state of a training before its first step: the parameters as they are drawn or given, and the optimiser's state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/layers/initializer.hpp>
#include <cupola/net/finite.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/training_options.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A parameter arena's initial values.
[[nodiscard, gnu::cold]] inline std::vector<float> initial_parameters(std::span<const LayerInfo> layers,
                                                                      std::uint64_t seed,
                                                                      std::span<const NamedInitializer> named) {
    std::vector<float> values(static_cast<std::size_t>(arena_elements(layers)));
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        for (std::size_t p = 0; p < layers[i].parameters.count; ++p) {
            const Parameter& parameter = layers[i].parameters.list[p];
            Initializer initializer = parameter.initializer;
            for (const NamedInitializer& other : named) {
                if (other.parameter == parameter_name(layers, i, p)) initializer = other.initializer;
            }
            initialize({values.data() + layers[i].offsets[p], static_cast<std::size_t>(parameter.shape.size())},
                       initializer, parameter.fan_in, parameter.fan_out, seed, number++);
        }
    }
    return values;
}

/// Throws InvalidArgument unless a part of a training's state has as many elements as the network's.
[[gnu::cold]] inline void require_elements(const char* what, std::size_t given, std::int64_t wanted) {
    require(given == static_cast<std::size_t>(wanted), "this network's ", what, " has ", wanted, " elements, not ",
            given);
}

/// Throws InvalidArgument if a value that is not finite was found in a part of a state.
[[gnu::cold]] inline void require_none(std::string_view part, const std::string& non_finite) {
    require(non_finite.empty(), "a state must be finite, but its ", part, non_finite);
}

/// Sets the state before the first step on every device and returns its running statistics. The parameters are drawn
/// with `seed`; `state_start(i)` is the initial value of the optimiser's state arena i, of `state_arenas`, and
/// `state_name(i)` its name for errors.
template <class D, class T>
[[nodiscard, gnu::cold]] std::vector<float> start_replicas(Replicas<D, T>& replicas, std::uint64_t seed,
                                                           std::span<const NamedInitializer> initializers,
                                                           int state_arenas, FunctionRef<float(int)> state_start,
                                                           FunctionRef<std::string_view(int)> state_name) {
    const std::span<const LayerInfo> layers = replicas.network().layers;
    const ReplicaSettings& settings = replicas.settings();
    const std::vector<float> parameters = initial_parameters(layers, seed, initializers);
    const std::span<const float> trained = std::span(parameters).first(replicas.elements());
    std::vector<float> running = initial_buffers(layers);
    require_none("parameter ", non_finite_parameter(layers, parameters));
    require_none("running statistic ", invalid_buffer(layers, running));
    // Each replica with its own parameters begins with the same.
    replicas.threads().run([&](int device) {
        auto& worker = replicas.at(device).worker;
        for (int copy = 0; copy < replicas.placement().copies(device); ++copy) {
            worker.set(worker.parameters(copy), parameters);
            if (settings.moving_average && !settings.centre) worker.set(worker.averages(copy), trained);
        }
        if (settings.centre) {
            worker.set(worker.centre(), parameters);
            if (settings.moving_average) worker.set(worker.averages(), trained);
        }
        worker.set(worker.buffers(), running);
    });
    for (int arena = 0; arena < state_arenas; ++arena) {
        const std::vector<float> values(trained.size(), state_start(arena));
        require_none(text(state_name(arena), " of "), non_finite_parameter(layers, values));
        replicas.threads().run([&](int device) {
            auto& worker = replicas.at(device).worker;
            for (int copy = 0; copy < replicas.placement().copies(device); ++copy)
                worker.set(worker.state(copy) + static_cast<std::size_t>(arena) * replicas.elements(), values);
        });
    }
    for (int arena = 0; settings.updates_centre && arena < settings.centre_states; ++arena) {
        const std::vector<float> values(trained.size(), state_start(arena));
        replicas.threads().run([&](int device) {
            auto& worker = replicas.at(device).worker;
            worker.set(worker.centre_state() + static_cast<std::size_t>(arena) * replicas.elements(), values);
        });
    }
    return running;
}

/// Copies these parameters to every replica. Throws InvalidArgument for another number of them, and for one that is not
/// finite.
template <class D, class T>
void set_parameters(Replicas<D, T>& replicas, std::span<const float> values) {
    require_elements("parameter arena", values.size(), replicas.network().parameter_elements);
    const std::string found = non_finite_parameter(replicas.network().layers, values);
    require(found.empty(), "parameters must be finite, but ", found);
    replicas.threads().run([&](int device) {
        auto& worker = replicas.at(device).worker;
        for (int copy = 0; copy < replicas.placement().copies(device); ++copy)
            worker.set(worker.parameters(copy), values);
        if (replicas.settings().centre) worker.set(worker.centre(), values);
    });
}

}}}  // namespace cupola::CUPOLA_ABI::impl
