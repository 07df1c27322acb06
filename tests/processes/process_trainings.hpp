// SPDX-License-Identifier: Apache-2.0
//
// Small trainings of four replicas with everything that depends on the division between processes: batch statistics, dropout,
// batches of several sizes and none, accumulation, weights; and the trace by which two are compared bit for bit.
#pragma once

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "../loss/squares.hpp"
#include "../standard.hpp"

namespace processes {

using namespace cupola;

constexpr int replicas = 4;
constexpr std::int64_t batch = 6;

/// Enough parameters for two processes of two devices with columns of their own.
struct Net : Sequential<Input<8, 8, 3>, Named<"conv1", Conv2d<16, 3, no_bias>>, Named<"bn1", BatchNorm2d<>>, ReLU,
                        Named<"conv2", Conv2d<32, 3, stride(2), no_bias>>, Named<"bn2", BatchNorm2d<>>, ReLU, Flatten,
                        Dropout<0.5>, Named<"out", Linear<1>>> {};
using Loss = LossCollection<WeightedSquares<>, WeightDecay<0.01, "out">>;

/// A policy for statistics that is chosen at run time.
struct AnyStatistics {
    static constexpr std::string_view name = "any";
    static constexpr bool synchronized = false;
    int which = 0;
    void update(const StatisticsUpdate& u) const {
        if (which == 0) FirstReplica{}.update(u);
        if (which == 1) LastReplica{}.update(u);
        if (which == 2) AllReplicas{}.update(u);
        if (which == 3) Pooled{}.update(u);
    }
};

template <class Averaging, class Statistics>
using Training = DataParallel<Net, Loss, Sgd, Averaging, Host, Statistics>;

/// One of the trainings.
struct Case {
    bool unequal = false;
    int accumulation = 1, devices = 1, statistics = 0;
};

/// The samples of a replica's batch, number `place` in its order: some have fewer or none.
inline std::int64_t size_of_batch(const Case& c, std::int64_t place, int replica) {
    if (!c.unequal) return batch;
    constexpr std::int64_t sizes[] = {batch, 2, 0, batch, 4};
    return sizes[static_cast<std::size_t>(3 * place + replica) % 5];
}

class Batches {
public:
    explicit Batches(const Case& c) : case_(c), inputs_(count * 8 * 8 * 3), targets_(count * 2) {
        initialize(inputs_, normal(1.0), 1, 1, 3, 0);
        initialize(targets_, normal(1.0), 1, 1, 4, 0);
        for (std::size_t n = 0; n < count; ++n) targets_[2 * n + 1] = static_cast<float>(n % 7) / 3.0F;
    }
    BatchView operator()(std::int64_t place, int replica, HostContext&) const {
        const std::int64_t first = (5 * place + 11 * replica) % static_cast<std::int64_t>(count - batch);
        const std::int64_t size = size_of_batch(case_, place, replica);
        if (size == 0) return {};
        return {inputs_.data() + first * 8 * 8 * 3, {8, 8, 3}, targets_.data() + first * 2, {2}, size};
    }

    /// Makes the weight of each sample that of one.
    void set_weights(float weight) {
        for (std::size_t n = 0; n < count; ++n) targets_[2 * n + 1] = weight;
    }
    /// Makes an input of the samples not finite.
    void set_input(std::size_t element, float value) { inputs_[element] = value; }

private:
    static constexpr std::size_t count = 64;
    Case case_;
    std::vector<float> inputs_, targets_;
};

template <class Averaging, class Statistics>
typename Training<Averaging, Statistics>::Options options_of(const Case& c, const Averaging& averaging,
                                                             const Statistics& statistics) {
    return {.replicas = replicas,
            .devices = c.devices,
            .batch_size = batch,
            .other_batch_sizes = {2, 4},
            .gradient_accumulation_steps = c.accumulation,
            .seed = 5,
            .optimizer = {.learning_rate = 0.02, .momentum = 0.9},
            .averaging = averaging,
            .statistics = statistics,
            .moving_average = {.decay = 0.9},
            .check_every = 2};
}

template <class V>
void append(std::vector<std::byte>& to, std::span<const V> values) {
    const auto bytes = std::as_bytes(values);
    to.insert(to.end(), bytes.begin(), bytes.end());
}

inline void append(std::vector<std::byte>& to, const StepReport& report) {
    const double all[] = {static_cast<double>(report.step), static_cast<double>(report.samples), report.weight,
                          report.loss};
    append(to, std::span<const double>(all));
    for (const ReplicaReport& each : report.replicas) {
        const double one[] = {static_cast<double>(each.samples), each.weight, each.total};
        append(to, std::span<const double>(one));
        for (const LossPart& part : each.parts) append(to, std::span<const double>(&part.value, 1));
    }
}

/// Every step's report, and the state after the last.
template <class T, class B>
std::vector<std::byte> trace_of(T& training, const B& batches, int steps) {
    std::vector<std::byte> trace;
    for (int s = 0; s < steps; ++s) append(trace, training.step(batches));
    const TrainingState state = training.state();
    append(trace, std::span<const float>(state.parameters));
    append(trace, std::span<const float>(state.buffers));
    append(trace, std::span<const float>(state.averages));
    for (const auto& arena : state.optimizer) append(trace, std::span<const float>(arena.values));
    return trace;
}

}  // namespace processes
