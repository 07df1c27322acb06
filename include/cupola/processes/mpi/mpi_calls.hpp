// SPDX-License-Identifier: Apache-2.0
//
// Helpers for MPI's C functions: errors as exceptions, and the mutex that serialises the calls. Also the functions of
// MPI's fault tolerance, which Open MPI has from 5.0 on: they are looked up at run time, because a program that was
// built with 4.1 also runs with 5.0.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>

// MPI's former C++ bindings are in a separate library, which newer versions do not have.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#if !__has_include(<mpi.h>)
#error "cupola/mpi.hpp needs Open MPI: configure Cupola with -DCUPOLA_MPI=ON, and link to cupola::mpi"
// Ends the compilation here: g++ passes over the include of a file that __has_include has not found.
#include <mpi.h.is.missing>
#endif
#include <mpi.h>

#include <cupola/core/error.hpp>
#include <cupola/processes/watch/process_id.hpp>

// As CUPOLA_DECL (core/abi.hpp), before definitions that need MPI: where the program is compiled with
// CUPOLA_SEPARATE_COMPILATION, they are only in the file that includes mpi_src.hpp, which defines it as empty.
#ifndef CUPOLA_SEPARATE_COMPILATION
#define CUPOLA_MPI_DECL inline
#endif

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

[[nodiscard, gnu::cold]] inline std::string mpi_error_text(int status) {
    char message[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(status, message, &length);
    return message;
}

/// Throws DeviceError if an MPI call has failed.
inline void check_mpi(int status, const char* call) {
    if (status == MPI_SUCCESS) [[likely]]
        return;
    throw DeviceError(text("MPI's ", call, " failed: ", mpi_error_text(status)));
}

[[nodiscard]] inline int mpi_flag(int (*question)(int*)) {
    int answer = 0;
    question(&answer);
    return answer;
}

/// Serialises the MPI calls of a process's threads, as MPI_THREAD_SERIALIZED requires. Held for one non-blocking call.
[[nodiscard]] inline std::mutex& mpi_mutex() {
    static std::mutex mutex;
    return mutex;
}
/// The result of an MPI call, made while no other thread calls MPI.
template <class Call>
[[nodiscard]] int serialized(Call&& call) {
    const std::scoped_lock lock(mpi_mutex());
    return call();
}

/// The ranks that the processes of a communicator have in another one, in the order of their ranks in the first.
[[nodiscard, gnu::cold]] inline std::vector<int> translated_ranks(MPI_Comm processes, MPI_Comm in) {
    MPI_Group group = MPI_GROUP_NULL, other = MPI_GROUP_NULL;
    check_mpi(MPI_Comm_group(processes, &group), "MPI_Comm_group");
    check_mpi(MPI_Comm_group(in, &other), "MPI_Comm_group");
    int count = 0;
    check_mpi(MPI_Group_size(group, &count), "MPI_Group_size");
    std::vector<int> numbers(static_cast<std::size_t>(count)), result(numbers.size());
    for (int i = 0; i < count; ++i) numbers[static_cast<std::size_t>(i)] = i;
    check_mpi(MPI_Group_translate_ranks(group, count, numbers.data(), other, result.data()),
              "MPI_Group_translate_ranks");
    MPI_Group_free(&group);
    MPI_Group_free(&other);
    return result;
}

/// Splits a communicator of one machine by PID namespace: returns the processes that are in the namespace of this one.
/// The caller frees it; collective over `machine`.
[[nodiscard, gnu::cold]] inline MPI_Comm split_by_pid_namespace(MPI_Comm machine) {
    int count = 0, number = 0;
    check_mpi(MPI_Comm_size(machine, &count), "MPI_Comm_size");
    check_mpi(MPI_Comm_rank(machine, &number), "MPI_Comm_rank");
    const ProcessId own = ProcessId::own();
    std::vector<ProcessId> all(static_cast<std::size_t>(count));
    check_mpi(MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, machine), "MPI_Allgather");
    // The color of the split is the first process in the same namespace.
    int first = 0;
    while (first < number && !all[static_cast<std::size_t>(first)].shares_pid_namespace_with(own)) ++first;
    MPI_Comm result = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(machine, first, number, &result), "MPI_Comm_split");
    return result;
}

/// The functions of MPI's fault tolerance (ULFM: user-level failure mitigation); all null without it.
struct MpiFaultTolerance {
    /// Ends all waits on a communicator with an error, on all of its processes.
    int (*revoke)(MPI_Comm) = nullptr;
    /// Makes a communicator of the surviving processes.
    int (*shrink)(MPI_Comm, MPI_Comm*) = nullptr;
    /// Computes the bitwise AND over the surviving processes; the result and the status are the same on each.
    int (*agree)(MPI_Comm, int*) = nullptr;

    /// Constants of Open MPI, which its headers define from 5.0 on: two error classes, and the attribute of
    /// MPI_COMM_WORLD that says whether the job was started with fault tolerance.
    static constexpr int process_failed = 75, revoked = 77, attribute = 12;

    /// Throws DeviceError if this MPI, or this job, has no fault tolerance.
    [[nodiscard, gnu::cold]] static MpiFaultTolerance found() {
        constexpr std::string_view wish = "a training survives the loss of a process only with ";
#ifdef OPEN_MPI
        MpiFaultTolerance functions;
        functions.revoke = reinterpret_cast<int (*)(MPI_Comm)>(dlsym(RTLD_DEFAULT, "MPIX_Comm_revoke"));
        functions.shrink = reinterpret_cast<int (*)(MPI_Comm, MPI_Comm*)>(dlsym(RTLD_DEFAULT, "MPIX_Comm_shrink"));
        functions.agree = reinterpret_cast<int (*)(MPI_Comm, int*)>(dlsym(RTLD_DEFAULT, "MPIX_Comm_agree"));
        const bool all = functions.revoke != nullptr && functions.shrink != nullptr && functions.agree != nullptr;
        const bool numbers = all && mpi_error_text(process_failed).starts_with("MPI_ERR_PROC_FAILED") &&
                             mpi_error_text(revoked).starts_with("MPI_ERR_REVOKED");
        char version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
        int length = 0;
        MPI_Get_library_version(version, &length);
        const std::string_view whole(version);
        require<DeviceError>(numbers, wish, "the fault tolerance of Open MPI 5.0, and this is ",
                             whole.substr(0, whole.find_first_of(",\n")));
        int* started = nullptr;
        int there = 0;
        check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, attribute, static_cast<void*>(&started), &there),
                  "MPI_Comm_get_attr");
        require<DeviceError>(there != 0 && *started != 0, wish,
                             "MPI's fault tolerance, and this job was started without: use `mpirun --with-ft ulfm`");
        return functions;
#else
        throw DeviceError(text(wish, "Open MPI 5.0, and this program was built with another MPI"));
#endif
    }
    /// Whether a status reports that a process was lost, or that another process has revoked the communicator because
    /// of it.
    [[nodiscard]] static bool is_loss(int status) {
        int error = MPI_SUCCESS;
        if (status == MPI_SUCCESS || MPI_Error_class(status, &error) != MPI_SUCCESS) return false;
        return error == process_failed || error == revoked;
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
