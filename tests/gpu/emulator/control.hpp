// SPDX-License-Identifier: Apache-2.0
//
// A test's settings for the emulated GPUs, and the values that it reads from them. The environment variable
// CUPOLA_EMULATOR_SEED sets the random seed; the default is 1.
#pragma once

#include <cuda_runtime_api.h>

#include "../../standard.hpp"

namespace cupola::emulator {

/// The number of GPUs; 4 by default. 0 stands for a machine on which the driver finds none. A process sees those that
/// CUDA_VISIBLE_DEVICES lists, if it is set.
void set_devices(int count);
/// The multiprocessors of each device; 2 by default, so that a grid has few blocks.
void set_multiprocessors(int count);
/// The compute capability of each device; 9.0 by default. The emulated program has code for 9.0 and later.
void set_capability(int major, int minor);
/// The virtual architecture that the program's kernels were compiled for; 90 by default, which stands for 9.0. From PTX for an
/// earlier one the driver makes code for 9.0, too.
void set_virtual_architecture(int architecture);
/// Whether the process has a context on the device: a call for the device has created it.
bool has_context(int device);
/// As if no call for a device had been made yet. The calling thread's device stays what it is.
void forget_contexts();
/// The version of CUDA that the driver is for, as cudaDriverGetVersion returns it; by default that of the runtime. 0 stands for
/// no driver.
void set_driver(int version);
/// The number of blocks of any kernel that a multiprocessor holds at a time; 0, the default, for as many as have 2,048
/// threads, at most 32. A program asks once per kernel and may keep the answer.
void set_resident_blocks(int count);
/// Whether the devices can launch cooperative grids; true by default.
void set_cooperative(bool can);
/// Whether the devices and the host can use managed memory at the same time; true by default.
void set_concurrent_managed(bool can);
/// If not 0, only that many blocks of each grid that is not cooperative run, the last ones: for a grid whose other blocks would take too long.
void run_only_last(std::uint64_t blocks);
/// In one of so many grids of several blocks, chosen at random, some blocks run side by side, and pause at random places; 8 by default.
/// 1 stands for all grids, 0 for none but cooperative ones, whose blocks then pause only where they wait.
void run_side_by_side_in(unsigned grids);
/// The memory of each device in bytes; 4 GiB by default.
void set_memory(std::size_t bytes);
/// Restarts the sequence of random numbers.
void set_seed(std::uint64_t seed);
/// The maximum number of pieces of work that run at each query of an event or a stream; 3 by default.
void set_pace(int pieces);
/// Whether queueing work sometimes runs other work; true by default. If false, nothing runs until the host waits or
/// queries.
void set_eager(bool eager);
/// The seconds after which a wait of the host fails if no work makes progress; 60 by default.
void set_patience(double seconds);
/// Whether queueing work on a captured stream fails.
void refuse_captures(bool refuse);
/// After `pieces` more pieces of work, the work of `device` fails with `error`. The device stays in error until mend(): every
/// later call for it returns the error, also those that free or query.
void fail_device(int device, std::int64_t pieces, cudaError_t error = cudaErrorIllegalAddress);
/// Clears the errors of all devices and discards their waiting work.
void mend();

/// The behaviour of one of a library's algorithms.
struct EngineBehavior {
    /// The time of a run by the device's clock.
    double seconds = 0;
    /// Whether a run fails.
    bool fails = false;
    /// Additional bytes of scratch memory for a plan that is made from now on; of cuDNN alone.
    std::int64_t workspace = 0;
    /// The time that a call takes of the host. A run that is not captured takes the device at least as long.
    double host_seconds = 0;
};
/// Replaces the behaviour of the stand-in for cuDNN's engine of this number (cudnn_engines.hpp), or restores its own.
void set_engine_behavior(std::int64_t engine, std::optional<EngineBehavior> behavior);
/// The same for the stand-in for cuBLASLt's algorithm that splits a sum into this number of parts.
void set_product_behavior(std::int64_t splits, std::optional<EngineBehavior> behavior);
[[nodiscard]] EngineBehavior engine_behavior(std::int64_t engine, double own_seconds);
[[nodiscard]] EngineBehavior product_behavior(std::int64_t splits);
/// The clock of each device. An idle device runs at `idle` of its full clock, as an H100 does at 345 of 1,980 MHz, and while
/// it works its clock rises to the full one in `ramp` seconds. In every second period of `sag_period` seconds it is lower by
/// the share `sag`, as that of a GPU at its limit of power. What sets no time, such as a copy, does not change the clock.
struct Clock {
    double idle = 345.0 / 1980, ramp = 4e-3, sag = 0, sag_period = 0;
};
/// Replaces the clock of all devices, which are idle then. A device is idle too when a handle of cuDNN is made for it: a
/// program that begins has not used it.
void set_clock(const Clock& clock);
void let_idle(int device);
/// An algorithm's code is loaded when it runs for the first time in the process: the call takes so many seconds longer; 0.3 by
/// default. With `again`, no code is loaded any more.
void set_load_seconds(double seconds, bool again = true);
/// The seconds that a call of this library's algorithm takes longer now.
double load_seconds(std::string_view library, std::int64_t algorithm);
/// How often cuDNN's heuristics of a mode were asked.
std::int64_t heuristics_asked(int mode);
/// What they take cuDNN: 10 ms for the first plan of a graph, which asks the heuristics, and half a millisecond for
/// one whose engine is known, by version 9.19 without a GPU. The stand-in takes microseconds.
double planning_seconds();
void count_plan();
void count_heuristics(int mode);
/// The time of each of the program's own kernels by the clock of its device; 5 microseconds by default.
void set_kernel_seconds(double seconds);
/// The runs of algorithms of cuDNN and cuBLASLt that were queued.
std::int64_t library_calls();
void count_library_call();
/// The name of each GPU; "Emulated GPU" by default.
void set_gpu_name(std::string name);

/// The numbers of successful captures, launches of captured graphs, waits of the host, kernels, and pieces of work that ran.
std::int64_t captures();
std::int64_t launches_of_captures();
std::int64_t waits();
std::int64_t kernels();
/// Those of a cooperative grid.
std::int64_t cooperative_kernels();
/// The seconds that the work of a device has taken by its clock, which events read.
double device_seconds(int device);
/// Those that were launched to begin before the end of the kernel before them.
std::int64_t dependent_kernels();
std::int64_t pieces();
/// The names of the kernels that ran: "the kernel void a::b<float>(float*)".
std::vector<std::string> kernels_that_ran();
/// From now on the names of the kernels, copies, fills and calls of libraries that run are recorded, in their order.
void record_work();
/// The names since record_work(), which ends the recording. Work that is still queued is not among them.
std::vector<std::string> recorded_work();

struct RecordedWork {
    std::string name;
    /// Bytes of device memory: of a copy or a fill its own, of a library's call those of its tensors, of a kernel those of the
    /// pages that it reads before it writes them, and of those that it writes, if memory is tracked.
    std::int64_t bytes_read = 0, bytes_written = 0;
    /// The additions and multiplications of a library's call.
    std::int64_t operations = 0;
    bool is_library = false;
    /// The blocks of a kernel's grid.
    std::int64_t blocks = 0;
    /// When it began by the clock of its device, and what it took; 0 for work whose time is the CPU's.
    double begun = 0, seconds = 0;
};
/// The same as recorded_work(), with what the work needs.
std::vector<RecordedWork> recorded_costs();
/// From now on the memory that kernels use is recorded too, in pages of so many bytes, a multiple of 4096; 0 ends it. Called
/// while no memory of a device is in use.
void track_memory(std::size_t page);
/// Which of the queued work runs; the rest takes its place in its stream and its time by the clock of its device, is recorded, and
/// computes nothing.
enum class Runs : std::uint8_t { everything, no_libraries, nothing };
void set_runs(Runs runs);
/// The number of allocations with a write outside their bounds, detected when they are freed.
int overruns();
/// The bytes in use in the memory of all devices.
std::size_t memory_in_use();
/// Those of one device, with the managed memory that was brought to it.
std::size_t memory_in_use(int device);
/// The message of the first failed kernel, or of the first illegal use for which CUDA has no code; empty if there is
/// none. mend() clears it.
std::string failure();

}  // namespace cupola::emulator
