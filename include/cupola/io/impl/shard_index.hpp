// SPDX-License-Identifier: Apache-2.0
//
// The index of a model that is stored in several files, as Hugging Face's libraries write it:
//
//   {"metadata": {"total_size": 32}, "weight_map": {"fc.bias": "model-00002-of-00002.safetensors", ...}}
//
// Only weight_map is looked at. What is allocated is bounded by the size of the index.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/listed.hpp>
#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/impl/json_text.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class ShardIndex {
public:
    /// A tensor and the file that has it, beside the index.
    struct Entry {
        std::string_view tensor, file;
    };

    /// `path` is for messages. Throws DataError.
    [[gnu::cold]] ShardIndex(std::string content, const std::string& path) : text_(std::move(content)) {
        if (text_.starts_with(utf8_byte_order_mark)) text_.erase(0, utf8_byte_order_mark.size());
        JsonText json(text_, path, {.format = "an index of files of tensors", .part = ""});
        bool has_map = false;
        json.expect('{');
        if (!json.accept('}')) {
            do {
                std::string key(json.string());
                key.resize(unescape(key.data(), key).size());
                json.expect(':');
                if (key != "weight_map") {
                    json.skip_value();
                    continue;
                }
                if (std::exchange(has_map, true)) json.fail("weight_map appears twice");
                read_map(json);
            } while (json.accept(','));
            json.expect('}');
        }
        json.expect_end();
        require<DataError>(has_map, path,
                           " is a JSON text, and not in the safetensors format: it has no weight_map either, which an "
                           "index of several files has");
        for (Entry& entry : entries_) {
            for (std::string_view* const written : {&entry.tensor, &entry.file})
                *written = unescape(text_.data() + (written->data() - text_.data()), *written);
        }
        heap_sort(entries_, {}, &Entry::tensor);
        const auto twice = std::ranges::adjacent_find(entries_, {}, &Entry::tensor);
        if (twice != entries_.end())
            throw DataError(text(path, " is damaged: it has the tensor ", shown(twice->tensor), " twice"));
        for (const Entry& entry : entries_) {
            const std::string_view file = entry.file;
            const bool beside = !file.empty() && file != "." && file != ".." && file.find('/') == file.npos &&
                                file.find('\0') == file.npos;
            if (!beside)
                throw DataError(text(path, " names the file '", shown(file), "' for its tensor ", shown(entry.tensor),
                                     ", and only files in the folder of the index are read"));
        }
    }
    ShardIndex(const ShardIndex&) = delete;
    ShardIndex& operator=(const ShardIndex&) = delete;

    /// Whether a file that begins with these bytes may be an index. The length of a safetensors header has a zero.
    [[nodiscard]] static bool has_format(std::string_view bytes) {
        if (bytes.starts_with(utf8_byte_order_mark)) bytes.remove_prefix(utf8_byte_order_mark.size());
        const std::size_t first = bytes.find_first_not_of(" \t\r\n");
        return first != bytes.npos && bytes[first] == '{' && bytes.substr(0, 8).find('\0') == bytes.npos;
    }

    /// In the order of the tensors' names.
    [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

private:
    void read_map(JsonText& json) {
        json.expect('{');
        if (json.accept('}')) return;
        do {
            const std::string_view tensor = json.string();
            json.expect(':');
            entries_.push_back({tensor, json.string()});
        } while (json.accept(','));
        json.expect('}');
    }

    std::string text_;
    std::vector<Entry> entries_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
