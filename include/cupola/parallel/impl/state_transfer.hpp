// SPDX-License-Identifier: Apache-2.0
//
// StateTransfer: a training's state between two steps, copied to the host and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/net/non_finite.hpp>
#include <cupola/parallel/impl/replica_set.hpp>
#include <cupola/parallel/non_finite_state.hpp>
#include <cupola/parallel/training_state.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class D, class T>
class StateTransfer {
    using State = DeviceState<D, T>;

public:
    /// `names` are those of the optimizer's state arenas. With parameters of their own, replicas are kept one after
    /// another.
    StateTransfer(ReplicaSet<D, T>& set, std::vector<std::string> names, bool averages, bool own_parameters)
        : set_(set), names_(std::move(names)), averages_(averages), own_(own_parameters) {}

    /// What the arenas hold at `step`, with these running statistics.
    [[nodiscard]] TrainingState copy(std::int64_t step, const std::vector<float>& running) {
        TrainingState state{.step = step};
        const auto gather = [&](auto&& place) {
            std::vector<float> values;
            for (int r = 0; r < (own_ ? set_.replicas() : 1); ++r) {
                const int copy = set_.copy_of(r);
                const std::vector<float> one = set_.copied(set_.network().parameter_elements, set_.device_of(r),
                                                           [&](State& device) { return place(device, copy); });
                values.insert(values.end(), one.begin(), one.end());
            }
            return values;
        };
        state.parameters = gather([](State& device, int copy) { return device.worker.parameters(copy); });
        if (averages_) state.averages = gather([](State& device, int copy) { return device.worker.averages(copy); });
        for (std::size_t arena = 0; arena < names_.size(); ++arena) {
            state.optimizer.push_back({names_[arena], gather([&](State& device, int copy) {
                                           return device.worker.state(copy) + arena * set_.elements();
                                       })});
        }
        state.buffers = running;
        state.tensors = state_tensors(set_.network().layers);
        return state;
    }

    /// Throws InvalidArgument if a state is not one of this network, optimizer and moving average.
    void require_fitting(const TrainingState& state) const {
        require(state.step >= 0, "a training stands at step 0 or later, not ", state.step);
        if (!state.tensors.empty()) require_tensors_of(set_.network().layers, state.tensors);
        const std::int64_t wanted = set_.network().parameter_elements * (own_ ? set_.replicas() : 1);
        require_elements("parameter arena", state.parameters.size(), wanted);
        require(state.averages.empty() != averages_,
                averages_ ? "this training keeps moving averages, and the state has none"
                          : "this training keeps no moving averages, and the state has them");
        if (averages_) require_elements("moving average", state.averages.size(), wanted);
        require_elements("buffer arena", state.buffers.size(), set_.network().buffer_elements);
        for (const OptimizerState& kept : state.optimizer)
            require_elements("optimiser's state arena", kept.values.size(), wanted);
    }

    /// Throws InvalidArgument for the first part of a fitting state that is not finite, or a running variance below 0.
    void require_finite(const TrainingState& state) const {
        const std::size_t count = own_ ? static_cast<std::size_t>(set_.replicas()) : 1;
        const auto part = [&](const std::vector<float>& values, std::size_t r) {
            if (values.empty()) return std::vector<float>();
            const auto first = values.begin() + static_cast<std::ptrdiff_t>(r * set_.elements());
            return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(set_.elements()));
        };
        for (std::size_t r = 0; r < count; ++r) {
            TrainingState one{.parameters = part(state.parameters, r), .averages = part(state.averages, r)};
            for (const OptimizerState& kept : state.optimizer)
                one.optimizer.push_back({kept.name, part(kept.values, r)});
            one.buffers = state.buffers;
            const std::string found = non_finite_part(set_.network().layers, one);
            require(found.empty(), "a training goes on from finite numbers, and the state's ", found);
        }
    }

    /// Gives every device a state that fits.
    void restore(const TrainingState& state) {
        set_.threads().run([&](int device) {
            auto& worker = set_.at(device).worker;
            for (int r = set_.first_replica(device); r < set_.first_replica(device + 1); ++r) {
                const int copy = set_.copy_of(r);
                const auto part = [&](const std::vector<float>& values) {
                    return std::span(values).subspan(own_ ? static_cast<std::size_t>(r) * set_.elements() : 0,
                                                     set_.elements());
                };
                worker.set(worker.parameters(copy), part(state.parameters));
                if (averages_) worker.set(worker.averages(copy), part(state.averages));
                float* arena = worker.state(copy);
                for (const OptimizerState& kept : state.optimizer) {
                    worker.set(arena, part(kept.values));
                    arena += set_.network().parameter_elements;
                }
                if (!own_) break;
            }
            worker.set(worker.buffers(), state.buffers);
        });
    }

    /// Gives every replica these parameters.
    void set_parameters(std::span<const float> values) {
        require_elements("parameter arena", values.size(), set_.network().parameter_elements);
        const std::string found = non_finite_parameter(set_.network().layers, values);
        require(found.empty(), "parameters are finite, and ", found);
        set_.threads().run([&](int device) {
            auto& worker = set_.at(device).worker;
            for (int copy = 0; copy < set_.copies(device); ++copy) worker.set(worker.parameters(copy), values);
        });
    }

private:
    ReplicaSet<D, T>& set_;
    std::vector<std::string> names_;
    bool averages_, own_;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
