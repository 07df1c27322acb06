// SPDX-License-Identifier: Apache-2.0
//
// The names of the blocks of a residual network, "layer2.0", as PyTorch's implementations have them.
#pragma once

#include <cstddef>

#include <cupola/core/abi.hpp>
#include <cupola/core/fixed_string.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// "layer<stage>.<block>".
template <std::size_t stage, std::size_t block>
inline constexpr auto resnet_block_name = [] {
    constexpr std::size_t digits = block < 10 ? 1 : block < 100 ? 2 : block < 1000 ? 3 : 4;
    FixedString<7 + digits + 1> name;
    const char prefix[] = {'l', 'a', 'y', 'e', 'r', static_cast<char>('0' + stage), '.'};
    std::size_t size = 0;
    for (const char c : prefix) name.characters[size++] = c;
    for (std::size_t i = digits, rest = block; i > 0; --i, rest /= 10) {
        name.characters[size + i - 1] = static_cast<char>('0' + rest % 10);
    }
    return name;
}();

}}}  // namespace cupola::CUPOLA_ABI::impl
