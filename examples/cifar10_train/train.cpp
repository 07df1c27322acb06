// SPDX-License-Identifier: Apache-2.0
//
// The training run: the tutorial's network, data-parallel on the CPU.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <sys/stat.h>

#include "cifar10_net.hpp"
#include "data.hpp"
#include "options.hpp"

using namespace cupola;

namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// <train_dir>/train.log, appended to; the folder is made if it is not there.
File open_log(const std::string& train_dir) {
    if (train_dir.empty()) return {nullptr, &std::fclose};
    mkdir(train_dir.c_str(), 0777);  // that it is there already, or cannot be made, is seen when the log is opened
    const std::string path = train_dir + "/train.log";
    File file(std::fopen(path.c_str(), "ae"), &std::fclose);
    require<DataError>(file != nullptr, "the log ", path, " cannot be written: ", std::strerror(errno));
    return file;
}

/// Where the processors go: one device a replica as far as they last, all threads shared out evenly.
struct Placement {
    int devices, threads, prefetch_workers;

    explicit Placement(const TrainOptions& options) {
        const int processors = omp_get_num_procs();
        devices = options.num_devices != 0 ? options.num_devices : std::min(options.num_replicas, processors);
        threads = options.threads_per_device != 0 ? options.threads_per_device : std::max(1, processors / std::max(1, devices));
        const int left = std::max(0, processors - devices * threads);
        prefetch_workers = options.prefetch_workers >= 0 ? options.prefetch_workers : left;
    }
};

}  // namespace

void train(const TrainOptions& options) {
    require(options.max_steps >= 1, "--max-steps is at least 1, not ", options.max_steps);
    require(options.averaging == "concat-mean", "--averaging is concat-mean on the CPU; ", options.averaging,
            options.averaging == "nccl" ? " needs GPUs" : " is no averaging policy");
    const Placement placement(options);
    require(placement.devices <= options.num_replicas, "--num-devices is at most --num-replicas, ", options.num_replicas,
            ", not ", placement.devices);
    const ImageData images = load_images(options.data_dir, omp_get_num_procs());
    require<DataError>(images.train.class_count() == 10, "the data set ", images.train.name(), " has ",
                       images.train.class_count(), " classes, and the network tells 10 apart");
    std::printf("data: %s, %lld training and %lld test images%s\n", images.train.name().c_str(),
                static_cast<long long>(images.train.size()), static_cast<long long>(images.test.size()),
                options.data_dir.empty() ? " (the sample that comes with this example; --data-dir chooses another)" : "");

    const BatchOptions batch{.batch_size = options.batch_size, .replicas = options.num_replicas, .seed = options.seed};
    TrainingBatches source(images.train, TutorialDistortions{}, batch);

    // The rate falls tenfold after every 350 epochs of images seen, whatever the number of replicas.
    constexpr double epochs_per_decay = 350;
    const std::int64_t global_batch = options.batch_size * options.num_replicas;
    const auto decay_steps =
        static_cast<std::int64_t>(epochs_per_decay * static_cast<double>(images.train.size()) / static_cast<double>(global_batch));
    const Schedule schedule = exponential_decay(options.learning_rate, std::max<std::int64_t>(1, decay_steps), 0.1);

    DataParallel<cifar10::Cifar10Net, cifar10::Cifar10Loss, Sgd, ConcatMean, Host> training(
        {.replicas = options.num_replicas,
         .devices = placement.devices,
         .device = {.threads = placement.threads},
         .batch_size = options.batch_size,
         .seed = options.seed,
         .optimizer = {.learning_rate = schedule}});
    Prefetch batches(std::move(source), {.workers = placement.prefetch_workers});

    std::fputs(summary<cifar10::Cifar10Net>(options.batch_size).c_str(), stdout);
    std::printf("%s\n", to_string(training.memory()).c_str());
    std::printf("replicas: %d of %lld images a step, averaged by %s, on %d Host device%s of %d thread%s (oneDNN %s, %s), "
                "%d prefetch workers\n",
                options.num_replicas, static_cast<long long>(options.batch_size), std::string(ConcatMean::name).c_str(),
                placement.devices, placement.devices == 1 ? "" : "s", placement.threads, placement.threads == 1 ? "" : "s",
                Host::library_version().c_str(), Host::library_isa().c_str(), placement.prefetch_workers);
    std::printf("learning rate: %s; not scaled with the replicas\n", schedule.description().c_str());

    const File log = open_log(options.train_dir);
    LogEvery to_log(log ? options.log_every : 0, log ? log.get() : stdout);
    fit(training, batches, {.steps = options.max_steps}, LogEvery{options.log_every}, to_log, Progress{});

    EvaluationBatches test(images.test, CentralCrop{}, options.batch_size, placement.devices);
    const Evaluation result = evaluate(training, test);
    std::printf("test accuracy = %.3f (%lld images)\n", result.accuracy(), static_cast<long long>(result.samples));
    const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    require<DataError>(written, "the result could not be written to standard output: ", std::strerror(errno));
}
