// SPDX-License-Identifier: Apache-2.0
//
// The CPU as a device: a fixed number of OpenMP threads per device object, oneDNN's engine and stream, and memory.
//
// Results depend on the number of threads (oneDNN divides the work of weight gradients by it), so it is fixed when a
// device is created, and a team of any other size is an error. Several `Host` devices in one process are several teams.
#pragma once

#ifndef _OPENMP
#error "cupola/device/host.hpp needs OpenMP: compile and link with -fopenmp"
#define CUPOLA_REASON "see the error above"
#include CUPOLA_REASON
#endif

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include <omp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/device/device.hpp>
#include <cupola/device/impl/control_groups.hpp>
#include <cupola/device/impl/dnnl.hpp>
#include <cupola/device/processors.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Zero-filled memory of the process, aligned to a page; large arenas request huge pages. Throws OutOfMemory.
class HostArena {
public:
    HostArena() = default;
    /// `what` names the arena in the error: "the activations of device 0".
    HostArena(std::size_t bytes, std::string_view what);
    HostArena(HostArena&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    HostArena& operator=(HostArena&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~HostArena() {
        if (data_ != nullptr) munmap(data_, size_);
    }
    [[nodiscard]] std::byte* data() { return data_; }
    [[nodiscard]] const std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t size() const { return size_; }

private:
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

struct ConvolutionAlgorithm;
class HostQueue;

struct HostOptions {
    /// The number of OpenMP threads of this device.
    int threads = 1;
    /// In a training whose devices use every processor of the process, whether each thread is bound to one processor. A
    /// thread that moves leaves its part of a batch in another processor's cache: without binding, a step of two
    /// threads was measured to take 1.14 times as long.
    bool pinned = true;
    /// The algorithm of convolutions: null for oneDNN's direct ones, or `&winograd` of
    /// ops/host/winograd_convolution.hpp, which in bfloat16 is for processors with AVX512_BF16 and no AMX. It changes
    /// the bits of a result, so it is a setting of the device, not of a layer.
    const ConvolutionAlgorithm* convolution = nullptr;
};

/// The team of threads and the oneDNN handles of one host device. Made and used by one thread.
class HostContext {
public:
    /// Throws DeviceError if the OpenMP runtime provides fewer threads than requested.
    [[gnu::cold]] HostContext(int ordinal, const HostOptions& options);

    /// While it exists, OpenMP regions that this thread starts have this device's number of threads.
    class Team {
    public:
        explicit Team(int threads) : before_(omp_get_max_threads()) {
            if (threads != before_) omp_set_num_threads(threads);
        }
        Team(const Team&) = delete;
        Team& operator=(const Team&) = delete;
        ~Team() {
            if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
        }

    private:
        int before_;
    };
    [[nodiscard]] Team team() const { return Team(threads_); }

    [[nodiscard]] int ordinal() const { return ordinal_; }
    [[nodiscard]] int threads() const { return threads_; }
    [[nodiscard]] const ConvolutionAlgorithm* convolution() const { return convolution_; }
    [[nodiscard]] dnnl_engine_t engine() const { return engine_.get(); }
    [[nodiscard]] dnnl_stream_t stream() const { return stream_.get(); }

    /// Permanently assigns the calling thread to this device, one of `devices` in the process.
    void own_thread(int devices) const {
        pin_threads(devices);
        flush_denormals();
    }
    /// Makes every thread of the team treat numbers below 1e-38 as zero, as other training systems do: such numbers
    /// cost hundreds of cycles each and are irrelevant in a gradient. Called by a thread that belongs to the device.
    void flush_denormals() const;

    /// Binds each thread of the team to its own processor, if the options say so and `devices` such devices use exactly
    /// the processors that this process may use. Otherwise, where variables such as OMP_PROC_BIND bind OpenMP's
    /// threads, the team may use the device's part of the processors. Called by a thread that belongs to the device.
    void pin_threads(int devices) const;

private:
    static constexpr int max_threads = 4096;
    int ordinal_;
    int threads_;
    bool pinned_;
    const ConvolutionAlgorithm* convolution_;
    impl::DnnlEngine engine_;
    impl::DnnlStream stream_;
};

/// The CPU as a device.
struct Host {
    static constexpr std::string_view name = "Host";
    /// Whether the host can read the device's memory.
    static constexpr bool host_memory = true;
    /// A step is complete when the call that queues it returns.
    static constexpr int max_steps_in_flight = 1;
    using Options = HostOptions;
    using Context = HostContext;
    using Arena = HostArena;
    using Kernels = Host;
    /// Defined in parallel/host/queue.hpp.
    using Queue = HostQueue;

    /// The bytes that this process can still allocate: the minimum of the memory that the system reports as available
    /// and of what the limits of its control groups and of its address space (`ulimit -v`) leave.
    [[nodiscard, gnu::cold]] static std::size_t available_memory();
    static void copy_from_host(HostContext&, std::byte* to, const std::byte* from, std::size_t bytes) {
        if (bytes != 0) std::memcpy(to, from, bytes);  // an arena of 0 bytes has no address
    }
    static void copy_to_host(HostContext&, std::byte* to, const std::byte* from, std::size_t bytes) {
        if (bytes != 0) std::memcpy(to, from, bytes);
    }
    /// Queues a copy between two devices' memory.
    static void copy_between(HostContext&, void* to, const void* from, std::size_t bytes) {
        if (bytes != 0) std::memcpy(to, from, bytes);
    }
    /// oneDNN's version, "3.2.0", and the instruction set it uses, "avx512_core_bf16"; with the number of threads, they
    /// determine the bits of a result.
    [[nodiscard]] static std::string library_version();
    [[nodiscard]] static std::string library_isa();
    /// Calls add(name, text) for each `machine_property` of this machine. `options` are HostOptions.
    template <class Options, class Add>
    [[gnu::cold]] static void describe(const Options& options, Add&& add) {
        add(machine_property::convolution,
            std::string(options.convolution == nullptr ? "direct" : options.convolution->name));
        add(machine_property::threads_per_device, text(options.threads));
        add(machine_property::onednn, library_version());
        add(machine_property::isa, text(library_isa(), " (oneDNN), ", compiled_isa, " (Cupola)"));
    }
};

static_assert(Device<Host>);

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/device/host.ipp>
#endif
