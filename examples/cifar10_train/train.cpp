// SPDX-License-Identifier: Apache-2.0
//
// From the command line to a training run: the images, the schedule, and the network that --model names.
#include <algorithm>
#include <string>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

#include "../cifar10_download/download.hpp"
#include "../standard_output.hpp"
#include "data.hpp"
#include "device_flags.hpp"
#include "models.hpp"

namespace {

using namespace cupola;

/// The learning rate that --schedule names, scaled as --lr-scaling says.
Schedule schedule_of(const TrainOptions& options, const std::string& name, std::int64_t images) {
    constexpr std::int64_t max_images = 1'000'000'000'000;
    const std::int64_t max_batches = max_images / options.batch_size / options.gradient_accumulation_steps;
    require(options.num_replicas <= max_batches / options.processes, "a step of ", options.batch_size,
            " images, --accumulation ", options.gradient_accumulation_steps, " and ", options.num_replicas, " x ",
            options.processes, " replicas has more than ", max_images, " images");
    const std::int64_t global_batch = options.batch_size * options.all_replicas() * options.gradient_accumulation_steps;
    const auto base = [&]() -> Schedule {
        if (name == "epochs") return epochs_decay(options.learning_rate, images, global_batch);
        if (name == "historic")
            return historic_epochs_decay(options.learning_rate, images, options.batch_size, options.all_replicas());
        if (name == "resnet")
            return resnet_epochs(options.learning_rate, global_batch, std::min<std::int64_t>(images, 45'000));
        if (name == "cosine") return cosine(options.learning_rate, options.max_steps);
        require(name == "constant", "--schedule is epochs, historic, resnet, cosine or constant, not ", name);
        return options.learning_rate;
    };
    const std::string& scaling = options.rate_scaling;
    require(scaling == "none" || scaling == "linear" || scaling == "square-root",
            "--lr-scaling is none, linear or square-root, not ", scaling);
    return ScaledRate{
        .scaling = rate_scaling_of(scaling), .global_batch = global_batch, .warm_up = options.warm_up_steps}(base());
}

}  // namespace

int train(const TrainOptions& options) {
    cifar10::check_device_flags(options);
    require(options.precision == "float" || options.precision == "bf16", "--precision is float or bf16, not ",
            options.precision);
    require(options.model == "tutorial" || options.model == "resnet", "--model is tutorial or resnet, not ",
            options.model);
    require(!options.resume || !options.train_dir.empty(), "--resume needs --train-dir, the folder to go on from");
    require(!options.profile || options.train_dir.empty(),
            "--profile makes a few steps and keeps nothing: leave out --train-dir");
    require(!options.keep_best || !options.train_dir.empty(),
            "--keep-best needs --train-dir, the folder to keep it in");
    cifar10::loss_reduction(options.log_loss);
    const bool on_cuda = options.device == "cuda";
    if (on_cuda) cifar10::require_cuda(options);
    require(!options.download || !options.data_dir.empty(),
            "--download needs --data-dir, the folder to put the images in");
    const std::string folder =
        options.download ? cifar10::ensure_cifar10(options.data_dir, {.json = options.json}) : options.data_dir;
    const ImageData images = load_images(folder, omp_get_num_procs());
    require<DataError>(images.train.class_count() == 10, "the data set ", images.train.name(), " has ",
                       images.train.class_count(), " classes, and the network tells 10 apart");
    StandardOutput(options.json)
        .say(text(
            "data: ", images.train.name(), ", ", images.train.size(), " training and ", images.test.size(),
            " test images",
            options.data_dir.empty() ? " (the sample that comes with this example; --data-dir chooses another)" : ""));
    const bool tutorial = options.model == "tutorial";
    const std::string name = !options.schedule.empty() ? options.schedule : tutorial ? "epochs" : "resnet";
    const std::string optimizer = !options.optimizer.empty() ? options.optimizer : tutorial ? "sgd" : "momentum";
    const Schedule schedule = schedule_of(options, name, images.train.size());
    require(!tutorial || options.bn_stats == "first",
            "--bn-stats is for --model resnet: the tutorial's network has no batch normalisation");
    const bool in_float = options.precision == "float";
    cifar10::Model* const run = on_cuda    ? cifar10::cuda_model(tutorial, in_float)
                                : tutorial ? (in_float ? cifar10::run_tutorial : cifar10::run_tutorial_bf16)
                                           : (in_float ? cifar10::run_resnet : cifar10::run_resnet_bf16);
    return run(options, images, schedule, optimizer);
}
