// SPDX-License-Identifier: Apache-2.0
//
// The size of an image in pixels.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI::impl {

struct ImageSize {
    std::int64_t height = 0, width = 0;

    bool operator==(const ImageSize&) const = default;
};

}  // namespace cupola::inline CUPOLA_ABI::impl
