// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <cupola/data/open.hpp>

cupola::ImageData load_images(const std::string& path, int threads) {
    return cupola::open_image_data(path.empty() ? CUPOLA_SAMPLE_DATA : path, threads);
}
