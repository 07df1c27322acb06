// SPDX-License-Identifier: Apache-2.0
//
// The algorithms of a library that were chosen for operations, as text, so that another run uses the same ones and adds
// in the same order. One line per choice,
//
//   <the operation's key>, a tab, <engine>, and for each knob a blank and <knob>=<value>
//
// sorted, after a line that names the format. The owner of a file reads and writes the text. A choice applies to one
// version of the library and one kind of device, which its key names; several texts can be joined to one.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>

namespace cupola::inline CUPOLA_ABI {

/// An engine of cuDNN, by its number for a graph, and its knobs with their values.
struct EngineChoice {
    std::int64_t engine = 0;
    std::vector<std::pair<std::int64_t, std::int64_t>> knobs;
    friend bool operator==(const EngineChoice&, const EngineChoice&) = default;
};

/// Shared by the threads of all devices.
class PlanChoices {
public:
    static constexpr std::string_view head = "cupola plan choices 1";

    PlanChoices() = default;
    /// Throws InvalidArgument with the line's number if `text` does not have this format. `name` is the source in the
    /// message, such as a file's name.
    explicit PlanChoices(std::string_view text, std::string_view name = "the text of plan choices") {
        read(text, name);
    }

    [[nodiscard]] std::optional<EngineChoice> find(const std::string& key) const {
        const std::scoped_lock lock(mutex_);
        const auto place = choices_.find(key);
        if (place == choices_.end()) return std::nullopt;
        return place->second;
    }
    /// Replaces the entry of this key, if there is one.
    void set(const std::string& key, EngineChoice choice) {
        require(!key.empty() && key.find_first_of("\t\n\r") == std::string::npos,
                "the key of a plan must be one non-empty line without tabs");
        const std::scoped_lock lock(mutex_);
        choices_[key] = std::move(choice);
    }
    [[nodiscard]] std::size_t size() const {
        const std::scoped_lock lock(mutex_);
        return choices_.size();
    }

    [[nodiscard]] std::string to_text() const {
        const std::scoped_lock lock(mutex_);
        std::string result(head);
        result += '\n';
        for (const auto& [key, choice] : choices_) {
            result += text(key, '\t', choice.engine);
            for (const auto& [knob, value] : choice.knobs) result += text(' ', knob, '=', value);
            result += '\n';
        }
        return result;
    }

private:
    void read(std::string_view rest, std::string_view name) {
        std::int64_t number = 0;
        while (!rest.empty()) {
            const std::size_t end = rest.find('\n');
            ++number;
            require(end != std::string_view::npos, name, " is truncated in line ", number);
            const std::string_view line = rest.substr(0, end);
            rest.remove_prefix(end + 1);
            if (number == 1) {
                require(line == head, name, " does not begin with \"", head, "\"");
                continue;
            }
            const std::size_t tab = line.find('\t');
            EngineChoice choice;
            const bool good = tab != std::string_view::npos && tab > 0 && read_choice(line.substr(tab + 1), choice);
            require(good, name, ", line ", number,
                    ": expected a key, a tab, the number of an engine and its knobs as number=number");
            require(choices_.emplace(line.substr(0, tab), std::move(choice)).second, name, ", line ", number,
                    ": the key is that of an earlier line");
        }
        require(number > 0, name, " is empty");
    }

    [[nodiscard]] static bool read_number(std::string_view& rest, std::int64_t& number) {
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
        if (error != std::errc{}) return false;
        rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
        return true;
    }
    [[nodiscard]] static bool skip(std::string_view& rest, char expected) {
        if (rest.empty() || rest.front() != expected) return false;
        rest.remove_prefix(1);
        return true;
    }
    [[nodiscard]] static bool read_choice(std::string_view rest, EngineChoice& choice) {
        if (!read_number(rest, choice.engine)) return false;
        while (!rest.empty()) {
            auto& [knob, value] = choice.knobs.emplace_back();
            if (!skip(rest, ' ') || !read_number(rest, knob) || !skip(rest, '=') || !read_number(rest, value))
                return false;
        }
        return true;
    }

    mutable std::mutex mutex_;
    std::map<std::string, EngineChoice> choices_;
};

}  // namespace cupola::inline CUPOLA_ABI
