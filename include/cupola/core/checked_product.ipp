// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/core/checked_product.hpp.
#pragma once

#include <cupola/core/checked_product.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

CUPOLA_DECL void impl::throw_too_many_bytes(std::string_view what, double bytes) {
    char digits[400];
    const char* const end =
        std::to_chars(digits, digits + sizeof digits, bytes * 1e-9, std::chars_format::fixed, 1).ptr;
    throw OutOfMemory(text(what, ' ', std::string_view(digits, static_cast<std::size_t>(end - digits)),
                           " GB, more than any computer has"));
}

CUPOLA_DECL std::size_t checked_bytes(std::string_view what, std::initializer_list<std::int64_t> factors) {
    constexpr std::int64_t limit = std::int64_t{1} << 60;
    std::int64_t product = 1;
    for (const std::int64_t factor : factors) product = saturating_product(product, factor);
    if (product > limit) [[unlikely]] {
        double bytes = 1;
        for (const std::int64_t factor : factors) bytes *= static_cast<double>(factor);
        impl::throw_too_many_bytes(what, bytes);
    }
    return static_cast<std::size_t>(product);
}

}}  // namespace cupola::CUPOLA_ABI
