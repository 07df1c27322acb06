// SPDX-License-Identifier: Apache-2.0
//
// The run of one network in one precision on one device: the parts of the training that depend on --model, and all work
// between the images and the test accuracy.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include <cupola/cupola.hpp>
#include <cupola/data/augmentation.hpp>
#include <cupola/data/random_crop_flip.hpp>
#include <cupola/io/fingerprint.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/models/resnet.hpp>
#include <cupola/models/tutorial_augmentation.hpp>
#include <cupola/optim/clipped.hpp>
#include <cupola/parallel/synchronized.hpp>
#include <cupola/train/profile.hpp>
#include <cupola/train/training_run.hpp>

#include "devices.hpp"
#include "optimizers.hpp"
#include "options.hpp"

namespace cifar10 {

/// The parts of a model's training: its network, its loss, the transforms of its training images and of its test
/// images.
template <Model model>
struct Parts {
    using Net = Cifar10Net;
    using Loss = Cifar10Loss;
    using Augment = TutorialAugmentation;
    using Centre = CenterCrop;
};
template <>
struct Parts<Model::resnet> {
    using Net = ResNet<44>;
    /// Decay of every parameter, as in TensorFlow's estimator. Eleven classes: the ten of the data set and a spare one.
    using Loss = LossCollection<CrossEntropy<11>, WeightDecayAll<2e-4>>;
    using Augment = RandomCropFlip;
    using Centre = ScaledPixels;
};

/// Networks in bfloat16 and in half, with their own names.
template <class Net>
struct InBFloat16 : InPrecision<MixedBFloat16, Net> {};
template <class Net>
struct InFloat16 : InPrecision<MixedFloat16, Net> {};

template <class Net, Precision precision>
struct NetworkIn {
    using Type = Net;
};
template <class Net>
struct NetworkIn<Net, Precision::bfloat16> {
    using Type = InBFloat16<Net>;
};
template <class Net>
struct NetworkIn<Net, Precision::float16> {
    using Type = InFloat16<Net>;
};

/// The policy that --bn-stats names, chosen at run time, so that the compiler instantiates one training for all
/// policies. Not for Synchronized, whose forward and backward passes differ.
struct NamedStatistics {
    static constexpr std::string_view name = "as --bn-stats says";
    static constexpr bool synchronized = false;
    std::string_view chosen;
    void (*take)(const StatisticsUpdate&) = nullptr;

    [[nodiscard]] std::string_view description() const { return chosen; }
    void update(const StatisticsUpdate& u) const { take(u); }

    /// The policy `Policy`.
    template <class Policy>
    static NamedStatistics of() {
        return {Policy::name, [](const StatisticsUpdate& u) { Policy{}.update(u); }};
    }
};

/// Throws InvalidArgument for an unknown name. `synchronized` is a separate training and is not handled here.
inline NamedStatistics statistics_of(const TrainOptions& options) {
    const std::string& name = options.bn_stats;
    if (name == FirstReplica::name) return NamedStatistics::of<FirstReplica>();
    if (name == LastReplica::name) return NamedStatistics::of<LastReplica>();
    if (name == AllReplicas::name) return NamedStatistics::of<AllReplicas>();
    require(name == Pooled::name, "there are no --bn-stats ", name);
    return NamedStatistics::of<Pooled>();
}

/// Calls `run` with the policy for batch statistics that --bn-stats names.
template <Model model, Place place, class Run>
int with_statistics([[maybe_unused]] const TrainOptions& options, Run&& run) {
    if constexpr (model == Model::tutorial) {
        return run(FirstReplica{});
    } else {
        if constexpr (place == Place::host) {
            if (options.bn_stats == Synchronized::name) return run(Synchronized{});
        }
        return run(statistics_of(options));
    }
}

/// Trains and evaluates. `side` is the Side of the device.
template <class Net, class Parts, Place place, class Averaging, class Statistics>
[[gnu::cold]] int run_training(const TrainOptions& options, const ImageData& images, const Schedule& schedule,
                               const std::string& optimizer, Side<place>& side, const Averaging& averaging,
                               const Statistics& statistics) {
    TrainingRun run(options.run);
    auto source = side.template source<typename Parts::Augment>(
        images.train, {.batch_size = options.batch_size, .replicas = options.num_replicas, .seed = options.seed});
    DataParallel<Net, typename Parts::Loss, Clipped<NamedOptimizer>, Averaging, typename Side<place>::Device,
                 Statistics>
        training({.replicas = options.num_replicas,
                  .devices = side.devices(),
                  .device = side.device_options(),
                  .batch_size = options.batch_size,
                  .gradient_accumulation_steps = options.gradient_accumulation_steps,
                  .seed = options.seed,
                  .optimizer = {.optimizer = NamedOptimizer(optimizer, schedule),
                                .max_norm = options.clip_norm,
                                .max_value = options.clip_value},
                  .averaging = averaging,
                  .statistics = statistics,
                  .moving_average = {.decay = options.ema_decay},
                  .cut = side.cut()});
    auto&& batches = side.batches(source);
    if (!options.goes_on) {
        run.output().print_message(options.data_description);
        run.print_header(training, side.description(), options.log_device_placement);
    }
    if constexpr (Side<place>::profiles) {
        if (options.profile) {
            run.output().print_message(to_string(profile(training, batches)));
            return 0;
        }
    }
    run.info().set("model", options.model);
    // Reads every image, so only for a run that is stored, or whose processes must have the same images.
    if (run.has_folder() || options.process_count > 1) run.info().set("data", fingerprint(images.train));
    run.describe(training);
    run.info().set("precision", options.precision);  // the flag's value

    auto test = side.template test_batches<typename Parts::Centre>(images.test);
    const int status = run.train(training, batches, test, side.callback(training));
    if (status == 0) side.finish();
    return status;
}

template <Model model, Precision precision, Place place>
int run_network(const TrainOptions& options, const ImageData& images, const Schedule& schedule,
                const std::string& optimizer) {
    Side<place> side(options);
    using Net = typename Side<place>::template Network<typename NetworkIn<typename Parts<model>::Net, precision>::Type>;
    return side.template with_averaging<precision>([&](const auto& averaging) {
        return with_statistics<model, place>(options, [&](const auto& statistics) {
            return run_training<Net, Parts<model>>(options, images, schedule, optimizer, side, averaging, statistics);
        });
    });
}

}  // namespace cifar10
