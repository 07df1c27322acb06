// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/device/impl/control_groups.hpp.
#pragma once

#include <cupola/device/impl/control_groups.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

CUPOLA_DECL std::size_t number_in_file(const char* path, std::string_view key, std::size_t fallback) {
    std::FILE* file = std::fopen(path, "re");
    if (file == nullptr) return fallback;
    char line[256];
    std::size_t result = fallback;
    while (std::fgets(line, sizeof line, file) != nullptr) {
        const std::string_view view(line);
        if (view.substr(0, key.size()) != key) continue;
        unsigned long long value = 0;
        if (std::sscanf(line + key.size(), "%llu", &value) == 1) result = static_cast<std::size_t>(value);
        break;
    }
    std::fclose(file);
    return result;
}

/// Calls f(line) for each line of a file, if it can be read. Lines of /proc/self/mountinfo have any length.
[[gnu::cold]] CUPOLA_DECL void for_each_line(const std::string& path, FunctionRef<void(std::string_view line)> f) {
    std::FILE* file = std::fopen(path.c_str(), "re");
    if (file == nullptr) return;
    char* line = nullptr;
    std::size_t room = 0;
    for (ssize_t size = 0; (size = getline(&line, &room, file)) > 0;) {
        const std::string_view all(line, static_cast<std::size_t>(size));
        f(all.substr(0, all.find_last_not_of('\n') + 1));
    }
    std::free(line);
    std::fclose(file);
}

/// Removes the first word, up to `separator`, from `words` and returns it.
[[nodiscard, gnu::cold]] CUPOLA_DECL std::string_view take_word(std::string_view& words, char separator) {
    const std::size_t end = std::min(words.find(separator), words.size());
    const std::string_view word = words.substr(0, end);
    words.remove_prefix(std::min(end + 1, words.size()));
    return word;
}

[[nodiscard, gnu::cold]] CUPOLA_DECL bool has_word(std::string_view list, std::string_view word) {
    while (!list.empty()) {
        if (take_word(list, ',') == word) return true;
    }
    return false;
}

/// Whether the folder `path` is `root` or below it.
[[nodiscard, gnu::cold]] CUPOLA_DECL bool lies_below(std::string_view path, std::string_view root) {
    return root == "/" || (path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/'));
}

/// The folder at which a hierarchy is mounted, and the group that is mounted there: in a container this need not be the
/// root.
struct GroupMount {
    std::string folder, group = "/";
};

/// The mount that shows the group `path`; of version 2 for an empty `controller`. If none is known, the usual one.
[[nodiscard, gnu::cold]] CUPOLA_DECL GroupMount group_mount(const SystemFolders& system, std::string_view controller,
                                                            std::string_view path) {
    constexpr std::string_view usual = "/sys/fs/cgroup";
    GroupMount found{.folder = system.control_groups + (controller.empty() ? "" : "/" + std::string(controller))};
    bool known = false;
    for_each_line(system.proc + "/self/mountinfo", [&](std::string_view line) {
        // "36 25 0:31 /group /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
        const std::size_t middle = line.find(" - ");
        if (known || middle == std::string_view::npos) return;
        std::string_view before = line.substr(0, middle), after = line.substr(middle + 3);
        for (int i = 0; i < 3; ++i) static_cast<void>(take_word(before, ' '));
        const std::string_view group = take_word(before, ' '), folder = take_word(before, ' ');
        const std::string_view type = take_word(after, ' ');
        static_cast<void>(take_word(after, ' '));
        if (controller.empty() ? type != "cgroup2" : type != "cgroup" || !has_word(after, controller)) return;
        known = lies_below(path, group);
        found.group = group;
        found.folder = folder.starts_with(usual) ? system.control_groups + std::string(folder.substr(usual.size()))
                                                 : std::string(folder);
    });
    return found;
}

CUPOLA_DECL void for_each_group(const SystemFolders& system, std::string_view controller,
                                FunctionRef<void(const std::string& folder, int version)> f) {
    for_each_line(system.proc + "/self/cgroup", [&](std::string_view line) {
        // "4:cpu,cpuacct:/group", and "0::/group" of version 2
        static_cast<void>(take_word(line, ':'));
        const std::string_view controllers = take_word(line, ':');
        const int version = controllers.empty() ? 2 : 1;
        if (version == 1 && !has_word(controllers, controller)) return;
        const GroupMount mount = group_mount(system, version == 2 ? std::string_view() : controller, line);
        // A process outside the mounted groups, "/..", has at least the limits of the topmost of them.
        std::string_view below;
        if (lies_below(line, mount.group) && line.find("/..") == std::string_view::npos)
            below = mount.group == "/" ? line : line.substr(mount.group.size());
        while (below.ends_with('/')) below.remove_suffix(1);
        if (!below.starts_with('/')) below = {};  // not a group's path, which the loop would not shorten
        for (;; below = below.substr(0, below.rfind('/'))) {
            f(mount.folder + std::string(below), version);
            if (below.empty()) return;
        }
    });
}

CUPOLA_DECL std::size_t memory_of_groups(const SystemFolders& system) {
    constexpr std::size_t unlimited = ~std::size_t{0};
    std::size_t left = unlimited;
    for_each_group(system, "memory", [&](const std::string& folder, int version) {
        const std::string statistics = folder + "/memory.stat";
        const auto number = [&](const char* file) { return number_in_file((folder + file).c_str(), "", unlimited); };
        const auto statistic = [&](const char* key, std::size_t fallback) {
            return number_in_file(statistics.c_str(), key, fallback);
        };
        std::size_t limit = number(version == 2 ? "/memory.max" : "/memory.limit_in_bytes");
        // The limit includes those of the groups above, also of those that a container does not show.
        if (version == 1) limit = std::min(limit, statistic("hierarchical_memory_limit ", unlimited));
        if (limit == unlimited) return;
        std::size_t used = number(version == 2 ? "/memory.current" : "/memory.usage_in_bytes");
        if (used == unlimited) used = 0;
        // The kernel frees the memory of cached files when needed.
        for (const bool active : {true, false}) {
            const char* const files = version == 2 ? active ? "active_file " : "inactive_file "
                                      : active     ? "total_active_file "
                                                   : "total_inactive_file ";
            used -= std::min(used, statistic(files, 0));
        }
        left = std::min(left, limit - std::min(used, limit));
    });
    return left;
}

CUPOLA_DECL double processors_of_groups(const SystemFolders& system) {
    double least = 0;
    for_each_group(system, "cpu", [&](const std::string& folder, int version) {
        long long quota = -1, period = 0;
        const auto read = [](const std::string& path, long long& first, long long* second) {
            for_each_line(path, [&](std::string_view line) {
                char* end = nullptr;
                const std::string numbers(line);  // "max 100000" of version 2 and "-1" of version 1 are no limit
                const long long value = std::strtoll(numbers.c_str(), &end, 10);
                if (end == numbers.c_str()) return;
                first = value;
                if (second != nullptr) *second = std::strtoll(end, nullptr, 10);
            });
        };
        if (version == 2) {
            read(folder + "/cpu.max", quota, &period);
        } else {
            read(folder + "/cpu.cfs_quota_us", quota, nullptr);
            read(folder + "/cpu.cfs_period_us", period, nullptr);
        }
        if (quota <= 0 || period <= 0) return;
        const double processors = static_cast<double>(quota) / static_cast<double>(period);
        if (least == 0 || processors < least) least = processors;
    });
    return least;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
