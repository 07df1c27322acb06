// SPDX-License-Identifier: Apache-2.0
//
// What the control groups of this process allow: a container's limits of memory and of processor time. The limit of
// every group counts, from the process's own up to the first that the mounted hierarchy shows; version 1 (a hierarchy
// per controller), version 2 and a mixture of both are read (cgroups(7), proc(5)).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The folders of the system's files; a test sets its own.
struct SystemFolders {
    std::string proc = "/proc", control_groups = "/sys/fs/cgroup";
};

/// The number after `key` in a file such as /proc/meminfo; `fallback` if there is none.
[[gnu::cold]] std::size_t number_in_file(const char* path, std::string_view key, std::size_t fallback);

/// Calls f(folder, version) for each group of this process that has the controller, "memory" or "cpu", and for the
/// groups above it.
[[gnu::cold]] void for_each_group(const SystemFolders& system, std::string_view controller,
                                  FunctionRef<void(const std::string& folder, int version)> f);

/// The bytes that the groups of this process leave; the largest number if there is no limit.
[[nodiscard, gnu::cold]] std::size_t memory_of_groups(const SystemFolders& system = {});

/// The processor time that the groups of this process may use per second, in seconds: a number of processors, possibly
/// fractional. 0 if there is no limit.
[[nodiscard, gnu::cold]] double processors_of_groups(const SystemFolders& system = {});

}}}  // namespace cupola::CUPOLA_ABI::impl

#ifdef CUPOLA_DECL
#include <cupola/device/impl/control_groups.ipp>
#endif
