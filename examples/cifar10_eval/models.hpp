// SPDX-License-Identifier: Apache-2.0
//
// The networks of --model, each compiled in a file of its own.
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

/// A checkpoint to be run, and how.
struct ModelRun {
    const Checkpoint& checkpoint;
    const std::string& path;
    Weights weights = Weights::averages;
    int threads = 1;
    /// Whether to stop before the next batch.
    std::function<bool()> stop;
    /// Told after each batch how many images are done.
    std::function<void(std::int64_t images)> progress;
};

/// What a network says of each image: one layer of `classes` logits each.
struct Logits {
    std::int64_t classes = 0;
    std::vector<float> values;
};

struct Model {
    std::span<const LayerInfo> layers;
    /// The logits of all images, in their order; nothing if it was stopped.
    std::optional<Logits> (*run)(const ModelRun&, const ImageSet&);
};

Model tutorial_model();
Model resnet_model();

}  // namespace cifar10
