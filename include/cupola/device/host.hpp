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
#if !defined(CUPOLA_OPS) && defined(__SSE__)
#include <xmmintrin.h>
#endif

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
    /// The algorithm of convolutions in float: null for oneDNN's direct ones, or `&winograd` of
    /// ops/host/winograd_convolution.hpp. It changes the bits of a result, so it is a setting of the device, not of a
    /// layer.
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
    static void describe(const Options& options, Add&& add) {
        add(machine_property::convolution,
            std::string(options.convolution == nullptr ? "direct" : options.convolution->name));
        add(machine_property::threads_per_device, text(options.threads));
        add(machine_property::onednn, library_version());
        add(machine_property::isa, text(library_isa(), " (oneDNN), ", compiled_isa, " (Cupola)"));
    }
};

static_assert(Device<Host>);

#ifndef CUPOLA_OPS

CUPOLA_INLINE HostArena::HostArena(std::size_t bytes, std::string_view what) : size_(bytes) {
    if (bytes == 0) return;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require<OutOfMemory>(memory != MAP_FAILED, what, " need ", ByteCount{bytes}, ", which could not be allocated");
    constexpr std::size_t huge_page = std::size_t{1} << 21;
    if (bytes >= 4 * huge_page) madvise(memory, bytes, MADV_HUGEPAGE);  // a hint; ignored where not supported
    data_ = static_cast<std::byte*>(memory);
}

CUPOLA_INLINE HostContext::HostContext(int ordinal, const HostOptions& options)
    : ordinal_(ordinal), threads_(options.threads), pinned_(options.pinned), convolution_(options.convolution) {
    require(options.threads >= 1 && options.threads <= max_threads, "a host device must have 1 to ", max_threads,
            " threads, not ", options.threads);
    const Team scope = team();
    int granted = 0;
#pragma omp parallel
    {
#pragma omp single
        granted = omp_get_num_threads();
    }
    require<DeviceError>(granted == threads_, "host device ", ordinal, " requested ", threads_,
                         " OpenMP threads and got ", granted, "; OMP_THREAD_LIMIT or OMP_DYNAMIC limits this process");
    impl::check_dnnl(dnnl_engine_create(engine_.out(), dnnl_cpu, 0), "dnnl_engine_create");
    impl::check_dnnl(dnnl_stream_create(stream_.out(), engine_.get(), dnnl_stream_default_flags), "dnnl_stream_create");
}

CUPOLA_INLINE void HostContext::flush_denormals() const {
#if defined(__SSE__)
    constexpr unsigned flags = 0x8040U;  // flush to zero, and denormals are zero
    const Team scope = team();
    // LLVM's runtime applies the calling thread's setting to a team and reverts changes made in a region; in g++'s
    // runtime each thread keeps its own setting.
    _mm_setcsr(_mm_getcsr() | flags);
#pragma omp parallel
    _mm_setcsr(_mm_getcsr() | flags);
#endif
}

CUPOLA_INLINE void HostContext::pin_threads(int devices) const {
    const impl::ProcessorSet processors = impl::processor_set();
    const int count = CPU_COUNT(&processors.set);
    const bool each_has_one = pinned_ && count == devices * threads_;
    // Bound by OpenMP, the threads of all devices would share OpenMP's first places. Each device gets a part of the
    // processors instead, or all of them where they are too few. Other processes may use the same processors, so no
    // thread is bound to a single one.
    if (!each_has_one && !processors.bound) return;
    const bool each_has_part = !each_has_one && count >= devices * threads_;
    const Team scope = team();
#pragma omp parallel
    {
        const int thread = ordinal_ * threads_ + omp_get_thread_num();
        const int first = each_has_one ? thread : each_has_part ? count * ordinal_ / devices : 0;
        const int end = each_has_one ? thread + 1 : each_has_part ? count * (ordinal_ + 1) / devices : count;
        cpu_set_t own;
        CPU_ZERO(&own);
        int place = 0;
        for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
            if (!CPU_ISSET(cpu, &processors.set)) continue;
            if (place >= first && place < end) CPU_SET(cpu, &own);
            ++place;
        }
        sched_setaffinity(0, sizeof own, &own);  // a hint: if it is not allowed, the thread stays where it was
    }
}

CUPOLA_INLINE std::size_t Host::available_memory() {
    constexpr std::size_t unlimited = ~std::size_t{0};
    const std::size_t system = impl::number_in_file("/proc/meminfo", "MemAvailable:", unlimited / 1024) * 1024;
    std::size_t space = unlimited;
    rlimit address_space{};
    if (getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY) {
        const std::size_t taken = impl::number_in_file("/proc/self/status", "VmSize:", 0) * 1024;
        space = address_space.rlim_cur - (taken < address_space.rlim_cur ? taken : address_space.rlim_cur);
    }
    return std::min({system, impl::memory_of_groups(), space});
}

CUPOLA_INLINE std::string Host::library_version() {
    const dnnl_version_t* v = dnnl_version();
    return text(v->major, '.', v->minor, '.', v->patch);
}

CUPOLA_INLINE std::string Host::library_isa() {
    switch (dnnl_get_effective_cpu_isa()) {
        case dnnl_cpu_isa_sse41: return "sse41";
        case dnnl_cpu_isa_avx: return "avx";
        case dnnl_cpu_isa_avx2: return "avx2";
        case dnnl_cpu_isa_avx2_vnni: return "avx2_vnni";
        case dnnl_cpu_isa_avx512_core: return "avx512_core";
        case dnnl_cpu_isa_avx512_core_vnni: return "avx512_core_vnni";
        case dnnl_cpu_isa_avx512_core_bf16: return "avx512_core_bf16";
        case dnnl_cpu_isa_avx512_core_amx: return "avx512_core_amx";
        default: return text("isa ", static_cast<int>(dnnl_get_effective_cpu_isa()));
    }
}

#endif

}}  // namespace cupola::CUPOLA_ABI
