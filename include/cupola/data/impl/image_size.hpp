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
    /// Of the upright image.
    ImageSize size{};
    /// Samples have 16 bits: decode() rejects them, decode_wide() reads them.
    bool wide = false;
    /// The file breaks its format's rules in a way that leaves the pixels certain; null for none, or what it is, for a
    /// warning.
    const char* flaw = nullptr;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
