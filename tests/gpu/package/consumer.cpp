// SPDX-License-Identifier: Apache-2.0
//
// Prints the number of GPUs, or the reason why there are none, and the libraries that it found.
#include <cstdio>

#include <nccl.h>

#include <cupola/device/cuda.hpp>

int main() {
    int nccl = 0;
    if (ncclGetVersion(&nccl) != ncclSuccess) return 1;
    std::printf("%s, NCCL %d\n", cupola::Cuda::library_version().c_str(), nccl);
    try {
        std::printf("%d GPUs\n", cupola::cuda_devices());
    } catch (const cupola::DeviceError& error) {
        std::printf("%s\n", error.what());
    }
}
