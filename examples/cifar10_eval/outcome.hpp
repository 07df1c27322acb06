// SPDX-License-Identifier: Apache-2.0
//
// What an evaluation found, and the forms in which it is told: lines, a table of confusions, a file of predictions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models.hpp"

namespace cifar10 {

struct Outcome {
    std::int64_t step = 0;
    std::string checkpoint;
    Weights weights = Weights::trained;
    /// Images that are counted; the tutorial counted some twice.
    std::int64_t counted = 0, correct = 0;
    /// Of each image, in order.
    std::vector<std::int32_t> predictions;

    [[nodiscard]] double precision() const { return static_cast<double>(correct) / static_cast<double>(counted); }
};

/// Counts the images whose label's class has the largest logit. With `tutorial_count`, batches of 128 are filled up
/// with the first images again, as the tutorial's evaluation did: 79 batches, 10,112 of 10,000 images. Throws DataError
/// where a logit is not finite: no precision can be told then.
Outcome count_correct(const Logits& logits, const ImageSet& images, bool tutorial_count);

/// The name of each class that the network tells apart; a network may have more than the data set.
std::vector<std::string> class_names(const ImageSet& images, std::int64_t classes);

/// Images by label (row) and prediction (column), each image once.
using Confusion = std::vector<std::vector<std::int64_t>>;
Confusion confusion_of(const Outcome& outcome, const ImageSet& images, std::int64_t classes);
std::string confusion_table(const Confusion& confusion, const std::vector<std::string>& names);

/// index,label,prediction,logit0,... of every image. The file is there as a whole or not at all.
void write_predictions(const std::string& path, const Outcome& outcome, const Logits& logits, const ImageSet& images);

/// "2026-11-21 03:16:29.123456: precision @ 1 = 0.860", and a second line with what it is the precision of.
std::string lines_of(const Outcome& outcome, const ImageSet& images);
/// One JSON object, with the confusions where there are any.
std::string json_of(const Outcome& outcome, const ImageSet& images, const Confusion& confusion);

}  // namespace cifar10
