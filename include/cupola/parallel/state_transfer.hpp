// SPDX-License-Identifier: Apache-2.0
//
// The implementation of state() and restore() of a training: its state between two steps is copied to the host and
// back. A program that calls one of them includes this header.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/core/process_number.hpp>
#include <cupola/core/span_of.hpp>
#include <cupola/net/finite.hpp>
#include <cupola/parallel/impl/training_parts.hpp>
#include <cupola/parallel/replicas/initial_state.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/training_state.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
class StateTransfer {
    using State = DeviceState<D, T>;

public:
    /// `state_name(i)` is the name of the optimizer's state arena i, of `state_arenas`; `centre_state_name(i)` that of
    /// the optimiser that moves the centre, and `rule` that of the rule by which it is agreed on.
    [[gnu::cold]] StateTransfer(Replicas<D, T>& replicas, int state_arenas,
                                FunctionRef<std::string_view(int)> state_name,
                                FunctionRef<std::string_view(int)> centre_state_name, std::string rule);

    /// The contents of the arenas at `step`, with these running statistics, this state of the loss scale, and these
    /// samples of this process's replicas. Replicas of `peers` with parameters of their own are gathered.
    [[nodiscard, gnu::cold]] TrainingState copy(std::int64_t step, std::span<const float> running,
                                                const LossScaleState& loss_scale,
                                                std::span<const std::int64_t> samples_since, Peers& peers);

    /// The state of the loss scale with which a fitting state is continued: its own if the scale is dynamic, and
    /// otherwise the constant scale with the number of steps that were skipped.
    [[nodiscard]] LossScaleState loss_scale_of(const TrainingState& state) const;

    /// Throws InvalidArgument unless a state is of this network, optimizer and moving average, and of as many
    /// replicas with their own parameters.
    [[gnu::cold]] void require_fitting(const TrainingState& state) const;

    /// Throws InvalidArgument for the first part of a fitting state that is not finite or is a running variance below
    /// 0.
    void require_finite(const TrainingState& state) const;

    /// Makes both checks, and those of `further`. An InvalidArgument about a state that was read from a file becomes a
    /// DataError that names the file.
    void require_resumable(const TrainingState& state, FunctionRef<void()> further) const {
        check_for_resuming(state, [&] {
            require_fitting(state);
            require_finite(state);
            further();
        });
    }

    /// Copies a fitting state to every device.
    [[gnu::cold]] void restore(const TrainingState& state);

private:
    /// Whether each copy of the parameters has moving averages; with a centre, only the centre has.
    [[nodiscard]] bool averages_of_copies() const { return averages_ && !replicas_.settings().centre; }

    /// `to` is a TrainingState or a ReplicaState.
    template <class Part>
    [[gnu::cold]] void copy_replica(int replica, Part& to) {
        const int copy = replicas_.placement().copy_of(replica);
        const auto copied = [&](std::int64_t elements, auto&& place) {
            return replicas_.copied(elements, replicas_.placement().device_of(replica),
                                    [&](State& device) { return place(device.worker); });
        };
        const auto arena = [&](auto&& place) { return copied(replicas_.network().trained_elements, place); };
        to.parameters =
            copied(replicas_.network().parameter_elements, [&](auto& worker) { return worker.parameters(copy); });
        if (averages_of_copies()) to.averages = arena([&](auto& worker) { return worker.averages(copy); });
        for (std::size_t i = 0; i < names_.size(); ++i) {
            to.optimizer.push_back(
                {names_[i], arena([&](auto& worker) { return worker.state(copy) + i * replicas_.elements(); })});
        }
    }

    /// The error names the replica.
    template <class Part>
    void require_fitting_replica(const Part& part, int replica) const {
        try {
            require_fitting_part(part);
        } catch (const InvalidArgument& error) {
            throw InvalidArgument(text("replica ", replica, "'s part of the state: ", error.what()));
        }
    }
    template <class Part>
    [[gnu::cold]] void require_fitting_part(const Part& part) const {
        const bool averages = averages_of_copies();
        const std::int64_t elements = replicas_.network().trained_elements;
        require_elements("parameter arena", part.parameters.size(), replicas_.network().parameter_elements);
        require(part.averages.empty() != averages,
                averages ? "this training keeps moving averages, and the state has none"
                         : "this training keeps no moving averages, and the state has them");
        if (averages) require_elements("moving average", part.averages.size(), elements);
        require_states(names_.span(), span_of(part.optimizer));
        for (const OptimizerState& kept : part.optimizer)
            require_elements("optimiser's state arena", kept.values.size(), elements);
    }

    template <class Worker, class Part>
    void restore_copy(Worker& worker, int copy, const Part& part) {
        worker.set(worker.parameters(copy), part.parameters);
        if (averages_of_copies()) worker.set(worker.averages(copy), part.averages);
        float* arena = worker.state(copy);
        for (const OptimizerState& kept : part.optimizer) {
            worker.set(arena, kept.values);
            arena += replicas_.network().trained_elements;
        }
    }

    // For trainings with a centre.

    [[gnu::cold]] void copy_centre(TrainingState& state);
    /// Completes the replicas, and their samples, by those of the other processes.
    [[gnu::cold]] void gather_replicas(TrainingState& state, Peers& peers);
    [[gnu::cold]] void require_fitting_centre(const TrainingState& state) const;
    [[gnu::cold]] void restore_centre(const TrainingState& state);

    Replicas<D, T>& replicas_;
    FixedArray<std::string> names_, centre_names_;
    std::string rule_;
    bool averages_;
};

template <class D, class T>
StateTransfer<D, T>::StateTransfer(Replicas<D, T>& replicas, int state_arenas,
                                   FunctionRef<std::string_view(int)> state_name,
                                   FunctionRef<std::string_view(int)> centre_state_name, std::string rule)
    : replicas_(replicas),
      names_(static_cast<std::size_t>(state_arenas)),
      centre_names_(static_cast<std::size_t>(replicas.settings().centre_states)),
      rule_(std::move(rule)),
      averages_(replicas.settings().moving_average) {
    for (std::size_t arena = 0; arena < centre_names_.size(); ++arena)
        centre_names_[arena] = centre_state_name(static_cast<int>(arena));
    for (int arena = 0; arena < state_arenas; ++arena) names_[static_cast<std::size_t>(arena)] = state_name(arena);
}
template <class D, class T>
void StateTransfer<D, T>::require_fitting(const TrainingState& state) const {
    require(state.step >= 0, "the step of a training must be 0 or later, not ", state.step);
    require(state.step <= largest_count, "the step of a training must be at most ", largest_count, ", not ",
            state.step);
    if (state.loss_scale) require_loss_scale(*state.loss_scale, state.step);
    if (!state.tensors.empty()) require_tensors_of(replicas_.network().layers, state.tensors);
    require_elements("buffer arena", state.buffers.size(), replicas_.network().buffer_elements);
    if (replicas_.settings().centre) return require_fitting_centre(state);
    require(
        state.replicas.empty(), "the state is that of ", state.replicas.size(),
        " replicas that agree on a centre, and the replicas of this training do not; load_parameters reads the centre "
        "alone from its checkpoint");
    require_fitting_part(state);
}

template <class D, class T>
TrainingState StateTransfer<D, T>::copy(std::int64_t step, std::span<const float> running,
                                        const LossScaleState& loss_scale, std::span<const std::int64_t> samples_since,
                                        Peers& peers) {
    TrainingState state{.step = step};
    if (replicas_.settings().loss_scale.dynamic || loss_scale.skipped_steps > 0) state.loss_scale = loss_scale;
    state.buffers.assign(running.begin(), running.end());
    state.tensors = state_tensors(replicas_.network().layers);
    if (replicas_.settings().centre) {
        state.samples_since.assign(samples_since.begin(), samples_since.end());
        state.rule = rule_;
        copy_centre(state);
        if (replicas_.placement().process_count() > 1) gather_replicas(state, peers);
        return state;
    }
    copy_replica(0, state);
    return state;
}

template <class D, class T>
LossScaleState StateTransfer<D, T>::loss_scale_of(const TrainingState& state) const {
    LossScaleState result{.scale = static_cast<float>(replicas_.settings().loss_scale.initial)};
    if (!state.loss_scale) return result;
    if (replicas_.settings().loss_scale.dynamic) return *state.loss_scale;
    result.skipped_steps = state.loss_scale->skipped_steps;
    return result;
}

template <class D, class T>
void StateTransfer<D, T>::require_finite(const TrainingState& state) const {
    require_none({}, non_finite_part(replicas_.network().layers, state));
}

template <class D, class T>
void StateTransfer<D, T>::copy_centre(TrainingState& state) {
    const auto copied = [&](std::int64_t elements, auto&& place) {
        return replicas_.copied(elements, 0, [&](State& device) { return place(device.worker); });
    };
    const std::int64_t trained = replicas_.network().trained_elements;
    state.parameters = copied(replicas_.network().parameter_elements, [](auto& worker) { return worker.centre(); });
    if (averages_) state.averages = copied(trained, [](auto& worker) { return worker.averages(); });
    for (std::size_t i = 0; i < centre_names_.size(); ++i)
        state.centre_optimizer.push_back({centre_names_[i], copied(trained, [&](auto& worker) {
                                              return worker.centre_state() + i * replicas_.elements();
                                          })});
    state.replicas.resize(static_cast<std::size_t>(replicas_.placement().replicas()));
    for (int r = 0; r < replicas_.placement().replicas(); ++r) {
        if (replicas_.placement().is_here(r)) copy_replica(r, state.replicas[static_cast<std::size_t>(r)]);
    }
}

template <class D, class T>
void StateTransfer<D, T>::gather_replicas(TrainingState& state, Peers& peers) {
    const ReplicaPlacement& placement = replicas_.placement();
    const auto processes = static_cast<std::size_t>(placement.process_count()),
               mine = static_cast<std::size_t>(placement.process_number());
    const ExchangeName name{"the state of the replicas", state.step};
    for (int r = 0; r < placement.replicas(); ++r) {
        if (placement.is_here(r)) continue;
        ReplicaState& replica = state.replicas[static_cast<std::size_t>(r)];
        replica.parameters.resize(replicas_.all_elements());
        for (const std::string& each : names_)
            replica.optimizer.push_back({each, std::vector<float>(replicas_.elements())});
    }
    // In each exchange, as many values of one replica of each process.
    constexpr std::size_t most = std::size_t{1} << 18;
    const auto gather = [&](std::size_t size, auto&& values_of) {
        std::vector<float> blocks(processes * std::min(most, size));
        for (int k = 0; k < placement.max_replicas_per_process(); ++k) {
            const auto replica_of = [&](int process) {
                return k < placement.replicas_of_process(process) ? placement.first_replica_of_process(process) + k
                                                                  : -1;
            };
            for (std::size_t begin = 0; begin < size; begin += most) {
                const std::size_t part = std::min(most, size - begin);
                const auto of = [&](int process) {
                    return std::span(values_of(state.replicas[static_cast<std::size_t>(replica_of(process))]))
                        .subspan(begin, part);
                };
                if (const int process = placement.process_number(); replica_of(process) >= 0)
                    std::ranges::copy(of(process), blocks.data() + mine * part);
                peers.gather(name, reinterpret_cast<std::byte*>(blocks.data()), part * sizeof(float));
                for (int p = 0; p < placement.process_count(); ++p) {
                    if (p != placement.process_number() && replica_of(p) >= 0)
                        std::copy_n(blocks.data() + static_cast<std::size_t>(p) * part, part, of(p).data());
                }
            }
        }
    };
    gather(replicas_.all_elements(), [](ReplicaState& replica) -> auto& { return replica.parameters; });
    for (std::size_t i = 0; i < names_.size(); ++i)
        gather(replicas_.elements(), [i](ReplicaState& replica) -> auto& { return replica.optimizer[i].values; });
    if (state.samples_since.empty()) return;
    // Those of all replicas for each fragment.
    const std::size_t numbers = state.samples_since.size();
    std::vector<std::int64_t> samples(processes * numbers);
    std::ranges::copy(state.samples_since, samples.data() + mine * numbers);
    peers.gather(name, reinterpret_cast<std::byte*>(samples.data()), numbers * sizeof(std::int64_t));
    for (std::size_t i = 0; i < numbers; ++i) {
        const int replica = static_cast<int>(i % static_cast<std::size_t>(placement.replicas()));
        state.samples_since[i] = samples[static_cast<std::size_t>(placement.process_of(replica)) * numbers + i];
    }
}

template <class D, class T>
void StateTransfer<D, T>::require_fitting_centre(const TrainingState& state) const {
    const auto replicas = static_cast<std::size_t>(replicas_.placement().replicas());
    require(!state.replicas.empty(),
            "the replicas of this training agree on a centre, and the state has none; "
            "load_parameters reads the parameters alone from its checkpoint");
    require(state.rule.empty() || state.rule == rule_, "the state is that of replicas that agree by ", state.rule,
            ", and those of this training agree by ", rule_,
            "; load_parameters reads the centre alone from its checkpoint");
    require(state.replicas.size() == replicas, "this training has ", replicas, replicas == 1 ? " replica" : " replicas",
            " with parameters of their own, and the state has those of ", state.replicas.size());
    require(state.samples_since.size() % replicas == 0, "a state of ", replicas, " replicas has ",
            state.samples_since.size(), " numbers of samples");
    for (const std::int64_t each : state.samples_since)
        require(each >= 0 && each <= largest_count, "a replica of the state has ", each,
                " samples since the last agreement, not 0 to ", largest_count);
    const std::int64_t elements = replicas_.network().trained_elements;
    require_elements("parameter arena", state.parameters.size(), replicas_.network().parameter_elements);
    require(state.averages.empty() != averages_,
            averages_ ? "this training keeps moving averages, and the state has none"
                      : "this training keeps no moving averages, and the state has them");
    if (averages_) require_elements("moving average", state.averages.size(), elements);
    try {
        require_states(centre_names_.span(), span_of(state.centre_optimizer));
    } catch (const InvalidArgument& error) {
        throw InvalidArgument(text("the centre's part of the state: ", error.what()));
    }
    for (const OptimizerState& kept : state.centre_optimizer)
        require_elements("arena of the centre's optimiser", kept.values.size(), elements);
    int replica = 0;
    for (const ReplicaState& each : state.replicas) require_fitting_replica(each, replica++);
}

template <class D, class T>
void StateTransfer<D, T>::restore_centre(const TrainingState& state) {
    replicas_.threads().run([&](int device) {
        auto& worker = replicas_.at(device).worker;
        worker.set(worker.centre(), state.parameters);
        if (averages_) worker.set(worker.averages(), state.averages);
        float* arena = worker.centre_state();
        for (const OptimizerState& kept : state.centre_optimizer) {
            worker.set(arena, kept.values);
            arena += replicas_.network().trained_elements;
        }
        for (int copy = 0; copy < replicas_.placement().copies(device); ++copy) {
            const int replica = replicas_.placement().replica_of_copy(device, copy);
            restore_copy(worker, copy, state.replicas[static_cast<std::size_t>(replica)]);
        }
        worker.set(worker.buffers(), state.buffers);
    });
}

template <class D, class T>
void StateTransfer<D, T>::restore(const TrainingState& state) {
    if (replicas_.settings().centre) return restore_centre(state);
    replicas_.threads().run([&](int device) {
        auto& worker = replicas_.at(device).worker;
        restore_copy(worker, 0, state);
        worker.set(worker.buffers(), state.buffers);
    });
}

/// @cond the class is internal
template <class Net, class Loss, class Options, class D, bool synchronized>
template <class Transfer>
Transfer TrainingParts<Net, Loss, Options, D, synchronized>::transfer() {
    return Transfer(
        replicas_, states_of_training(), [&](int arena) { return state_name(arena); },
        [&](int arena) -> std::string_view {
            if (replicas_.settings().updates_centre) return functions_.options().optimizer.state_name(arena);
            return agreement_->centre_state_name(arena);
        },
        agreement_->name_of_rule());
}

template <class Net, class Loss, class Options, class D, bool synchronized>
template <class Transfer>
TrainingState TrainingParts<Net, Loss, Options, D, synchronized>::state() {
    const std::int64_t next = engine_.step();
    agreement_->complete_state(next);
    return transfer<Transfer>().copy(next, engine_.statistics().values(), engine_.loss_scale(),
                                     agreement_->samples_since(next), agreement_->peers());
}

template <class Net, class Loss, class Options, class D, bool synchronized>
template <class Transfer>
void TrainingParts<Net, Loss, Options, D, synchronized>::restore(const TrainingState& state) {
    Transfer of_training = transfer<Transfer>();
    const auto check = [&] {
        of_training.require_resumable(state, [&] { agreement_->require_samples_since(state.samples_since); });
    };
    const auto copy = [&] {
        of_training.restore(state);
        agreement_->set_samples_since(state.step, state.samples_since);
    };
    engine_.restore(state.step, state.buffers, of_training.loss_scale_of(state), check, copy);
}
/// @endcond

}}}  // namespace cupola::CUPOLA_ABI::impl
