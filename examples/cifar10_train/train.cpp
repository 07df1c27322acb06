// SPDX-License-Identifier: Apache-2.0
//
// Makes a training run from the options: the images, the schedule, and the network that --model, --precision and
// --device name.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include <cupola/cupola.hpp>
#include <cupola/data/open.hpp>
#include <cupola/device/processors.hpp>
#include <cupola/host.hpp>
#include <cupola/io/event_file.hpp>
#include <cupola/io/standard_output.hpp>
#include <cupola/optim/epochs.hpp>
#include <cupola/optim/rate_scaling.hpp>
#include <cupola/processes/nccl_launch.hpp>

#include "../cifar10_download/download.hpp"
#include "devices.hpp"
#include "options.hpp"
#ifdef CUPOLA_EXAMPLE_CUDA
#include <cupola/device/cuda.hpp>
#endif

namespace cifar10 {

namespace {

using RunNetwork = int(const TrainOptions&, const ImageData&, const Schedule&, const std::string&);

template <Place place>
RunNetwork* network_on(const TrainOptions& options) {
    const bool in_float = options.precision == "float";
    if constexpr (place == Place::cuda) {
        if (options.precision == "half") {
            return options.model == "tutorial" ? &run_network<Model::tutorial, Precision::float16, place>
                                               : &run_network<Model::resnet, Precision::float16, place>;
        }
    }
    if (options.model == "tutorial") {
        return in_float ? &run_network<Model::tutorial, Precision::float32, place>
                        : &run_network<Model::tutorial, Precision::bfloat16, place>;
    }
    return in_float ? &run_network<Model::resnet, Precision::float32, place>
                    : &run_network<Model::resnet, Precision::bfloat16, place>;
}

/// Throws InvalidArgument if this program was built without CUDA, or without the policy of --averaging, and DeviceError
/// if this machine has no driver or too few GPUs.
#ifdef CUPOLA_EXAMPLE_CUDA
RunNetwork* network_on_cuda(const TrainOptions& options) {
#ifndef CUPOLA_EXAMPLE_NCCL
    require(!options.by_nccl(), "this program was built without NCCL: leave out ",
            options.own_parameters() ? "--inner" : "--averaging",
            " nccl, or build it again after configuring Cupola with -DCUPOLA_ENABLE_NCCL=ON");
#endif
    const int gpus = cuda_devices();
    const int per_gpu = options.devices_per_gpu;
    require<DeviceError>((options.num_devices + per_gpu - 1) / per_gpu <= gpus,
                         "--num-devices must be at most the number of GPUs that this process sees, ", gpus,
                         per_gpu == 1 ? std::string() : text(", times --devices-per-gpu, ", per_gpu), ", not ",
                         options.num_devices);
    return network_on<Place::cuda>(options);
}
#else
RunNetwork* network_on_cuda(const TrainOptions&) {
    throw InvalidArgument(
        "this program was built without CUDA: leave out --device cuda, or build it again after configuring Cupola\
 with -DCUPOLA_CUDA=ON, for which NVIDIA's CUDA toolkit 13 and cuDNN 9 have to be installed");
}
#endif

/// The learning rate that --schedule names, scaled as --lr-scaling says.
Schedule schedule_of(const TrainOptions& options, const std::string& name, std::int64_t images) {
    constexpr std::int64_t max_images = 1'000'000'000'000;
    const std::int64_t max_batches = max_images / options.batch_size / options.gradient_accumulation_steps;
    require(options.num_replicas <= max_batches, "a step of ", options.batch_size, " images, --accumulation ",
            options.gradient_accumulation_steps, " and ", options.num_replicas, " replicas has more than ", max_images,
            " images");
    const std::int64_t global_batch = options.batch_size * options.num_replicas * options.gradient_accumulation_steps;
    const auto base = [&]() -> Schedule {
        if (name == "epochs") return epochs_decay(options.learning_rate, images, global_batch);
        if (name == "historic")
            return historic_epochs_decay(options.learning_rate, images, options.batch_size, options.num_replicas);
        if (name == "resnet")
            return resnet_epochs(options.learning_rate, global_batch, std::min<std::int64_t>(images, 45'000));
        if (name == "cosine") return cosine(options.learning_rate, *options.run.max_steps);
        require(name == "constant", "there is no --schedule ", name);
        return options.learning_rate;
    };
    return ScaledRate{.scaling = rate_scaling_of(options.rate_scaling),
                      .global_batch = global_batch,
                      .warm_up = options.warm_up_steps}(base());
}

/// The processes of --averaging nccl: those of the flags, or those that a launcher has started, which is printed.
void find_processes_of_nccl(TrainOptions& options) {
    const NcclAllReduce averaging = NcclAllReduce{.processes = options.processes,
                                                  .process = std::max(0, options.process),
                                                  .id_file = options.id_file,
                                                  .address = options.address}
                                        .as_launched();
    options.process_count = averaging.processes;
    options.process_number = averaging.process;
    const std::string found = options.processes == 0 ? NcclAllReduce::launcher() : std::string();
    if (!found.empty()) StandardOutput(options.run.log.json, options.run.log.file).print_message(found);
}

#ifdef CUPOLA_EXAMPLE_MPI
/// Keeps the devices, threads and workers that each process chooses at the start: the bits depend on the threads.
void keep_devices(TrainOptions& options) {
    const Side<Place::host> side(options);
    options.num_devices = side.devices();
    options.threads_per_device = side.device_options().threads;
    options.prefetch_workers = side.prefetch_workers();
}

/// The options for a process that survives, after a loss or before any.
TrainOptions options_of_survivor(TrainOptions options, const MpiEnvironment& mpi) {
    options.goes_on = !mpi.lost().empty();
    options.process_count = mpi.count();
    options.process_number = mpi.number();
    options.run.writes = mpi.number() == 0;
    options.run.log.file = stdout;
    options.run = without_second_log(std::move(options.run));
    if (options.goes_on && options.run.resume == Resume::no) options.run.resume = Resume::if_there;
    return options;
}
#endif

}  // namespace

int train(TrainOptions options) {
#ifdef CUPOLA_EXAMPLE_MPI
    std::optional<MpiEnvironment> mpi;
    if (options.by_mpi()) {
        mpi.emplace(MpiOptions{
            .survives = options.survive, .deadline_seconds = options.deadline, .folder = options.run.folder});
        options.mpi = &*mpi;
        options.process_count = mpi->count();
        options.processes_here = mpi->count_on_machine();
        options.process_number = mpi->number();
    }
#endif
    if (options.by_nccl()) find_processes_of_nccl(options);
    options.run.writes = options.process_number == 0;  // one process logs, and writes the folder
    options.run = without_second_log(std::move(options.run));
    MovingAverage{.decay = options.ema_decay}.check();  // before the data set is read
    RunNetwork* const run = options.on_cuda() ? network_on_cuda(options) : network_on<Place::host>(options);
    const std::string folder =
        options.download
            ? ensure_cifar10(options.data_dir, {.waits = options.process_count > 1, .json = options.run.log.json})
            : options.data_dir;
    const ImageData images = open_image_data(folder.empty() ? CUPOLA_SAMPLE_DATA : folder, usable_processors().count());
    require<DataError>(images.train.class_count() == 10, "the data set ", images.train.name(), " has ",
                       images.train.class_count(), " classes, but the network distinguishes 10");
    options.data_description = text(
        "data: ", images.train.name(), ", ", images.train.size(), " training and ", images.test.size(), " test images",
        folder.empty() ? " (the sample that comes with this example; --data-dir chooses another)" : "");
    const bool tutorial = options.model == "tutorial";
    const std::string name = !options.schedule.empty() ? options.schedule : tutorial ? "epochs" : "resnet";
    const std::string optimizer = !options.optimizer.empty() ? options.optimizer : tutorial ? "sgd" : "momentum";
    const Schedule schedule = schedule_of(options, name, images.train.size());
    options.run.events = event_file_in;
#ifdef CUPOLA_EXAMPLE_MPI
    if (options.survive) {
        keep_devices(options);
        return mpi->survive([&] { return run(options_of_survivor(options, *mpi), images, schedule, optimizer); });
    }
#endif
    return run(options, images, schedule, optimizer);
}

}  // namespace cifar10
