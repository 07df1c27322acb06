// SPDX-License-Identifier: Apache-2.0
//
// Trainings that are run on `Host` and on `Cuda` for comparison: their settings and their results. The two are compiled
// separately (training_host.cpp, training_cuda.cu: nvcc cannot read host.hpp), so that only plain vectors pass between
// them. In training_emulated.cpp `Cuda` has the emulator's GPUs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace training_runs {

using Floats = std::vector<float>;

/// In half there are convolutions on `Cuda` alone. `placed` has layers on `Host` wherever the rest is. `frozen_body` is convolutions
/// whose convolutions are frozen, `frozen_middle` is normalized with frozen layers through which the gradient passes. `weighted` is
/// convolutions with weights of classes and an ignored label.
enum class Model : std::uint8_t {
    convolutions,
    convolutions_bfloat16,
    convolutions_half,
    normalized,
    offloaded,
    frozen_body,
    frozen_middle,
    weighted
};
/// `uncaptured` is sgd by an optimiser that does not say that it may be captured, `faulty` the same with a device 1
/// that makes another update in step 4, `ruinous` the same whose update of step 2 makes the last layer's bias of a class
/// -infinity: the loss is no number then, and its gradient by the formula is one.
enum class Rule : std::uint8_t { sgd, adam, rms_prop, clipped, lamb, lars, uncaptured, faulty, ruinous };
enum class Average : std::uint8_t { concat_mean, nccl };
enum class Statistics : std::uint8_t { first, pooled };

/// The step at which the state is saved and another training continues from it.
inline constexpr std::int64_t nowhere = -1;

struct Run {
    Model model = Model::convolutions;
    Rule rule = Rule::sgd;
    /// NCCL's is of convolutions and of frozen_body alone; the host averages by ConcatMean for it.
    Average average = Average::concat_mean;
    Statistics statistics = Statistics::first;
    int replicas = 1, devices = 1, gradient_accumulation_steps = 1;
    std::int64_t batch = 8, steps = 10;
    double rate = 0.05, momentum = 0, moving_average = 0;
    /// The rate is multiplied by it after each step.
    double rate_decay = 1;
    int check_every = 3;
    /// The samples of a batch that is not `batch`; in order of the places, a number a replica each; a place that is not
    /// there has whole batches.
    std::vector<std::vector<std::int64_t>> sizes{};
    /// Parameters (and running statistics) that each step begins with.
    std::vector<Floats> starts{};
    /// The place and the replica of the batch that holds a NaN, in its sample 1.
    std::int64_t poisoned_place = nowhere;
    int poisoned_replica = 0;
    /// The place and the replica of the batch that holds a label that is no class, in its sample 2.
    std::int64_t mislabelled_place = nowhere;
    /// The place and the replica whose batch throws a DataError.
    std::int64_t failing_place = nowhere;
    /// After so many steps, or after each, the state goes to a new training.
    std::int64_t moved_after = nowhere;
    bool moved_always = false;
    /// After an error the training is restored to the state that it says it has, and goes on with good batches; or that
    /// is all.
    bool goes_on = true;
    /// How many steps may be queued and not waited for; 0 is step().
    std::int64_t max_in_flight = 0;
    /// Each replica's batches are copied to so many places in turn, as a pipeline's are; 0 for memory that is never
    /// written again.
    int places = 0;
    /// With parameter groups: biases at another rate, local3 without decay, norm1 frozen where there is one.
    bool groups = false;
    bool evaluates = false, inspects = false, keeps_gradients = false;
    /// Of a run by fit(): the training is to stand after every so many steps, the run to end with the report of this
    /// step, and the callback to throw at that of this one.
    std::int64_t synchronize_every = 3, stops_at = nowhere, throws_at = nowhere;
};

struct Result {
    /// Of each step.
    std::vector<double> losses{};
    std::vector<std::int64_t> correct{}, samples{};
    std::vector<Floats> gradients{}, starts{}, inspected{};
    /// Of each replica, at the end.
    std::vector<Floats> replica_gradients{};
    Floats prediction{};
    /// The sums of squares of the layers' outputs that the inspector saw, step after step.
    std::vector<double> activations{};
    /// At the end.
    std::int64_t step = 0;
    Floats parameters{}, averages{}, buffers{};
    std::vector<Floats> optimizer{};
    std::vector<Floats> device_parameters{};
    std::vector<double> evaluation{};
    /// What a metric saw: the outputs, and the labels, batch after batch.
    Floats measured{};
    std::vector<std::int32_t> measured_labels{};
    /// What was thrown, how many steps had been asked for, and what the parameters were then.
    std::string error{};
    std::int64_t error_step = nowhere, asked = 0;
    int error_replica = -1;
    /// What each device queued, by name and in order.
    std::vector<std::vector<std::string>> traces{};
    /// Whether the training says after it that its parameters are those after a whole step.
    bool healthy = true;
    Floats parameters_after_error{};
    /// Of a run by fit(): the parameters where the training stood, how many steps were queued when each report came,
    /// how often the run's end was told, and how many steps fit() says that it made.
    std::vector<Floats> standing{};
    std::vector<std::int64_t> queued{};
    /// And, at each report of a step that was looked into, the last step that was.
    std::vector<std::int64_t> last_inspected{};
    int ends = 0;
    std::int64_t made = 0;
};

[[nodiscard]] Result run_on_host(const Run& run);
[[nodiscard]] Result run_on_cuda(const Run& run);
/// The steps of Model::convolutions by fit().
[[nodiscard]] Result fit_on_host(const Run& run);
[[nodiscard]] Result fit_on_cuda(const Run& run);

/// Whether the processor of the host has what a network in bfloat16 needs.
[[nodiscard]] bool host_has_bfloat16();
/// How many GPUs there are.
[[nodiscard]] int gpus();

// Of emulated GPUs alone.

/// Whether they are. On a card the others do nothing.
[[nodiscard]] bool emulated();
/// Whether captures of a step's work are refused.
void refuse_captures(bool refuse);
/// How many captures were made, and how many of them were launched, until now.
[[nodiscard]] std::int64_t captures();
[[nodiscard]] std::int64_t launches_of_captures();
/// How many pieces of work go on at each look at an event.
void set_pace(int pieces);
/// The device fails at its piece of work number `after` from now; nothing is -1.
void fail_device(int device, std::int64_t after);
/// How many allocations were written past their ends.
[[nodiscard]] int overruns();

}  // namespace training_runs
