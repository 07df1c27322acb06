// SPDX-License-Identifier: Apache-2.0
//
// Images of random bytes, with the shape and the classes of CIFAR-10.
#pragma once

#include <random>

#include <cupola/data/dataset.hpp>

#include "../standard.hpp"

namespace gpu_tests {

inline cupola::ImageSet random_images(std::int64_t count) {
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count) * 32 * 32 * 3);
    std::mt19937_64 random(1);
    for (std::size_t i = 0; i + sizeof(std::uint64_t) <= pixels.size(); i += sizeof(std::uint64_t)) {
        const std::uint64_t word = random();
        std::memcpy(&pixels[i], &word, sizeof word);
    }
    std::vector<std::int32_t> labels(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 10);
    return {"random images", {32, 32, 3}, std::move(pixels), std::move(labels), std::vector<std::string>(10, "class")};
}

}  // namespace gpu_tests
