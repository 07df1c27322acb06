// SPDX-License-Identifier: Apache-2.0
//
// The size of an image in pixels, and what else its file says.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct ImageSize {
    std::int64_t height = 0, width = 0;

    bool operator==(const ImageSize&) const = default;
};

/// What a decoder found in a file.
struct ImageInfo {
    /// The size of the upright image.
    ImageSize size{};
    /// Samples have 16 bits: decode() rejects them, decode_wide() reads them.
    bool wide = false;
    /// For a warning, how the file breaks its format's rules in a way that does not affect the pixels; null if it does
    /// not.
    const char* flaw = nullptr;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
