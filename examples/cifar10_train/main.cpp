// SPDX-License-Identifier: Apache-2.0
//
// The command line of cifar10_train.
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <system_error>

#include "../command_line.hpp"
#include "options.hpp"

namespace {

/// Accepts a finite number, at least 0.
CLI::Validator rate() {
    const auto check = [](const std::string& given) -> std::string {
        double number = -1;
        const char* const end = given.data() + given.size();
        const auto [stop, error] = std::from_chars(given.data(), end, number);
        if (stop == end && error == std::errc{} && std::isfinite(number) && number >= 0) return {};
        return given + " is not a number of at least 0";
    };
    return {check, ""};
}

/// Accepts what gradients can be clipped to: 0 for no limit, or what is more than 0 as a float, too.
CLI::Validator clip_limit() {
    const auto check = [](const std::string& given) -> std::string {
        double number = 0;
        std::from_chars(given.data(), given.data() + given.size(), number);
        // What is no number of at least 0 is rate()'s to refuse, alone.
        if (!(number > 0) || number >= std::numeric_limits<float>::min()) return {};
        return given + " is too small a limit: it is 0 for none, or at least 1.18e-38";
    };
    return rate() & CLI::Validator(check, "");
}

}  // namespace

int main(int argc, char** argv) {
    using command_line::not_empty, command_line::whole_number;
    TrainOptions options;
    CLI::App app{
        "Trains the network of TensorFlow's CIFAR-10 tutorial, or a ResNet, by several replicas whose gradients are\n"
        "averaged, and prints its accuracy on the test images. Without arguments: one replica, 1000 steps, on a sample of\n"
        "5,000 training and 1,000 test images.",
        "cifar10_train"};
    constexpr int max_threads = 4096, max_replicas = 1 << 20, max_processes = 1024;
    constexpr std::int64_t max_steps = 1'000'000'000'000, max_images = 1'000'000'000;
    const auto count = whole_number<std::int64_t>(0, max_steps);
    app.add_option("--data-dir", options.data_dir,
                   "Images: a folder of CIFAR-10's .bin files, or the one above it, or a folder or archive with\n"
                   "train/<class>/*.jpg and test/<class>/*.jpg. Default: the sample that comes with this example")
        ->check(not_empty());
    app.add_flag("--download", options.download, "Fetch CIFAR-10 into --data-dir first, unless it is there");
    CLI::Option* const train_dir =
        app.add_option("--train-dir", options.train_dir,
                       "Folder for the run's checkpoints, TensorBoard events and log. Default: none is kept")
            ->check(not_empty());
    app.add_flag("--resume", options.resume, "Go on from the newest checkpoint in --train-dir, sample for sample");
    app.add_flag("--resume-anyway", options.resume_anyway,
                 "The same, though the checkpoint is of other settings, which are listed");
    app.add_option("--device", options.device, "What trains: host, this machine's processors, or cuda, NVIDIA's GPUs")
        ->capture_default_str();
    app.add_option("--model", options.model, "tutorial: TensorFlow's CIFAR-10 network; resnet: ResNet-44")
        ->capture_default_str();
    app.add_option("--precision", options.precision,
                   "What activations are computed in: float, or bf16 (bfloat16, with parameters and sums in float)")
        ->capture_default_str();
    app.add_option(
        "--convolution", options.convolution,
        "How the host computes convolutions of 3 x 3 and 5 x 5 in float: winograd, or direct by oneDNN. The\n"
        "results agree to rounding. Default: winograd");
    app.add_flag("--tf32", options.tf32, "GPUs may round the factors of products in float to TF32's 10 bits");
    app.add_flag("--deterministic", options.deterministic,
                 "GPUs use only algorithms that give the same bits each time");
    app.add_option(
           "--plan-choices", options.plan_choices,
           "File of the cuDNN engines that are taken, for another run to take the same: read if it is there, and\n"
           "written. Default: cudnn-plans.txt in --train-dir, if there is one")
        ->check(not_empty());
    app.add_option(
           "--bn-stats", options.bn_stats,
           "Whose batch-normalisation statistics are kept: first, last, all, merged or synchronized (which also\n"
           "normalises over all replicas, on the host)")
        ->capture_default_str();

    app.add_option("--max-steps", options.max_steps, "Steps to train; one step updates the parameters once")
        ->capture_default_str()
        ->check(whole_number<std::int64_t>(1, max_steps));
    app.add_option("--batch-size", options.batch_size, "Images of one replica in one step")
        ->capture_default_str()
        ->check(whole_number<std::int64_t>(1, max_images));
    app.add_option("--accumulation", options.gradient_accumulation_steps,
                   "Batches of a replica that are added up before one averaging")
        ->capture_default_str()
        ->check(whole_number(1, max_replicas));
    app.add_option("--seed", options.seed, "Seed of every random number of the run")
        ->capture_default_str()
        ->check(whole_number<std::uint64_t>(0, std::numeric_limits<std::uint64_t>::max()));

    app.add_option("--num-replicas", options.num_replicas,
                   "Copies of the network that share a step, in each process; the step sees this many batches")
        ->capture_default_str()
        ->check(whole_number(1, max_replicas));
    app.add_option(
           "--num-devices", options.num_devices,
           "Threads of control, or GPUs, that replicas run on, 1 to the number of replicas; with concat-mean the\n"
           "result does not depend on it. Default, or 0: one a replica, as far as there are processors or GPUs")
        ->check(whole_number(0, max_threads));
    app.add_option("--threads-per-device", options.threads_per_device,
                   "OpenMP threads of each device of the host. Default, or 0: the processors shared out evenly")
        ->check(whole_number(0, max_threads));
    app.add_option("--prefetch-workers", options.prefetch_workers,
                   "Threads that prepare the host's batches ahead; 0: the devices do. Default: the processors that no\n"
                   "device uses")
        ->check(whole_number(0, 1024));
    app.add_option("--averaging", options.averaging,
                   "How replicas agree on a gradient: concat-mean, on the host, or nccl, between GPUs")
        ->capture_default_str();
    app.add_option("--processes", options.processes, "Processes that train together, by nccl")
        ->capture_default_str()
        ->check(whole_number(1, max_processes));
    app.add_option("--process", options.process, "Which of them this one is, from 0. Process 0 writes what is kept")
        ->check(whole_number(0, max_processes - 1));
    app.add_option("--id-file", options.id_file, "File by which they find each other: a name that no other start uses")
        ->check(not_empty());
    app.add_flag("--log-device-placement", options.log_device_placement, "Print which device runs each operation");
    app.add_flag("--profile", options.profile,
                 "Make 25 steps, print where the time of the last 20 went, operation by operation, and end");

    app.add_option(
        "--optimizer", options.optimizer,
        "sgd, momentum, nesterov, adam, adamw, rmsprop, lars or lamb. Default: the model's, sgd or momentum");
    app.add_option("--learning-rate", options.learning_rate, "Where the schedule begins")
        ->capture_default_str()
        ->check(rate());
    app.add_option(
        "--schedule", options.schedule,
        "epochs: a tenth after every 350 epochs of images seen; historic: after 350 epochs by one replica's\n"
        "batch, as the tutorial had it until 2018; resnet: at epochs 82, 123 and 300; cosine; constant.\n"
        "Default: the model's, epochs or resnet");
    app.add_option("--lr-scaling", options.rate_scaling,
                   "How the rate follows the global batch, 128 being the base: none, linear or square-root")
        ->capture_default_str();
    app.add_option("--warm-up-steps", options.warm_up_steps, "Steps from the rate as given to the scaled one")
        ->capture_default_str()
        ->check(count);
    app.add_option("--clip-norm", options.clip_norm, "Largest norm of the gradient; 0 for any")
        ->capture_default_str()
        ->check(clip_limit());
    app.add_option("--clip-value", options.clip_value, "Largest magnitude in the gradient; 0 for any")
        ->capture_default_str()
        ->check(clip_limit());
    app.add_option("--ema-decay", options.ema_decay, "Decay of the parameters' moving averages; 0 for none")
        ->capture_default_str()
        ->check(rate());

    app.add_option("--log-every", options.log_every, "Print a line every so many steps; 0 for none")
        ->capture_default_str()
        ->check(count);
    app.add_option("--log-loss", options.log_loss,
                   "The loss in the line: mean over the replicas, last replica (as the tutorial printed), or each")
        ->capture_default_str();
    app.add_flag("--log-learning-rate", options.log_learning_rate, "The learning rate in the line");
    app.add_flag("--log-parts", options.log_parts, "Each part of the loss in the line, raw and smoothed");
    app.add_flag("--json", options.json, "Every line as a JSON object, a step's with everything in it");
    app.add_option("--checkpoint-every", options.checkpoint_every,
                   "Steps between two checkpoints; 0 for one at the end")
        ->capture_default_str()
        ->check(count)
        ->needs(train_dir);
    app.add_option("--keep-checkpoints", options.keep_checkpoints, "The newest ones that are kept")
        ->capture_default_str()
        ->check(whole_number(1, max_replicas))
        ->needs(train_dir);
    app.add_flag("--keep-best", options.keep_best,
                 "Evaluate at each checkpoint, and keep the best as model-best.safetensors");
    app.add_option("--summary-every", options.summary_every, "Steps between two summaries for TensorBoard; 0 for none")
        ->capture_default_str()
        ->check(count)
        ->needs(train_dir);
    return command_line::run(app, argc, argv, [&] {
        options.resume = options.resume || options.resume_anyway;
        return train(options);
    });
}
