// SPDX-License-Identifier: Apache-2.0
//
// Ownership and errors for the C interface of CUDA's runtime.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <cuda_runtime_api.h>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The calling thread's device, for a message; -1 if CUDA does not know it.
[[nodiscard, gnu::cold]] inline int current_cuda_device() {
    int device = -1;
    cudaGetDevice(&device);  // returns the error of a lost device, and writes its number
    return device;
}

/// What CUDA's runtime returns for any call for the calling thread's device: an error if a kernel that was queued
/// before, or the device itself, has failed.
[[nodiscard, gnu::cold]] inline cudaError_t lasting_cuda_error() {
    std::size_t free = 0, total = 0;
    const cudaError_t status = cudaMemGetInfo(&free, &total);
    if (status != cudaSuccess) cudaGetLastError();  // the error is reported here, and not by the next launch
    return status;
}

/// Whether, after this error, every call for the device fails in this process: an error of a kernel that was queued
/// before, or of the GPU itself. These are the codes after which, by CUDA's documentation, the process must be started
/// again. It does not say so of cudaErrorUnknown: the device is then lost if the next call fails with it, too.
[[nodiscard, gnu::cold]] inline bool loses_device(cudaError_t status) {
    switch (status) {
        case cudaErrorECCUncorrectable:
        case cudaErrorNvlinkUncorrectable:
        case cudaErrorContained:
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchTimeout:
        case cudaErrorAssert:
        case cudaErrorHardwareStackError:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorLaunchFailure:
        case cudaErrorTensorMemoryLeak:
        case cudaErrorMpsClientTerminated:
        case cudaErrorExternalDevice: return true;
        case cudaErrorUnknown: return lasting_cuda_error() == cudaErrorUnknown;
        default: return false;
    }
}

/// For a library, which reports the failure of a device by a code of its own: throws DeviceLost if the device cannot be
/// used again, and DeviceError otherwise.
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_cuda(std::string_view library, std::string_view call,
                                                              std::string_view name, std::string_view meaning) {
    const std::string message =
        text(library, "'s ", call, " failed on device ", current_cuda_device(), " with ", name, ": ", meaning);
    const cudaError_t lasting = lasting_cuda_error();
    if (!loses_device(lasting)) throw DeviceError(message);
    throw DeviceLost(
        text(message, "; every call for it fails with ", cudaGetErrorName(lasting), ": ", cudaGetErrorString(lasting)));
}

/// For a call whose device is not that of the calling thread: throws as check_cuda does, and names `device`.
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_cuda_error(cudaError_t status, std::string_view call,
                                                                    int device) {
    cudaGetLastError();  // the error is reported here, and not by the next launch
    const std::string message = text("CUDA's ", call, " failed on device ", device, " with ", cudaGetErrorName(status),
                                     ": ", cudaGetErrorString(status));
    // Of another device than this thread's, nothing more is known.
    const bool is_unknown = status == cudaErrorUnknown && device != current_cuda_device();
    if (is_unknown || loses_device(status)) throw DeviceLost(message);
    throw DeviceError(message);
}

/// Throws DeviceError with the call, the device, and the code's name and meaning; DeviceLost if the device cannot be
/// used again.
inline void check_cuda(cudaError_t status, std::string_view call) {
    if (status != cudaSuccess) [[unlikely]]
        throw_cuda_error(status, call, current_cuda_device());
}

/// Owns one object of these libraries. `destroy` is the C function that frees it; its result is ignored.
template <class T, auto destroy>
class CudaHandle {
public:
    CudaHandle() = default;
    CudaHandle(CudaHandle&& other) noexcept : object_(std::exchange(other.object_, T{})) {}
    CudaHandle& operator=(CudaHandle&& other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~CudaHandle() {
        if (object_ != T{}) destroy(object_);
    }
    [[nodiscard]] T get() const { return object_; }
    /// The address to which a C function that creates an object writes it. Only for an empty handle.
    [[nodiscard]] T* out() { return &object_; }
    explicit operator bool() const { return object_ != T{}; }

private:
    T object_{};
};

using CudaStream = CudaHandle<cudaStream_t, &cudaStreamDestroy>;
using CudaEvent = CudaHandle<cudaEvent_t, &cudaEventDestroy>;

}}}  // namespace cupola::CUPOLA_ABI::impl
