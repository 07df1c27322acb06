// SPDX-License-Identifier: Apache-2.0
//
// The NVIDIA GPUs that a process sees, and which of them the calling thread works on.
#pragma once

#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/device/impl/cuda/cuda_error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The number of GPUs that this process sees. Throws DeviceError if there is no GPU, no driver, or one that is too old.
[[nodiscard, gnu::cold]] inline int cuda_devices() {
    const auto version_text = [](int number) { return text(number / 1000, '.', number % 1000 / 10); };
    int driver = 0, runtime = 0, count = 0;
    impl::check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    require<DeviceError>(
        cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0,
        "no NVIDIA driver was found, or it could not be loaded; a training on Cuda needs a GPU with a driver for CUDA ",
        version_text(runtime), "; a training on Host needs neither");
    require<DeviceError>(driver / 1000 >= runtime / 1000, "the NVIDIA driver of this machine is for CUDA ",
                         version_text(driver), ", and this program was built with CUDA ", version_text(runtime),
                         ": install a newer driver");
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorNoDevice) {
        cudaGetLastError();  // the error is reported here
        count = 0;
    } else {
        impl::check_cuda(status, "cudaGetDeviceCount");
    }
    if (count > 0) return count;
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    throw DeviceError(text("this process sees no NVIDIA GPU: there is a driver for CUDA ", version_text(driver),
                           ", but no device (CUDA_VISIBLE_DEVICES ",
                           visible == nullptr ? std::string("is not set")
                           : *visible == '\0' ? std::string("is empty, which hides all")
                                              : text("is ", visible, ", which may hide them"),
                           ")"));
}

namespace impl {

/// Whether a GPU has its primary context in this process. cudaSetDevice creates that, which takes hundreds of megabytes
/// of the GPU's memory. True if it cannot be found out.
[[nodiscard]] inline bool has_cuda_context(int gpu) noexcept {
    // CUresult (CUdevice, unsigned*, int*), without the header of the driver.
    using GetState = int (*)(int, unsigned*, int*);
    static const GetState get_state = []() -> GetState {
        constexpr unsigned version = 13000;
        void* found = nullptr;
        if (cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &found, version, cudaEnableDefault) ==
            cudaSuccess)
            return reinterpret_cast<GetState>(found);
        cudaGetLastError();
        return nullptr;
    }();
    unsigned flags = 0;
    int active = 1;
    return get_state == nullptr || get_state(gpu, &flags, &active) != 0 || active != 0;
}

/// While it exists, the calling thread's CUDA calls go to this device. It ignores the errors of a lost device, which
/// those calls report. Then they go to the device before it again, unless that has no context, as the first GPU in a
/// process that uses others: the thread stays on this device, and no memory is taken there.
class OnCudaDevice {
public:
    explicit OnCudaDevice(int ordinal) {
        check(cudaGetDevice(&before_), "cudaGetDevice");
        if (ordinal != before_) check(cudaSetDevice(ordinal), "cudaSetDevice");
        changed_ = ordinal != before_;
    }
    /// For destructors, which also run where CUDA cannot be used any more: in a child of fork(), or after the driver
    /// has shut down.
    OnCudaDevice(int ordinal, std::nothrow_t) noexcept {
        before_ = -1;
        cudaGetDevice(&before_);  // returns the error of a lost device, and writes its number
        changed_ = before_ >= 0 && ordinal != before_;
        if (changed_) cudaSetDevice(ordinal);
    }
    OnCudaDevice(const OnCudaDevice&) = delete;
    OnCudaDevice& operator=(const OnCudaDevice&) = delete;
    ~OnCudaDevice() {
        if (changed_ && has_cuda_context(before_)) cudaSetDevice(before_);
    }

private:
    static void check(cudaError_t status, std::string_view call) {
        if (!loses_device(status)) check_cuda(status, call);
    }
    int before_ = 0;
    bool changed_ = false;
};

/// "CUDA 13.0": the CUDA version that the driver supports.
[[nodiscard, gnu::cold]] inline std::string driver_text() {
    int driver = 0;
    check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    return text("CUDA ", driver / 1000, '.', driver % 1000 / 10);
}

/// The compute capability of a GPU: 90 is 9.0.
[[nodiscard, gnu::cold]] inline int compute_capability(int gpu) {
    int major = 0, minor = 0;
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu), "cudaDeviceGetAttribute");
    check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu), "cudaDeviceGetAttribute");
    return major * 10 + minor;
}

/// "GPU 0 (NVIDIA H200) has compute capability 9.0".
[[nodiscard, gnu::cold]] inline std::string capability_text(int gpu) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
    const int capability = compute_capability(gpu);
    return text("GPU ", gpu, " (", properties.name, ") has compute capability ", capability / 10, '.', capability % 10);
}

/// The least compute capability that CUDA 13 and cuDNN 9 for it support: 7.5.
inline constexpr int least_capability = 75;

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
