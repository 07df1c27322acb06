// SPDX-License-Identifier: Apache-2.0
//
// `Cuda` without a GPU, for the tests of what its kernels compute: the same names, memory of the host, and no stream. It stands
// in for include/cupola/device/cuda.hpp in tests whose include path has this folder first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/device/device.hpp>
#include <cupola/device/host.hpp>

namespace cupola::inline CUPOLA_ABI {

using CudaArena = HostArena;

struct CudaOptions {
    bool tf32 = false;
    bool deterministic = false;
};

class CudaContext {
public:
    CudaContext(int ordinal, const CudaOptions& options) : ordinal_(ordinal), options_(options), sums_(sums_bytes, "the sums of a GPU") {}

    [[nodiscard]] int team() const { return ordinal_; }
    [[nodiscard]] int ordinal() const { return ordinal_; }
    [[nodiscard]] const CudaOptions& options() const { return options_; }
    [[nodiscard]] int multiprocessors() const { return 132; }
    [[nodiscard]] std::byte* sums() const { return sums_.data(); }
    static constexpr std::size_t sums_bytes = std::size_t{1} << 15;
    [[nodiscard]] std::byte* staging(std::size_t bytes) const {
        if (bytes > staging_.size()) staging_ = CudaArena(bytes, "staging");
        return staging_.data();
    }
    void queue_copy(void* to, const void* from, std::size_t bytes) const {
        if (bytes != 0) __builtin_memcpy(to, from, bytes);
    }
    void synchronize() const {}

private:
    int ordinal_;
    CudaOptions options_;
    mutable CudaArena sums_, staging_;
};

struct Cuda {
    static constexpr std::string_view name = "Cuda";
    static constexpr bool has_nccl = false;
    using Options = CudaOptions;
    using Context = CudaContext;
    using Arena = CudaArena;

    [[nodiscard]] static std::size_t available_memory() { return std::size_t{1} << 30; }
    static void copy_from_host(CudaContext&, std::byte* to, const std::byte* from, std::size_t bytes) {
        if (bytes != 0) __builtin_memcpy(to, from, bytes);
    }
    static void copy_to_host(CudaContext&, std::byte* to, const std::byte* from, std::size_t bytes) {
        if (bytes != 0) __builtin_memcpy(to, from, bytes);
    }
    [[nodiscard]] static std::string library_version() { return "none"; }
};

static_assert(Device<Cuda>);

}  // namespace cupola::inline CUPOLA_ABI
