// SPDX-License-Identifier: Apache-2.0
//
// The command line of cifar10_eval.
#include <cstdint>

#include "../command_line.hpp"
#include "options.hpp"

int main(int argc, char** argv) {
    using namespace command_line;
    EvalOptions options;
    CLI::App app{
        "Prints the precision of a training's newest checkpoint on the test images, with the parameters' moving "
        "averages, each\n"
        "image once: now and whenever there is a newer checkpoint, until Ctrl-C.",
        "cifar10_eval"};
    app.add_option("--train-dir,--checkpoint-dir", options.train_dir, "Folder of the training's checkpoints")
        ->check(not_empty());
    app.add_option("--checkpoint", options.checkpoint, "This file instead, once; also one that PyTorch saved")
        ->check(not_empty());
    app.add_option("--data-dir", options.data_dir,
                   "Images: a folder of CIFAR-10's .bin files, or the one above it, or a folder or archive with\n"
                   "train/<class>/*.jpg and test/<class>/*.jpg. Default: the sample that comes with the examples")
        ->check(not_empty());
    app.add_option("--eval-data", options.eval_data, "test or train: which of the images")->capture_default_str();
    app.add_option("--model", options.model, "tutorial or resnet: the network that was trained")->capture_default_str();
    app.add_flag("--no-averages", options.no_averages, "Run the trained parameters instead of their moving averages");
    app.add_flag("--run-once", options.run_once, "End after the newest checkpoint");
    app.add_option("--interval", options.interval, "Seconds between two looks for a newer checkpoint")
        ->capture_default_str()
        ->check(whole_number<std::int64_t>(1, 1'000'000));
    app.add_option("--threads", options.threads, "OpenMP threads. Default, or 0: one a processor")
        ->check(whole_number(0, 4096));
    app.add_flag("--tutorial-count", options.tutorial_count,
                 "Count as TensorFlow's tutorial did: 79 batches of 128, the first 112 of 10,000 images twice");
    app.add_option("--predictions", options.predictions,
                   "CSV file for index, label, prediction and logits of every image")
        ->check(not_empty());
    app.add_flag("--confusion", options.confusion, "Print the images by label and prediction");
    app.add_option("--eval-dir", options.eval_dir,
                   "Folder for TensorBoard events with the precision at each checkpoint's step")
        ->check(not_empty());
    app.add_flag("--json", options.json, "One JSON object a line");
    return run(app, argc, argv, [&] { return evaluate(options); });
}
