// SPDX-License-Identifier: Apache-2.0
//
// The common part of the tests of data/: images with known bytes, and contexts. (`message_of` is in tests/throws_with.hpp.)
#pragma once

#include <cupola/core/philox.hpp>
#include <cupola/data/dataset.hpp>

#include "../standard.hpp"
#include "throws_with.hpp"

namespace cupola_tests {

/// Random bytes, so every image differs from every other and from itself mirrored.
inline cupola::ImageSet random_images(std::int64_t count, std::int64_t height, std::int64_t width,
                                      std::uint64_t seed = 7, std::int64_t channels = 3) {
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count * height * width * channels));
    for (std::size_t i = 0; i < pixels.size(); ++i) {
        const cupola::RandomStream random(seed, cupola::RngDomain::user, 0, i);
        pixels[i] = static_cast<std::uint8_t>(random.words(0)[0] >> 24);
    }
    std::vector<std::int32_t> labels(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 10);
    return {"random images",
            {height, width, channels},
            std::move(pixels),
            std::move(labels),
            {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}};
}

/// Replaces a device of one thread: batches need only `parallel_for` of a context.
struct SerialContext {};

template <class Function>
void parallel_for(const SerialContext&, std::int64_t count, Function&& f) {
    for (std::int64_t i = 0; i < count; ++i) f(i);
}

/// Threads of a host device in a test of many threads; ThreadSanitizer does not know libgomp's barriers.
#if defined(__SANITIZE_THREAD__)
inline constexpr int several_threads = 1;
#else
inline constexpr int several_threads = 3;
#endif

}  // namespace cupola_tests
