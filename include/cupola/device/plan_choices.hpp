// SPDX-License-Identifier: Apache-2.0
//
// The algorithms that were chosen for the operations of a library, as text, so that another run uses the same ones and
// adds in the same order. One line per choice,
//
//   <the operation's key>, a tab, <engine>, and for each knob a blank and <knob>=<value>
//
// sorted, after a line that names the format and one with the driver, "driver CUDA 13.0". The owner of a file reads and
// writes the text. A choice applies to one version of the library and one kind of device, with which its key begins:
// "cuDNN 91900, NVIDIA H200, ...". With another driver it gives the same bits, but may no longer be the fastest. For
// choices that do not fit this process there is one line for a run to print.
//
// It also records, for each operation, how its algorithm was chosen in this process, as lines for a run to print.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// An engine of cuDNN, by its number in a graph, and its knobs with their values; or an algorithm of cuBLASLt by its
/// number, and the words of its configuration with their indices.
struct EngineChoice {
    std::int64_t engine = 0;
    std::vector<std::pair<std::int64_t, std::int64_t>> knobs;
    friend bool operator==(const EngineChoice&, const EngineChoice&) = default;
};

/// A candidate for a plan, and the seconds of one run.
struct TimedCandidate {
    std::string name;
    double seconds = 0;
    friend bool operator==(const TimedCandidate&, const TimedCandidate&) = default;
};

/// How the plan of an operation was chosen in this process.
struct PlanRecord {
    enum class Source : std::uint8_t {
        /// It was among the choices that existed before: of another run, or of another device.
        kept,
        /// It was the fastest of the candidates.
        timed,
        /// It is the first that the library offered and the rules allow.
        first
    };
    std::string key = {};
    EngineChoice choice = {};
    /// The choice in a line: "engine 4 2=8 18=1".
    std::string name = {};
    Source source = Source::first;
    /// Seconds of one run: of the choice, and the least of the other candidates; 0 where there was none.
    double seconds = 0, next_seconds = 0;
    /// The candidates that were timed, and those for which no time was left.
    int timed = 0, not_timed = 0;
    /// Those that were timed, in the order in which they were offered.
    std::vector<TimedCandidate> candidates = {};
};

/// "plan of cuDNN 91900, ...: engine 4 2=8, 0.0123 ms, the fastest of 7 (the next: 0.0140 ms)".
[[nodiscard, gnu::cold]] inline std::string to_string(const PlanRecord& record) {
    const auto milliseconds = [](double seconds) { return text(Decimals{seconds * 1e3, 4}, " ms"); };
    std::string result = text("plan of ", record.key, ": ", record.name);
    if (record.source == PlanRecord::Source::kept) return result + ", as chosen before";
    if (record.source == PlanRecord::Source::first) return result + ", the first that is offered";
    result += text(", ", milliseconds(record.seconds));
    if (record.timed > 1)
        result += text(", the fastest of ", record.timed, " (the next: ", milliseconds(record.next_seconds), ')');
    if (record.not_timed > 0) result += text("; no time was left for ", record.not_timed, " others");
    return result;
}

/// Shared by the threads of all devices.
class PlanChoices {
public:
    static constexpr std::string_view head = "cupola plan choices 2";
    /// The head of texts without a driver, which are read too.
    static constexpr std::string_view older_head = "cupola plan choices 1";

    PlanChoices() = default;
    /// Throws InvalidArgument with the line's number if `text` does not have this format. `name` is the source in the
    /// message, such as a file's name.
    explicit PlanChoices(std::string_view text, std::string_view name = "the text of plan choices") {
        read(text, name);
        name_ = name;
        for (const auto& [key, choice] : choices_) ++read_[std::string(origin_of(key))];
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

    /// The library, its version and the device: the part of a key before its second comma.
    [[nodiscard]] static std::string_view origin_of(std::string_view key) {
        const std::size_t first = std::min(key.find(','), key.size());
        return key.substr(0, key.find(',', std::min(first + 1, key.size())));
    }
    /// Sets the driver of this process, "CUDA 13.0". The first time that it differs from the driver of the text that
    /// was read, adds a line that says so. The choices of the text are used.
    void set_driver(std::string_view driver) {
        const std::scoped_lock lock(mutex_);
        if (read_.empty()) {
            driver_ = driver;
        } else if (!driver_.empty() && driver_ != driver && announced_.insert(std::string(driver)).second) {
            lines_.push_back(text(name_, " has choices that were made with a driver for ", driver_,
                                  ", and this driver is for ", driver,
                                  ": they are used, and may not be the fastest any more"));
        }
    }
    /// Held by the device that times candidates: the others wait, and then find its choice. As only one measurement
    /// runs at a time, two contexts on one GPU do not disturb each other's.
    [[nodiscard]] std::unique_lock<std::mutex> measure() { return std::unique_lock(measurements_); }

    /// Adds the record of an operation whose plan was made, or replaces the one of another choice. If the text that was
    /// read has no choices for the device but some for another device, or none for this version of the library but some
    /// for another version on the same device, the first such record adds a line that says so.
    void record(PlanRecord made) {
        const std::scoped_lock lock(mutex_);
        const auto earlier = used_.find(made.key);
        if (earlier != used_.end() && earlier->second == made.choice) return;
        std::erase_if(records_, [&](const PlanRecord& each) { return each.key == made.key; });
        announce_others(std::string(origin_of(made.key)));
        used_[made.key] = made.choice;
        lines_.push_back(to_string(made));
        records_.push_back(std::move(made));
    }
    /// Adds a line about a plan.
    void note(std::string line) {
        const std::scoped_lock lock(mutex_);
        lines_.push_back(std::move(line));
    }
    /// The same, unless this text has been added by this function before.
    void note_once(std::string line) {
        const std::scoped_lock lock(mutex_);
        if (announced_.insert(line).second) lines_.push_back(std::move(line));
    }
    /// The records in the order in which they were added.
    [[nodiscard]] std::vector<PlanRecord> records() const {
        const std::scoped_lock lock(mutex_);
        return records_;
    }
    /// The lines since the last call, one per record and per note.
    [[nodiscard]] std::vector<std::string> take_lines() {
        const std::scoped_lock lock(mutex_);
        return std::exchange(lines_, {});
    }
    /// Identifies the choices that this process has used so far: "14, 5f3a9c120b7de684". Empty if there are none.
    [[nodiscard]] std::string fingerprint() const {
        const std::scoped_lock lock(mutex_);
        if (used_.empty()) return {};
        constexpr std::uint64_t offset_basis = 0xCBF29CE484222325, prime = 0x100000001B3;  // FNV-1a
        std::uint64_t hash = offset_basis;
        for (const char character : lines_of(used_)) {
            hash = (hash ^ static_cast<unsigned char>(character)) * prime;
        }
        char digits[17];
        std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
        return text(used_.size(), ", ", digits);
    }

    [[nodiscard]] std::string to_text() const {
        const std::scoped_lock lock(mutex_);
        return text(head, '\n', driver_.empty() ? "" : text(driver_line, driver_, '\n'), lines_of(choices_));
    }

private:
    using Choices = std::map<std::string, EngineChoice>;
    static constexpr std::string_view driver_line = "driver ";

    /// The device of an origin, "cuDNN 91900, NVIDIA H200".
    [[nodiscard]] static std::string_view device_of(std::string_view origin) {
        const std::size_t comma = std::min(origin.find(", "), origin.size());
        return origin.substr(std::min(comma + 2, origin.size()));
    }
    /// If none of the choices that were read is for this version of the library and this device, adds a line about
    /// them, once.
    void announce_others(const std::string& origin) {
        if (read_.contains(origin)) return;
        const std::string_view device = device_of(origin),
                               library = std::string_view(origin).substr(0, origin.find(' '));
        std::map<std::string, std::size_t> devices, versions;
        for (const auto& [other, count] : read_) {
            devices[std::string(device_of(other))] += count;
            if (device_of(other) == device && std::string_view(other).substr(0, other.find(' ')) == library)
                versions[other.substr(0, other.find(','))] += count;
        }
        const bool of_device = devices.contains(std::string(device));
        const std::map<std::string, std::size_t>& others = of_device ? versions : devices;
        const std::string missing = of_device ? origin.substr(0, origin.find(',')) : std::string(device);
        if (others.empty() || !announced_.insert(of_device ? origin : missing).second) return;
        std::string list;
        for (const auto& [other, count] : others)
            list += text(list.empty() ? "" : ", ", count, count == 1 ? " choice" : " choices", " for ", other);
        lines_.push_back(text(name_, " has ", list, " and none for ", missing,
                              of_device ? text(" on ", device) : std::string(), ": new ones are made"));
    }

    [[nodiscard]] static std::string lines_of(const Choices& choices) {
        std::string result;
        for (const auto& [key, choice] : choices) {
            result += text(key, '\t', choice.engine);
            for (const auto& [knob, value] : choice.knobs) result += text(' ', knob, '=', value);
            result += '\n';
        }
        return result;
    }
    void read(std::string_view rest, std::string_view name) {
        std::int64_t number = 0;
        while (!rest.empty()) {
            const std::size_t end = rest.find('\n');
            ++number;
            require(end != std::string_view::npos, name, " is truncated in line ", number);
            const std::string_view line = rest.substr(0, end);
            rest.remove_prefix(end + 1);
            if (number == 1) {
                read_head(line, name);
                continue;
            }
            if (number == 2 && line.starts_with(driver_line) && is_printable(line)) {
                driver_ = line.substr(driver_line.size());
                continue;
            }
            const std::size_t tab = line.find('\t');
            EngineChoice choice;
            const bool good = tab != std::string_view::npos && tab > 0 && is_printable(line.substr(0, tab)) &&
                              read_choice(line.substr(tab + 1), choice);
            require(good, name, ", line ", number,
                    ": expected a key, a tab, the number of an engine and its knobs as number=number");
            require(choices_.emplace(line.substr(0, tab), std::move(choice)).second, name, ", line ", number,
                    ": the key is that of an earlier line");
        }
        require(number > 0, name, " is empty");
    }

    static void read_head(std::string_view line, std::string_view name) {
        if (line == head || line == older_head) return;
        constexpr std::size_t words = head.rfind(' ') + 1;
        const std::string_view format = line.substr(std::min(words, line.size()));
        const bool is_number = !format.empty() && format.size() < 10 &&
                               std::ranges::all_of(format, [](char c) { return c >= '0' && c <= '9'; });
        require(!line.starts_with(head.substr(0, words)) || !is_number, name, " has plan choices of format ", format,
                ", and this program reads the formats ", older_head.substr(words), " and ", head.substr(words),
                ": use the program that wrote it, or another file");
        require(false, name, " does not begin with \"", head, "\"");
    }
    /// Lines of a text are shown in messages.
    [[nodiscard]] static bool is_printable(std::string_view text) {
        return std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7F; });
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
    std::mutex measurements_;
    Choices choices_, used_;
    /// The source of the text, the driver with which it was made, and its choices per library's version and device.
    std::string name_, driver_;
    std::map<std::string, std::size_t> read_;
    /// What has been announced, and is not announced again: origins, and lines of note_once().
    std::set<std::string> announced_;
    std::vector<PlanRecord> records_;
    std::vector<std::string> lines_;
};

}}  // namespace cupola::CUPOLA_ABI
