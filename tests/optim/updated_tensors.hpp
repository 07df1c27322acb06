// SPDX-License-Identifier: Apache-2.0
//
// Tensors that an optimiser updates on a device, step by step.
#pragma once

#include "../test.hpp"

#include <cupola/optim/elastic_update.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/update_parameters.hpp>

#include "../devices.hpp"
#include "../ops/operation_run.hpp"
#include "../reference/compare.hpp"

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
        cupola::update_parameters(optimizer_, update_of(step, on_device.data()));
        w = w_.read();
        state = state_.read();
    }
    /// With the force of elastic averaging. The differences take the place of the gradient or, `apart`, memory of their own.
    void step(std::int64_t step, const std::vector<float>& gradient, const std::vector<float>& centre,
              double moving_rate, bool apart = false) {
        [[maybe_unused]] const auto team = context_.team();
        operation_run::Guarded<D> on_device(context_, gradient), of_centre(context_, centre), own(context_, gradient);
        operation_run::Guarded<D>& to = apart ? own : on_device;
        cupola::update_parameters(optimizer_, update_of(step, on_device.data()),
                                  {.centre = of_centre.data(), .difference = to.data(), .moving_rate = moving_rate});
        w = w_.read();
        state = state_.read();
        difference = to.read();
        CHECK(of_centre.read() == centre);
        if (apart) CHECK(on_device.read() == gradient);
        CHECK((w_.guards_intact() && state_.guards_intact() && to.guards_intact()));
    }

    std::vector<float> w, state, difference;

private:
    cupola::Update<D> update_of(std::int64_t step, const float* gradient) {
        return {.context = context_,
                .parameters = w_.data(),
                .gradient = gradient,
                .state = state_.data(),
                .elements = elements_,
                .segments = segments_,
                .step = step};
    }
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

/// Twenty steps of `optimizer` on a tensor of `size` random elements are those of a reference in double. `make` returns it for the first
/// parameters; it has step(step, gradient), and then parameters() and one vector per state arena in `states`.
template <class D, class Optimizer, class Make>
void check_twenty_steps(const Optimizer& optimizer, std::int64_t size, Make&& make) {
    const std::vector<float> initial = reference::Random(1).normal(size);
    UpdatedTensors<D, Optimizer> tensor(optimizer, initial);
    auto expected = make(std::vector<double>(initial.begin(), initial.end()));
    for (std::int64_t step = 0; step < 20; ++step) {
        const std::vector<float> gradient = reference::Random(static_cast<std::uint64_t>(10 + step)).normal(size);
        tensor.step(step, gradient);
        expected.step(step, gradient);
        CHECK(reference::distance(tensor.w, expected.parameters()) < 1e-5);
    }
    for (std::size_t arena = 0; arena < static_cast<std::size_t>(optimizer.state_arenas()); ++arena) {
        const std::span<const float> state(tensor.state);
        CHECK(reference::distance(state.subspan(arena * initial.size(), initial.size()), expected.states[arena]) <
              1e-5);
    }
}
