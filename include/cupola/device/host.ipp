// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/device/host.hpp.
#pragma once

#include <cupola/device/flushed_denormals.hpp>
#include <cupola/device/host.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

CUPOLA_DECL HostArena::HostArena(std::size_t bytes, std::string_view what) : size_(bytes) {
    if (bytes == 0) return;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require<OutOfMemory>(memory != MAP_FAILED, what, " need ", ByteCount{bytes}, ", which could not be allocated");
    constexpr std::size_t huge_page = std::size_t{1} << 21;
    if (bytes >= 4 * huge_page) madvise(memory, bytes, MADV_HUGEPAGE);  // a hint; ignored where not supported
    data_ = static_cast<std::byte*>(memory);
}

CUPOLA_DECL HostContext::HostContext(int ordinal, const HostOptions& options)
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

CUPOLA_DECL void HostContext::flush_denormals() const {
#if defined(__SSE__)
    const Team scope = team();
    // LLVM's runtime applies the calling thread's setting to a team and reverts changes made in a region; in g++'s
    // runtime each thread keeps its own setting.
    _mm_setcsr(_mm_getcsr() | impl::denormals_are_zeros);
#pragma omp parallel
    _mm_setcsr(_mm_getcsr() | impl::denormals_are_zeros);
#endif
}

CUPOLA_DECL void HostContext::pin_threads(int devices) const {
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
        impl::bind_thread(own);
    }
}

CUPOLA_DECL std::size_t Host::available_memory() {
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

CUPOLA_DECL std::string Host::library_version() {
    const dnnl_version_t* v = dnnl_version();
    return text(v->major, '.', v->minor, '.', v->patch);
}

CUPOLA_DECL std::string Host::library_isa() {
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

}}  // namespace cupola::CUPOLA_ABI
