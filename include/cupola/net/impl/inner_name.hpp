// SPDX-License-Identifier: Apache-2.0
//
// The names of layers inside named residual blocks, joined at compile time.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// FNV-1a: names are compared only where their hashes are equal, because compilers limit the number of steps.
[[nodiscard]] constexpr std::uint64_t name_hash(std::string_view name) {
    std::uint64_t hash = 14695981039346656037ULL;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return hash;
}

/// The name of a value.
struct ValueName {
    std::string_view text;
    std::uint64_t hash = 0;
    bool operator==(const ValueName&) const = default;
};

/// The prefix of the names inside a named residual block.
struct NoPrefix {
    static constexpr std::string_view text{};
};

/// The name of `Module` after the name of the block that contains it: "layer1.0.conv1".
template <class Outer, class Module>
struct InnerName {
    static constexpr auto characters = [] {
        constexpr std::size_t dot = Outer::text.empty() ? 0 : 1;
        std::array<char, Outer::text.size() + dot + Module::name.size()> result{};
        std::size_t size = 0;
        for (const char c : Outer::text) result[size++] = c;
        if (dot != 0) result[size++] = '.';
        for (const char c : Module::name) result[size++] = c;
        return result;
    }();
    static constexpr std::string_view text{characters.data(), characters.size()};
};

/// The prefix of the names inside `Module`.
template <class Outer, class Module>
struct PrefixInside {
    using Type = Outer;
};
template <class Outer, class Module>
    requires requires { Module::name; }
struct PrefixInside<Outer, Module> {
    using Type = InnerName<Outer, Module>;
};

template <class Prefix, class Module>
[[nodiscard]] constexpr std::string_view name_of() {
    if constexpr (!requires { Module::name; }) {
        return {};
    } else if constexpr (std::same_as<Prefix, NoPrefix>) {
        return Module::name;
    } else {
        return InnerName<Prefix, Module>::text;
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
