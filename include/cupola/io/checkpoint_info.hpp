// SPDX-License-Identifier: Apache-2.0
//
// The information in a checkpoint about the run that wrote it, as names and texts in a fixed order: seed, schedule,
// optimiser, batch size, processor. A run that resumes compares its own: `differences(checkpoint.info, mine)`.
//
// A text may be a list, of one element per line (`list_text`), such as the names of the classes, `classes_key`. Of two
// lists the first elements that differ are reported.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/impl/json_text.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

class CheckpointInfo {
public:
    using Entry = std::pair<std::string, std::string>;

    /// Adds a text, or replaces the one of that name.
    void set(std::string_view key, std::string value) {
        const auto place = place_of(key);
        if (place == entries_.end()) {
            entries_.emplace_back(key, std::move(value));
        } else {
            entries_[static_cast<std::size_t>(place - entries_.begin())].second = std::move(value);
        }
    }
    /// Null if there is no text of that name.
    [[nodiscard]] const std::string* find(std::string_view key) const {
        const auto place = place_of(key);
        return place == entries_.end() ? nullptr : &place->second;
    }
    [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
    /// Throws InvalidArgument for an entry that no checkpoint can have: one that checkpoints have of their own, or a
    /// text that is not UTF-8.
    [[gnu::cold]] void require_storable() const {
        for (const auto& [key, value] : entries_) {
            require(!key.starts_with("cupola.") && key != "format" && key != "crc32c",
                    "the info of a run has the entry ", impl::shown(key), ", which checkpoints have of their own");
            for (std::string_view rest : {std::string_view(key), std::string_view(value)}) {
                while (!rest.empty()) {
                    const std::size_t length = impl::utf8_length(rest);
                    require(length > 0, "the entry ", impl::shown(key),
                            " of the info of a run is not UTF-8: ", impl::shown(value));
                    rest.remove_prefix(length);
                }
            }
        }
    }

    bool operator==(const CheckpointInfo&) const = default;

private:
    [[nodiscard]] std::vector<Entry>::const_iterator place_of(std::string_view key) const {
        return std::ranges::find(entries_, key, &Entry::first);
    }
    std::vector<Entry> entries_;
};

/// The entry with the names of the classes: label k is the k-th of the list.
inline constexpr std::string_view classes_key = "classes";

/// A list as one text: an element per line, in which a line break is `\n`, a backslash `\\`, and a byte that is not
/// part of a character of UTF-8 `\xFF`, with its two digits.
[[nodiscard, gnu::cold]] inline std::string list_text(std::span<const std::string> elements) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    std::string result;
    for (std::size_t k = 0; k < elements.size(); ++k) {
        if (k > 0) result += '\n';
        for (std::string_view rest = elements[k]; !rest.empty();) {
            const std::size_t length = impl::utf8_length(rest);
            const auto byte = static_cast<unsigned char>(rest[0]);
            if (length == 0) {
                result += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
            } else if (rest[0] == '\n') {
                result += "\\n";
            } else {
                if (rest[0] == '\\') result += '\\';
                result += rest.substr(0, length);
            }
            rest.remove_prefix(length == 0 ? 1 : length);
        }
    }
    return result;
}
/// The elements of a text that list_text() made of one or more.
[[nodiscard, gnu::cold]] inline std::vector<std::string> list_elements(std::string_view list) {
    std::vector<std::string> elements(1);
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i] == '\n') {
            elements.emplace_back();
            continue;
        }
        const char kind = list[i] == '\\' && i + 1 < list.size() ? list[++i] : '\0';
        const bool byte = kind == 'x' && i + 2 < list.size() && impl::hex_digit(list[i + 1]) >= 0 &&
                          impl::hex_digit(list[i + 2]) >= 0;
        elements.back() += kind == 'n' ? '\n'
                           : byte ? static_cast<char>(impl::hex_digit(list[i + 1]) * 16 + impl::hex_digit(list[i + 2]))
                                  : list[i];
        if (byte) i += 2;
    }
    return elements;
}

/// One text that differs between two runs; empty for a run that does not have it.
struct InfoDifference {
    std::string key, before, now;

    bool operator==(const InfoDifference&) const = default;
};

/// "seed was 1 and is 2"; of two lists "classes[1] was 10 and is 2", with the first elements that differ, counted from
/// 0.
[[nodiscard]] inline std::string to_string(const InfoDifference& difference) {
    const auto is_list = [](std::string_view value) { return value.find('\n') != value.npos; };
    const auto lines_of = [](std::string_view value) {
        std::vector<std::string_view> lines;
        for (std::size_t begin = 0, end = 0; end != value.npos; begin = end + 1) {
            end = value.find('\n', begin);
            lines.push_back(value.substr(begin, end - begin));
        }
        return lines;
    };
    constexpr std::size_t most = 1000;  // the descriptions of losses and networks are whole
    const auto shown = [&](std::string_view value) {
        if (value.empty()) return std::string("not recorded");
        if (!is_list(value)) return impl::shown(value, most);
        return text("a list of ", lines_of(value).size());
    };
    if (difference.before.empty() || difference.now.empty() ||
        (!is_list(difference.before) && !is_list(difference.now)))
        return text(difference.key, " was ", shown(difference.before), " and is ", shown(difference.now));
    const std::vector<std::string_view> before = lines_of(difference.before), now = lines_of(difference.now);
    std::size_t i = 0;
    while (i < before.size() && i < now.size() && before[i] == now[i]) ++i;
    const auto line = [&](const std::vector<std::string_view>& of) {
        return i < of.size() ? impl::shown(of[i], most) : std::string("none");
    };
    return text(difference.key, '[', i, "] was ", line(before), " and is ", line(now));
}

/// The differences between two runs: in the order of `before`, then those that only `now` has.
[[nodiscard]] inline std::vector<InfoDifference> differences(const CheckpointInfo& before, const CheckpointInfo& now) {
    std::vector<InfoDifference> result;
    for (const auto& [key, value] : before.entries()) {
        const std::string* other = now.find(key);
        const std::string current = other == nullptr ? "" : *other;
        if (current != value) result.push_back({key, value, current});
    }
    for (const auto& [key, value] : now.entries()) {
        if (before.find(key) == nullptr && !value.empty()) result.push_back({key, "", value});
    }
    return result;
}

}}  // namespace cupola::CUPOLA_ABI
