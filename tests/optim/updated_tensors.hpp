// SPDX-License-Identifier: Apache-2.0
//
// Tensors that an optimiser updates on a device, step by step.
#pragma once

#include "../test.hpp"

#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/update_parameters.hpp>

#include "../devices.hpp"
#include "../ops/operation_run.hpp"

/// An arena of parameters on `D`, of which `segments` are updated, and what it and the optimiser's state hold afterwards.
template <class D, class Optimizer>
class UpdatedTensors {
public:
    UpdatedTensors(const Optimizer& optimizer, const std::vector<float>& initial, std::vector<cupola::Segment> segments)
        : optimizer_(optimizer),
          segments_(std::move(segments)),
          elements_(static_cast<std::int64_t>(initial.size())),
          context_(0, device_options<D>(1)),
          w_(context_, initial),
          state_(context_, start_of(optimizer, initial.size())) {}
    /// One tensor.
    UpdatedTensors(const Optimizer& optimizer, const std::vector<float>& initial)
        : UpdatedTensors(optimizer, initial, {{0, static_cast<std::int64_t>(initial.size())}}) {}

    void step(std::int64_t step, const std::vector<float>& gradient) {
        [[maybe_unused]] const auto team = context_.team();
        operation_run::Guarded<D> on_device(context_, gradient);
        cupola::update_parameters(optimizer_, cupola::Update<D>{.context = context_,
                                                                .parameters = w_.data(),
                                                                .gradient = on_device.data(),
                                                                .state = state_.data(),
                                                                .elements = elements_,
                                                                .segments = segments_,
                                                                .step = step});
        w = w_.read();
        state = state_.read();
    }

    std::vector<float> w, state;

private:
    static std::vector<float> start_of(const Optimizer& optimizer, std::size_t elements) {
        std::vector<float> result;
        for (int arena = 0; arena < optimizer.state_arenas(); ++arena)
            result.resize(result.size() + elements, cupola::state_start_of(optimizer, arena));
        return result;
    }

    Optimizer optimizer_;
    std::vector<cupola::Segment> segments_;
    std::int64_t elements_;
    typename D::Context context_;
    operation_run::Guarded<D> w_, state_;
};
