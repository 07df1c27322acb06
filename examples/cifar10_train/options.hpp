// SPDX-License-Identifier: Apache-2.0
//
// The options of the command line of cifar10_train (main.cpp has the flags), and the functions that use them. Settings
// that the library has are in its own types.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include <cupola/data/dataset.hpp>
#include <cupola/optim/schedule.hpp>
#include <cupola/train/training_run_options.hpp>
#ifdef CUPOLA_EXAMPLE_MPI
#include <cupola/processes/mpi_environment.hpp>
#endif

namespace cifar10 {

using namespace cupola;

struct TrainOptions {
    /// The folder, the steps, and the options of logs and checkpoints.
    TrainingRunOptions run{.log = {.averages = {.from_zero = true}}};  // as the tutorial's

    std::string data_dir;
    bool download = false;

    std::string device = "host";
    std::string model = "tutorial";
    std::string precision = "float";
    std::string convolution;  // winograd if empty
    std::string bn_stats = "first";
    bool tf32 = false;
    bool tf32_convolutions = false;
    bool deterministic = false;
    std::string plan_choices;
    double plan_seconds = 0.5;
    bool log_device_placement = false;
    bool profile = false;

    std::int64_t batch_size = 128;
    int gradient_accumulation_steps = 1;
    std::uint64_t seed = 1;
    int num_replicas = 1;
    int num_devices = 0;
    int devices_per_gpu = 1;
    int threads_per_device = 0;
    int prefetch_workers = -1;
    /// The parts of the network, each on a device of its own, and their timetable.
    int pipeline = 1;
    std::string pipeline_schedule = "1f1b";
    std::string averaging = "concat-mean", gradient_compression = "none";
    /// For the averaging of replicas with parameters of their own: the policy that averages their rows, the steps
    /// between two agreements, and the numbers of the rules. Without a moving rate it is the paper's, 0.9 / replicas.
    std::string inner = "concat-mean";
    std::int64_t period = 16, from_step = 0, fragments = 1, delay = 0;
    std::optional<double> moving_rate;
    double outer_rate = 0.7, outer_momentum = 0.9;
    /// For asynchronous ones: "free", "round-robin" or "replay", the file of the order log, and the steps in flight.
    std::string order, order_log;
    std::int64_t ahead = 4;
    /// For Backup: the gradients that a step needs; 0 for one less than the replicas.
    int backup_count = 0;
    /// For --averaging nccl; with 0 processes, those that a launcher has started.
    int processes = 0;
    int process = -1;
    std::string id_file, address;
    double deadline = 60;
    bool survive = false;
    /// The number of processes, the number of those on this machine (with MPI), and the number of this one.
    int process_count = 1, processes_here = 1, process_number = 0;
    /// What has been read, the first line of the header.
    std::string data_description;
    /// Whether these processes are the survivors of more, and continue their training.
    bool goes_on = false;
#ifdef CUPOLA_EXAMPLE_MPI
    /// For --averaging mpi-...
    const MpiEnvironment* mpi = nullptr;
#endif

    std::string optimizer;  // the model's if empty
    double learning_rate = 0.1;
    std::string schedule;  // the model's if empty
    std::string rate_scaling = "none";
    std::int64_t warm_up_steps = 0;
    double clip_norm = 0;
    double clip_value = 0;
    double ema_decay = 0.9999;

    [[nodiscard]] bool on_cuda() const { return device == "cuda"; }
    /// Whether each replica has parameters of its own.
    [[nodiscard]] bool own_parameters() const {
        return averaging == "local-sgd" || averaging == "diloco" || averaging == "elastic" || asynchronous();
    }
    /// Whether replicas do not wait for each other.
    [[nodiscard]] bool asynchronous() const {
        return averaging == "downpour" || averaging == "hogwild" || averaging == "backup" ||
               (averaging == "elastic" && !order.empty());
    }
    /// The policy that moves values between the replicas.
    [[nodiscard]] const std::string& carrier() const { return own_parameters() ? inner : averaging; }
    [[nodiscard]] bool by_mpi() const { return carrier().starts_with("mpi-"); }
    [[nodiscard]] bool by_nccl() const { return carrier() == "nccl"; }
    /// The replicas of this process, and the first of them among those of all processes.
    [[nodiscard]] int replicas_here() const { return std::max(1, first_of(process_number + 1) - first_replica()); }
    [[nodiscard]] int first_replica() const { return first_of(process_number); }

private:
    [[nodiscard]] int first_of(int of_process) const {
        return static_cast<int>(std::int64_t{num_replicas} * of_process / process_count);
    }
};

/// Throws InvalidArgument where --convolution is not for --precision on this processor.
void check_convolution(const TrainOptions& options);

/// Trains with flags that fit together, and returns the process's exit status: 0, or 128 plus the signal's number if a
/// signal ended the run. Throws cupola::Error for any other error.
int train(TrainOptions options);

enum class Model : std::uint8_t { tutorial, resnet };
enum class Precision : std::uint8_t { float32, bfloat16, float16 };
enum class Place : std::uint8_t { host, cuda };

/// Runs a network on the images. run.hpp defines it. CMake writes one file per instantiation, so that each is compiled
/// separately; those for cuda only in a program that is built with CUDA.
template <Model model, Precision precision, Place place>
[[gnu::cold]] int run_network(const TrainOptions& options, const ImageData& images, const Schedule& schedule,
                              const std::string& optimizer);

}  // namespace cifar10
