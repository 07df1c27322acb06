// SPDX-License-Identifier: Apache-2.0
//
// Trainings that run on `Host` and on `Cuda` for comparison: their settings and their results. The two are compiled
// separately (training_host.cpp, training_cuda.cu: nvcc cannot compile host.hpp) and exchange only plain vectors. In
// training_emulated.cpp `Cuda` has emulated GPUs.
#pragma once

#include "../../standard.hpp"

namespace training_runs {

using Floats = std::vector<float>;

/// `convolutions_half` runs on `Cuda` only. `offloaded` has layers on `Host`. `frozen_body` is `convolutions` with frozen
/// convolutions, `frozen_middle` is `normalized` with frozen layers through which the gradient passes. `weighted` has eight
/// fully connected layers whose 16 parameters all decay, weights of classes and an ignored label. `two_heads` has a second input and
/// two outputs, whose losses are a cross-entropy and half of a Huber loss.
enum class Model : std::uint8_t {
    convolutions,
    convolutions_bfloat16,
    convolutions_half,
    normalized,
    offloaded,
    frozen_body,
    frozen_middle,
    weighted,
    two_heads
};
/// `uncaptured` is sgd by an optimiser that does not declare that it can be captured. `faulty` is the same, but device 1 makes
/// another update in step 4. `ruinous` is the same, but the update of step 2 sets the bias of a class in the last layer to
/// -infinity: the loss is then not finite, while its gradient by the formula is.
enum class Rule : std::uint8_t { sgd, adam, rms_prop, clipped, lamb, lars, uncaptured, faulty, ruinous };
enum class Average : std::uint8_t { concat_mean, nccl };
enum class Statistics : std::uint8_t { first, pooled };

/// No step or no place: the setting is off.
inline constexpr std::int64_t nowhere = -1;

struct Run {
    Model model = Model::convolutions;
    Rule rule = Rule::sgd;
    /// NCCL is supported for `convolutions`, `frozen_body` and `two_heads`; the host then uses ConcatMean.
    Average average = Average::concat_mean;
    Statistics statistics = Statistics::first;
    int replicas = 1, devices = 1, gradient_accumulation_steps = 1;
    /// On `Cuda`: the devices that share a GPU; 0 for as few as the machine allows.
    int devices_per_gpu = 0;
    std::int64_t batch = 8, steps = 10;
    double rate = 0.05, momentum = 0, moving_average = 0;
    /// The rate is multiplied by it after each step.
    double rate_decay = 1;
    int check_every = 3;
    /// The sizes of batches that are not `batch`: per place in the data, one number per replica. Places without an entry have
    /// whole batches.
    std::vector<std::vector<std::int64_t>> sizes{};
    /// The parameters (and running statistics) at the start of each step.
    std::vector<Floats> starts{};
    /// The place and the replica of the batch with a NaN in sample 1.
    std::int64_t poisoned_place = nowhere;
    int poisoned_replica = 0;
    /// The place of the batch with an invalid label in sample 2.
    std::int64_t mislabelled_place = nowhere;
    /// The place of whose batches no sample counts, for a loss with weights: its step is skipped, by the option.
    std::int64_t unlabelled_place = nowhere;
    /// The place that is passed over: batches from it on are those of the next place.
    std::int64_t left_out_place = nowhere;
    /// Where a dynamic loss scale begins, and after how many steps it grows; 0 for that of the precision.
    double loss_scale = 0;
    int growth_interval = 2000;
    /// Whether `Cuda` uses TF32: for nothing, for convolutions, or for products too.
    enum class Tf32 : std::uint8_t { none, convolutions, all } tf32 = Tf32::none;
    /// The place whose batch throws a DataError.
    std::int64_t failing_place = nowhere;
    /// The step after which a new training continues from the state; `moved_always`: after every step.
    std::int64_t moved_after = nowhere;
    bool moved_always = false;
    /// Whether the training is restored to its own state after an error and continues with valid batches; otherwise it ends.
    bool goes_on = true;
    /// The maximum number of queued steps without a wait; 0 stands for step().
    std::int64_t max_in_flight = 0;
    /// The number of buffers to which the batches of each replica are copied in turn, as in a pipeline; 0 for memory that is
    /// never overwritten.
    int places = 0;
    /// Whether there are parameter groups: biases at another rate, local3 without decay, norm1 frozen if it exists.
    bool groups = false;
    bool evaluates = false, inspects = false, keeps_gradients = false;
    /// For a run by fit(): the callback synchronizes after every so many steps, stops the run with the report of step
    /// `stops_at`, and throws at the report of step `throws_at`.
    std::int64_t synchronize_every = 3, stops_at = nowhere, throws_at = nowhere;
};

struct Result {
    /// One entry per step.
    std::vector<double> losses{};
    std::vector<std::int64_t> correct{}, samples{};
    /// The loss scale of each step, and the number of the steps up to it that were skipped.
    std::vector<double> scales{};
    std::vector<std::int64_t> skipped{};
    std::vector<Floats> gradients{}, starts{}, inspected{};
    /// One entry per replica, at the end.
    std::vector<Floats> replica_gradients{};
    Floats prediction{};
    /// The sums of squares of the outputs of the layers in the inspections, step by step.
    std::vector<double> activations{};
    /// The state at the end.
    std::int64_t step = 0;
    /// The loss scale's: the scale, the steps since it changed, and those that were skipped; empty without one.
    std::vector<double> scale_at_end{};
    Floats parameters{}, averages{}, buffers{};
    std::vector<Floats> optimizer{};
    std::vector<Floats> device_parameters{};
    std::vector<double> evaluation{};
    /// The outputs and the labels that a metric received, batch by batch.
    Floats measured{};
    std::vector<std::int32_t> measured_labels{};
    /// The message of the error, its step and replica, and the number of steps that had been requested.
    std::string error{};
    std::int64_t error_step = nowhere, asked = 0;
    int error_replica = -1;
    /// The names of the operations that each device queued, in order.
    std::vector<std::vector<std::string>> traces{};
    /// Whether the training is healthy after the error, and its parameters then.
    bool healthy = true;
    Floats parameters_after_error{};
    /// For a run by fit(): the parameters at each synchronization, and the number of queued steps at each report.
    std::vector<Floats> standing{};
    std::vector<std::int64_t> queued{};
    /// The last inspected step, at the report of each inspected step.
    std::vector<std::int64_t> last_inspected{};
    /// The number of calls of on_end, and of the steps that fit() reports.
    int ends = 0;
    std::int64_t made = 0;
};

[[nodiscard]] Result run_on_host(const Run& run);
[[nodiscard]] Result run_on_cuda(const Run& run);
/// A training of Model::convolutions by fit().
[[nodiscard]] Result fit_on_host(const Run& run);
[[nodiscard]] Result fit_on_cuda(const Run& run);

/// Whether the CPU has the instructions that a network in bfloat16 needs.
[[nodiscard]] bool host_has_bfloat16();
/// The number of GPUs. NCCL needs as many as the training has devices.
[[nodiscard]] int gpus();
/// Whether this program was built with NCCL; otherwise Average::nccl stands for ConcatMean.
[[nodiscard]] bool has_nccl();

// For emulated GPUs only.

/// Whether the GPUs are emulated. On real GPUs the functions below do nothing.
[[nodiscard]] bool emulated();
/// Sets whether captures of steps fail.
void refuse_captures(bool refuse);
/// The number of captures so far, and of launches of captured graphs.
[[nodiscard]] std::int64_t captures();
[[nodiscard]] std::int64_t launches_of_captures();
/// The number of pieces of work that run at each query of an event.
void set_pace(int pieces);
/// The device fails after `after` more pieces of work; -1 for never.
void fail_device(int device, std::int64_t after);
/// The number of allocations with a write outside their bounds.
[[nodiscard]] int overruns();

}  // namespace training_runs
