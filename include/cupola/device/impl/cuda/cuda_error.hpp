// SPDX-License-Identifier: Apache-2.0
//
// Ownership and errors for the C interfaces of cuDNN and cuBLASLt, in addition to those of CUDA's runtime.
#pragma once

#include <string_view>

#include <cublasLt.h>
#include <cudnn.h>

#include <cupola/device/impl/cuda/cuda_handle.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

inline void check_cudnn(cudnnStatus_t status, std::string_view call) {
    if (status == CUDNN_STATUS_SUCCESS) [[likely]]
        return;
    char last[256] = "";
    cudnnGetLastErrorString(last, sizeof last);
    throw_cuda("cuDNN", call, cudnnGetErrorString(status), last[0] != '\0' ? last : "no further details");
}
inline void check_cublas(cublasStatus_t status, std::string_view call) {
    if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
        throw_cuda("cuBLASLt", call, cublasLtGetStatusName(status), cublasLtGetStatusString(status));
}

using CudnnHandle = CudaHandle<cudnnHandle_t, &cudnnDestroy>;
using CublasLtHandle = CudaHandle<cublasLtHandle_t, &cublasLtDestroy>;

}}}  // namespace cupola::CUPOLA_ABI::impl
