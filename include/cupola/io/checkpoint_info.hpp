// SPDX-License-Identifier: Apache-2.0
//
// The information in a checkpoint about the run that wrote it, as names and texts in a fixed order: seed, schedule, optimiser,
// batch size, processor. A run that resumes compares its own: `differences(checkpoint.info, mine)`.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>

namespace cupola::inline CUPOLA_ABI {

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

    bool operator==(const CheckpointInfo&) const = default;

private:
    [[nodiscard]] std::vector<Entry>::const_iterator place_of(std::string_view key) const {
        return std::ranges::find(entries_, key, &Entry::first);
    }
    std::vector<Entry> entries_;
};

/// One text that differs between two runs; empty for a run that does not have it.
struct InfoDifference {
    std::string key, before, now;

    bool operator==(const InfoDifference&) const = default;
};

/// "seed was 1 and is 2".
[[nodiscard]] inline std::string to_string(const InfoDifference& difference) {
    const auto shown = [](const std::string& value) {
        return value.empty() ? std::string_view("not recorded") : std::string_view(value);
    };
    return text(difference.key, " was ", shown(difference.before), " and is ", shown(difference.now));
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

}  // namespace cupola::inline CUPOLA_ABI
