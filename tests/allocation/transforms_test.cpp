// SPDX-License-Identifier: Apache-2.0
//
// Once a thread has seen the largest part of an image, transforms and mixed batches allocate nothing there.
// Covers: cupola/data/compose.hpp, cupola/data/mixup.hpp, cupola/data/random_resized_crop.hpp
#include "../test.hpp"

#include <cupola/data/color_jitter.hpp>
#include <cupola/data/compose.hpp>
#include <cupola/data/impl/batch_buffer.hpp>
#include <cupola/data/mixup.hpp>
#include <cupola/data/random_erasing.hpp>
#include <cupola/data/random_resized_crop.hpp>
#include <cupola/models/image_preprocessing.hpp>

#include "../data/support.hpp"
#include "counting.hpp"

TEST_CASE("the augmentations of photographs allocate nothing after the first images") {
    const ImageSet set = cupola_tests::random_images(8, 40, 50);
    const auto batches = [&](const RandomResizedCrop& crop) {
        const Compose augmented{crop, ColorJitter{.contrast = 0.5, .hue = 0.1},
                                ImagePreprocessing{.fit = {.height = 20, .width = 24}}, RandomErasing{}};
        return MixUp(TrainingBatches(set, augmented, {.batch_size = 4, .seed = 1}),
                     {.mixup_alpha = 1, .cutmix_alpha = 1});
    };
    const auto whole_images =
        batches({.height = 20, .width = 24, .min_scale = 1, .min_ratio = 1.25, .max_ratio = 1.25});
    const auto parts = batches({.height = 20, .width = 24});
    const impl::BatchBuffer buffer(4, parts.columns());
    for (std::int64_t step = 0; step < 4; ++step) whole_images.fill(step, 0, 0, 4, buffer.span());
    start_counting();
    for (std::int64_t step = 0; step < 2; ++step) parts.fill(step, 0, 0, 4, buffer.span());
    CHECK(stop_counting().ours == 0);
}
