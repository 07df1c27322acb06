// SPDX-License-Identifier: Apache-2.0
//
// Schedules in epochs: their boundaries are numbers of epochs, and an epoch ends when the global batches of all
// replicas have taken as many images as the data set has. TensorFlow's multi-GPU script counted one replica's batches,
// for any number of replicas; historic_epochs_decay does the same.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/optim/schedule.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The number of whole steps of `batch` images in `epochs` epochs of `images`: 136718 in 350 epochs of 50000 in batches
/// of 128. A result that is below a whole number only because of rounding is that number: 0.29 epochs of 50000 in
/// batches of 100 are 145 steps, though the double nearest to 0.29 is less than 0.29.
[[nodiscard]] std::int64_t steps_in_epochs(double epochs, std::int64_t images, std::int64_t batch);

/// rate, multiplied by `factor` after every `epochs` epochs of images: the tutorial's 0.1 and 350 epochs.
[[nodiscard]] Schedule epochs_decay(double rate, std::int64_t images, std::int64_t global_batch, double epochs = 350,
                                    double factor = 0.1);

/// The same with the steps of one replica's batch, as in the multi-GPU script until November 2018: `replicas` times as
/// many epochs lie between two decays.
[[nodiscard]] Schedule historic_epochs_decay(double rate, std::int64_t images, std::int64_t batch, int replicas,
                                             double epochs = 350, double factor = 0.1);

/// values[0] before epoch boundaries[0], values[1] from it on, and so on; an epoch has images / global_batch whole
/// steps. (TensorFlow's estimator, the source of these boundaries, keeps the old rate for one more step.)
[[nodiscard]] Schedule piecewise_epochs(std::int64_t images, std::int64_t global_batch,
                                        const std::vector<std::int64_t>& boundaries, std::vector<double> values);

/// ResNet for CIFAR as TensorFlow's estimator trained it: rate times 1, 0.1, 0.01 and 0.002, changed after 82, 123 and
/// 300 epochs of 45,000 images.
[[nodiscard]] Schedule resnet_epochs(double rate, std::int64_t global_batch, std::int64_t images = 45'000);

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/optim/epochs.ipp>
#endif
