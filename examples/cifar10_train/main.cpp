// SPDX-License-Identifier: Apache-2.0
//
// The command line of cifar10_train.
#include <exception>
#include <iostream>
#include <new>

#include <CLI/CLI.hpp>

#include "options.hpp"

int main(int argc, char** argv) {
    TrainOptions options;
    CLI::App app{
        "Trains the network of TensorFlow's CIFAR-10 tutorial by several replicas whose gradients are averaged,\n"
        "and prints its accuracy on the test images. Without arguments: one replica, 1000 steps, on a sample of\n"
        "5,000 training and 1,000 test images.",
        "cifar10_train"};
    app.add_option("--data-dir", options.data_dir,
                   "Images: a folder of CIFAR-10's .bin files, or a folder or archive with train/<class>/*.jpg and\n"
                   "test/<class>/*.jpg. Default: the sample that comes with this example");
    app.add_option("--train-dir", options.train_dir, "Folder for the run's log, train.log. Default: none is kept");
    app.add_option("--max-steps", options.max_steps, "Steps to train; one step updates the parameters once")
        ->capture_default_str();
    app.add_option("--batch-size", options.batch_size, "Images of one replica in one step")->capture_default_str();
    app.add_option("--num-replicas", options.num_replicas,
                   "Copies of the network that share a step; the step sees this many batches")
        ->capture_default_str();
    app.add_option("--num-devices", options.num_devices,
                   "Threads of control that replicas run on, 1 to the number of replicas; the result does not depend on\n"
                   "it. Default: one a replica, as far as there are processors");
    app.add_option("--threads-per-device", options.threads_per_device,
                   "OpenMP threads of each device. Default: the processors shared out evenly");
    app.add_option("--prefetch-workers", options.prefetch_workers,
                   "Threads that prepare batches ahead. Default: the processors that no device uses");
    app.add_option("--averaging", options.averaging, "How replicas agree on a gradient: concat-mean")->capture_default_str();
    app.add_option("--learning-rate", options.learning_rate, "Rate of the first 350 epochs; then a tenth, and so on")
        ->capture_default_str();
    app.add_option("--log-every", options.log_every, "Print a line every so many steps; 0 for none")->capture_default_str();
    app.add_option("--seed", options.seed, "Seed of every random number of the run")->capture_default_str();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);
        std::cerr << "cifar10_train: " << error.what() << "; --help lists what there is\n";
        return 2;
    }
    try {
        train(options);
    } catch (const std::bad_alloc&) {
        std::cerr << "cifar10_train: out of memory\n";
        return 1;
    } catch (const std::exception& error) {
        std::cerr << "cifar10_train: " << error.what() << '\n';
        return 1;
    }
}
