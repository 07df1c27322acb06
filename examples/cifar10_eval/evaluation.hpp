// SPDX-License-Identifier: Apache-2.0
//
// The parts of cifar10_eval: its options (main.cpp has the flags), the networks of --model (networks.cpp), and the
// result of an evaluation with its output formats (outcome.cpp): lines, a confusion table, a file of predictions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <cupola/data/dataset.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cifar10 {

using namespace cupola;

struct EvalOptions {
    std::string data_dir;
    std::string train_dir;
    std::string checkpoint;
    std::string eval_dir;
    std::string eval_data = "test";
    std::string model = "tutorial";
    bool no_averages = false;
    bool run_once = false;
    std::int64_t interval = 300;
    int threads = 0;

    bool tutorial_count = false;
    std::string predictions;
    bool confusion = false;
    bool json = false;
};

/// A checkpoint to evaluate, and the settings of its evaluation.
struct ModelRun {
    const Checkpoint& checkpoint;
    const std::string& path;
    Weights weights = Weights::averages;
    int threads = 1;
    /// Returns whether to stop before the next batch.
    std::function<bool()> stop;
    /// Called after each batch with the number of images done.
    std::function<void(std::int64_t images)> progress;
};

/// The logits of a network for each image: one row of `classes` logits per image.
struct Logits {
    std::int64_t classes = 0;
    std::vector<float> values;
};

struct Model {
    std::span<const LayerInfo> layers;
    /// Returns the logits of all images, in their order; empty if it was stopped.
    std::optional<Logits> (*run)(const ModelRun&, const ImageSet&);
};

Model tutorial_model();
Model resnet_model();

struct Outcome {
    std::int64_t step = 0;
    std::string checkpoint;
    Weights weights = Weights::trained;
    /// The number of images that are counted; the tutorial counted some twice.
    std::int64_t counted = 0, correct = 0;
    /// The prediction for each image, in order.
    std::vector<std::int32_t> predictions;

    [[nodiscard]] double precision() const { return static_cast<double>(correct) / static_cast<double>(counted); }
};

/// Counts the images whose largest logit is that of the label's class. With `tutorial_count`, batches of 128 are filled
/// up with the first images again, as in the tutorial's evaluation: 79 batches, 10,112 of 10,000 images. Throws
/// DataError if a logit is not finite, since the precision is undefined then.
Outcome count_correct(const Logits& logits, const ImageSet& images, bool tutorial_count);

/// The names of the classes of the network, which may have more classes than the data set.
std::vector<std::string> class_names(const ImageSet& images, std::int64_t classes);

/// Images by label (row) and prediction (column), each image once.
using Confusion = std::vector<std::vector<std::int64_t>>;
Confusion confusion_of(const Outcome& outcome, const ImageSet& images, std::int64_t classes);
std::string confusion_table(const Confusion& confusion, const std::vector<std::string>& names);

/// Writes index,label,prediction,logit0,... for every image. The file is complete as soon as it exists.
void write_predictions(const std::string& path, const Outcome& outcome, const Logits& logits, const ImageSet& images);

/// "2026-11-21 03:16:29.123456: precision @ 1 = 0.860", and a second line with the data and the checkpoint that it
/// refers to.
std::string lines_of(const Outcome& outcome, const ImageSet& images);
/// One JSON object, with the confusion table if there is one.
std::string json_of(const Outcome& outcome, const ImageSet& images, const Confusion& confusion);

}  // namespace cifar10
