// SPDX-License-Identifier: Apache-2.0
//
// NcclAllReduce: an all-reduce of the replicas' gradients by NCCL, on the devices of one process or of several:
//
//   mean = (sum over all ranks of the sum over their replicas of n_i g_i) / (sum of n_i)
//
// A rank is a device of a process, and each process has the same number of devices: rank = process * devices + device.
// The gradients of replicas that share a device are first added there. The policy needs devices that NCCL supports; on
// `Host` it is rejected at compile time, where `ConcatMean` can be used instead. The implementation for `Cuda` is in
// <cupola/nccl.hpp>, which a program includes in addition to <cupola/cuda.hpp>.
//
// Several processes are started by torchrun, mpirun, srun or by hand. The replicas of a training are those of all
// processes, and their number must be a multiple of the number P of processes: process p has the replicas [p R / P, (p
// + 1) R / P). Each process reports all replicas, in order.
//
// Each wait has a deadline, and the error names the missing ranks. Processes on one machine see each other's heartbeats
// through a file; ranks on other machines are not visible, and the error states that.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/parallel/averaging.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Defined in processes/nccl_environment.hpp.
class NcclEnvironment;

namespace impl {

/// The implementation of the members of NcclAllReduce that read the launcher's variables. Incomplete here; defined in
/// processes/nccl_launch.hpp.
struct NcclLaunch;

/// The collective of a process's devices. Incomplete here; defined in <cupola/nccl.hpp>, the only header that needs
/// NCCL.
template <class Device, class Element = float>
class NcclCollective;

}  // namespace impl

struct NcclAllReduce {
    static constexpr std::string_view name = "NcclAllReduce";
    template <class Device>
    using Collective = impl::NcclCollective<Device>;
    /// The collective of Compressed<NcclAllReduce, Element>: the sums and their memory have that type.
    template <class Device, class Element>
    using CompressedCollective = impl::NcclCollective<Device, Element>;
    /// The program that starts the processes may set this variable to the id of ncclGetUniqueId, in hexadecimal digits.
    static constexpr const char* id_variable = "CUPOLA_NCCL_ID";

    /// The number of processes that train together, and the number of this one among them. With 0 processes both are
    /// taken from the launcher's environment variables, or are 1 and 0 without a launcher: RANK and WORLD_SIZE,
    /// OMPI_COMM_WORLD_RANK and ..._SIZE, PMIX_RANK and SLURM_STEP_NUM_TASKS, PMI_RANK and PMI_SIZE, or SLURM_PROCID
    /// and SLURM_STEP_NUM_TASKS; the first pair that is set.
    int processes = 0, process = 0;
    /// The file in which process 0 passes NCCL's id to the others, on a disk of this machine; its name must be new for
    /// each start. Process 0 removes it once all have started. With the environment variable it only names the
    /// heartbeat file. A single process needs neither this nor an address.
    std::string id_file{};
    /// "host:port" of process 0, which listens there and sends NCCL's id to the others. If empty, without an id_file
    /// and without the environment variable, MASTER_ADDR and MASTER_PORT are used.
    std::string address{};
    /// The folder for the file `process-<number>.fault`; it must exist. If it is set, a process of several whose wait
    /// for others ends in an error writes the step, the operation and the missing ranks there and to standard error,
    /// and exits with status 75 within 1 s of the deadline. Otherwise a DeviceError is thrown.
    std::string folder{};
    /// The minimum size in bytes of a bucket of the gradient that is summed during the backward pass; 0 for one sum at
    /// its end. With more than two ranks the order of NCCL's additions, and so the last bits, depend on it.
    std::int64_t bucket_bytes = std::int64_t{1} << 20;
    /// The maximum number of groups of NCCL calls that a device makes per step. Each takes about 50 to 100 us of its
    /// host thread. With more groups a larger part of the gradient is summed during the backward pass, which helps if
    /// the sum takes long: large networks, slow links. With one group, the whole gradient is summed at the end of the
    /// backward pass. It changes the last bits as bucket_bytes does.
    int max_groups = 2;
    /// The maximum time between the starts of the processes, and the maximum time that a process waits for the others
    /// in a step. The latter includes all work that only one of them does between two steps, such as an evaluation.
    double start_seconds = 120, step_seconds = 60;
    /// Errors name each rank that has shown no progress for this time.
    double heartbeat_seconds = 5;
    /// The maximum time that NCCL may take to abort its sums after a failure. NCCL may wait there for other ranks
    /// forever: after this time the process exits with the error's message on standard error and status 1.
    double abort_seconds = 20;
    /// The environment of a training that continues with fewer replicas when a process is lost; null for a training
    /// that ends. `processes` and `process` are then those of the survivors, and a step may take abort_seconds longer.
    NcclEnvironment* environment = nullptr;

    // The following members are defined in <cupola/nccl.hpp> and in <cupola/processes/nccl_launch.hpp>, which does not
    // need NCCL. The compiler reports an error if neither is included.

    /// The same policy with the processes, the number of this one and the address from the launcher's environment
    /// variables, if they are not set. Throws InvalidArgument, which names the variables, if they contradict each
    /// other, or if a process number is missing, is not an integer, or is not less than the number of processes.
    template <class Launch = impl::NcclLaunch>
    [[nodiscard]] NcclAllReduce as_launched() const {
        if constexpr (is_included<Launch>())
            return Launch::as_launched(*this);
        else
            return {};
    }
    /// "process 1 of 4, from RANK and WORLD_SIZE": what as_launched() takes from the environment variables; empty
    /// without a launcher. Throws like as_launched().
    template <class Launch = impl::NcclLaunch>
    [[nodiscard]] static std::string launcher() {
        if constexpr (is_included<Launch>())
            return Launch::launcher();
        else
            return {};
    }
    /// CudaOptions::first_gpu for a process with `devices` devices that sees `gpus` GPUs. If it sees more than it uses,
    /// the processes that the launcher has started on this machine use consecutive GPUs, by LOCAL_RANK,
    /// OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID or SLURM_LOCALID. Throws InvalidArgument if there are too few.
    template <class Launch = impl::NcclLaunch>
    [[nodiscard]] static int first_gpu(int devices, int gpus) {
        if constexpr (is_included<Launch>())
            return Launch::first_gpu(devices, gpus);
        else
            return {};
    }
    /// Throws InvalidArgument if a number is invalid for a training with `devices` devices per process.
    template <class Launch = impl::NcclLaunch>
    void check(int devices) const {
        if constexpr (is_included<Launch>()) Launch::check(*this, devices);
    }

    template <class Device>
    static consteval CompileTimeMessage diagnostic() {
        CompileTimeMessage message;
        if constexpr (!supports<Device>()) {
            message << "NcclAllReduce needs a device that NCCL supports, and " << Device::name
                    << " is not one: use ConcatMean instead";
        } else if constexpr (!requires { sizeof(Collective<Device>); }) {
            message << "NcclAllReduce on " << Device::name << " needs #include <cupola/nccl.hpp>";
        }
        return message;
    }

private:
    template <class Launch>
    static consteval bool is_included() {
        constexpr bool included = requires { sizeof(Launch); };
        static_assert(included,
                      "this member of NcclAllReduce needs #include <cupola/nccl.hpp>, or "
                      "<cupola/processes/nccl_launch.hpp>, which needs no NCCL");
        return included;
    }
    template <class Device>
    static consteval bool supports() {
        if constexpr (requires { Device::has_nccl; }) return Device::has_nccl;
        return false;
    }
};

}}  // namespace cupola::CUPOLA_ABI
