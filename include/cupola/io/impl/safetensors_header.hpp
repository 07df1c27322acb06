// SPDX-License-Identifier: Apache-2.0
//
// The header of a safetensors file as a list of tensors and texts that point into it. Each tensor is checked by itself:
// its type is known, its extents take the bytes that its offsets give it. Nothing is allocated but the two lists, and
// they are limited.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/impl/json_text.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// One tensor of a file. Its texts lie in the file's bytes.
struct SafeTensor {
    std::string_view name;
    /// As the file has it: "F32", "I64", "BF16".
    std::string_view type;
    /// The extents as the file has them: "64, 5, 5, 3".
    std::string_view extents;
    /// Where its bytes lie in the data.
    std::uint64_t begin = 0, end = 0;

    [[nodiscard]] std::vector<std::int64_t> shape() const {
        std::vector<std::int64_t> result;
        const std::string nothing;
        impl::JsonText list(extents, nothing);
        if (extents.empty()) return result;
        do result.push_back(static_cast<std::int64_t>(list.natural()));
        while (list.accept(','));
        return result;
    }
    /// The number of its elements. The readers have checked that it can be counted.
    [[nodiscard]] std::uint64_t elements() const {
        std::uint64_t result = 1;
        for (const std::int64_t extent : shape()) result *= static_cast<std::uint64_t>(extent);
        return result;
    }
};

namespace impl {

inline constexpr std::size_t max_safetensors = 14'000, max_safetensors_texts = 1'000, max_safetensors_rank = 64;

/// The bytes of an element, or 0 for a type that is not known.
[[nodiscard]] inline std::uint64_t safetensors_element_bytes(std::string_view type) {
    struct Type {
        std::string_view name;
        std::uint64_t bytes;
    };
    static constexpr std::array<Type, 19> types{{{"BOOL", 1},
                                                 {"U8", 1},
                                                 {"I8", 1},
                                                 {"F8_E5M2", 1},
                                                 {"F8_E4M3", 1},
                                                 {"F8_E8M0", 1},
                                                 {"F8_E4M3FNUZ", 1},
                                                 {"F8_E5M2FNUZ", 1},
                                                 {"I16", 2},
                                                 {"U16", 2},
                                                 {"F16", 2},
                                                 {"BF16", 2},
                                                 {"I32", 4},
                                                 {"U32", 4},
                                                 {"F32", 4},
                                                 {"I64", 8},
                                                 {"U64", 8},
                                                 {"F64", 8},
                                                 {"C64", 8}}};
    for (const Type& known : types) {
        if (known.name == type) return known.bytes;
    }
    return 0;
}

class SafetensorsHeader {
public:
    using Texts = std::vector<std::pair<std::string_view, std::string_view>>;

    SafetensorsHeader(std::string_view header, const std::string& path) : header_(header), json_(header, path) {
        // Each tensor has one brace, so the number of braces is enough; the limit bounds the memory.
        const auto braces = static_cast<std::size_t>(std::ranges::count(header, '{'));
        tensors.reserve(std::min(max_safetensors, braces));
        read();
    }

    std::vector<SafeTensor> tensors;
    Texts metadata;

private:
    [[gnu::cold]] void read() {
        json_.expect('{');
        bool metadata_seen = false;
        if (!json_.accept('}')) {
            do {
                const std::string_view name = json_.string();
                json_.expect(':');
                if (name == "__metadata__") {
                    if (metadata_seen) json_.fail("__metadata__ appears twice");
                    metadata_seen = true;
                    read_metadata();
                } else {
                    read_tensor(name);
                }
            } while (json_.accept(','));
            json_.expect('}');
        }
        json_.expect_end();
    }

    [[gnu::cold]] void read_metadata() {
        json_.expect('{');
        if (json_.accept('}')) return;
        do {
            const std::string_view key = json_.string();
            json_.expect(':');
            if (metadata.size() == max_safetensors_texts)
                json_.fail("__metadata__ has more than ", max_safetensors_texts, " entries");
            metadata.emplace_back(key, json_.string());
        } while (json_.accept(','));
        json_.expect('}');
    }

    [[gnu::cold]] void read_tensor(std::string_view name) {
        if (tensors.size() == max_safetensors) json_.fail("there are more than ", max_safetensors, " tensors");
        SafeTensor tensor;
        tensor.name = name;
        bool has_type = false, has_shape = false, has_place = false;
        std::uint64_t elements = 1;
        json_.expect('{');
        do {
            const std::string_view key = json_.string();
            json_.expect(':');
            const auto first = [&](bool& seen) {
                if (std::exchange(seen, true)) json_.fail("'", key, "' appears twice");
            };
            if (key == "dtype") {
                first(has_type);
                tensor.type = json_.string();
                if (safetensors_element_bytes(tensor.type) == 0)
                    json_.fail("a tensor has the unknown type '", shown(tensor.type), "'");
            } else if (key == "shape") {
                first(has_shape);
                json_.expect('[');
                const std::size_t begin = json_.place();
                std::size_t end = begin;
                if (!json_.accept(']')) {
                    std::size_t rank = 0;
                    do {
                        if (++rank > max_safetensors_rank)
                            json_.fail("a tensor has more than ", max_safetensors_rank, " extents");
                        if (__builtin_mul_overflow(elements, json_.natural(), &elements))
                            json_.fail("a tensor's size is too large");
                        end = json_.place();
                    } while (json_.accept(','));
                    json_.expect(']');
                }
                tensor.extents = header_.substr(begin, end - begin);
            } else if (key == "data_offsets") {
                first(has_place);
                json_.expect('[');
                tensor.begin = json_.natural();
                json_.expect(',');
                tensor.end = json_.natural();
                json_.expect(']');
            } else {
                json_.fail("a tensor has '", shown(key), "', which is not dtype, shape or data_offsets");
            }
        } while (json_.accept(','));
        json_.expect('}');
        if (!has_type || !has_shape || !has_place) json_.fail("a tensor lacks its dtype, shape or data_offsets");
        std::uint64_t bytes = 0;
        const bool fits = !__builtin_mul_overflow(elements, safetensors_element_bytes(tensor.type), &bytes);
        if (!fits || tensor.end < tensor.begin || tensor.end - tensor.begin != bytes) {
            json_.fail("a tensor's shape does not match its data_offsets");
        }
        tensors.push_back(tensor);
    }

    std::string_view header_;
    JsonText json_;
};

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
