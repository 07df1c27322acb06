// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/device/cuda/arena.hpp, cupola/device/cuda/context.hpp, cupola/device/cuda/devices.hpp, cupola/device/cuda/options.hpp
//
// The messages of Cuda without a driver or a GPU, and about ordinals. Each test holds on any machine; the messages of
// one without a GPU are compared where that is the case.
#include "../test.hpp"

#include <cupola/device/cuda.hpp>

#include "../child_process.hpp"
#include "../throws_with.hpp"

namespace {

/// How many GPUs this process sees, with no word of why it sees none.
int gpus() {
    try {
        return cuda_devices();
    } catch (const DeviceError&) {
        return 0;
    }
}

int driver_version() {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

}  // namespace

TEST_CASE("without a driver or a GPU the first use of Cuda is an error with a clear message") {
    if (gpus() > 0) return;
    const std::string message = message_of<DeviceError>([] { static_cast<void>(cuda_devices()); });
    if (driver_version() == 0) {
        CHECK(
            message ==
            text(
                "no NVIDIA driver was found, or it could not be loaded; a training on Cuda needs a GPU with a driver for CUDA ",
                CUDART_VERSION / 1000, '.', CUDART_VERSION % 1000 / 10, "; a training on Host needs neither"));
    }
    CHECK(message_of<DeviceError>([] { CudaContext(0, {}); }) == message);
    CHECK(message_of<DeviceError>([] { static_cast<void>(Cuda::available_memory()); }) == message);
}

TEST_CASE("child: a driver whose GPUs are hidden" * doctest::skip()) {
    if (driver_version() == 0) return;
    CHECK(message_of<DeviceError>([] { static_cast<void>(cuda_devices()); }) ==
          text("this process sees no NVIDIA GPU: there is a driver for CUDA ", driver_version() / 1000, '.',
               driver_version() % 1000 / 10, ", but no device (CUDA_VISIBLE_DEVICES is empty, which hides all)"));
}

TEST_CASE("a driver whose GPUs are hidden is distinguished from a missing driver") {
    check_in_child("child: a driver whose GPUs are hidden", {{"CUDA_VISIBLE_DEVICES", ""}});
}

TEST_CASE("an ordinal out of range is rejected with the number of GPUs") {
    const int count = gpus();
    if (count == 0) return;  // the other message, above
    const std::string seen = count == 1 ? std::string("1, GPU 0") : text(count, ", GPUs 0 to ", count - 1);
    for (const int ordinal : {-1, count}) {
        CHECK(message_of<DeviceError>([&] { CudaContext(ordinal, {}); }) ==
              text("there is no GPU ", ordinal, ": this process sees ", seen));
    }
}

TEST_CASE("the error of a failed call names the call, the device, and the code's name and meaning") {
    CHECK_NOTHROW(impl::check_cuda(cudaSuccess, "cudaMalloc"));
    CHECK(message_of<DeviceError>([] { impl::check_cuda(cudaErrorInvalidValue, "cudaMemcpyAsync"); }) ==
          text("CUDA's cudaMemcpyAsync failed on device ", impl::current_cuda_device(),
               " with cudaErrorInvalidValue: invalid argument"));
    CHECK(contains(message_of<DeviceError>([] { impl::check_cudnn(CUDNN_STATUS_BAD_PARAM, "cudnnSetStream"); }),
                   "cuDNN's cudnnSetStream failed on device "));
    CHECK(contains(message_of<DeviceError>([] { impl::check_cublas(CUBLAS_STATUS_INVALID_VALUE, "cublasLtMatmul"); }),
                   " with CUBLAS_STATUS_INVALID_VALUE: "));
}

TEST_CASE("an arena of no bytes has no memory and needs no GPU") {
    const CudaArena none, empty(0, "nothing");
    CHECK(none.data() == nullptr);
    CHECK(empty.size() == 0);
    CudaArena moved{CudaArena(0, "nothing")};
    CHECK(moved.data() == nullptr);
}

TEST_CASE("outside a captured step no scalars are read on the device") {
    const StepScalars none;
    CHECK((none.healthy == nullptr && none.step == nullptr && none.constants == nullptr));
    if (gpus() == 0) return;
    CudaContext context(0, {});
    CHECK((context.step_scalars().healthy == nullptr && context.step_scalars().step == nullptr &&
           context.step_scalars().constants == nullptr));
    const std::uint32_t step = 3;
    context.set_step_scalars({.healthy = nullptr, .step = &step, .constants = nullptr});
    CHECK(context.step_scalars().step == &step);
}

TEST_CASE("a device's own thread stays on its device") {
    if (gpus() < 2) return;
    const CudaContext first(0, {}), context(1, {});
    int device = -1;
    std::thread([&] {
        context.own_thread(2);
        cudaGetDevice(&device);
    }).join();
    CHECK(device == 1);
    cudaGetDevice(&device);
    CHECK(device == 0);
}

TEST_CASE("a request for more memory than a GPU has is rejected with the needed and the free bytes") {
    if (gpus() == 0) return;
    CHECK(contains(message_of<OutOfMemory>([] { CudaArena(std::size_t{1} << 50, "the activations of device 0"); }),
                   "the activations of device 0 need 1125899.9 GB, and the GPU has "));
}

TEST_CASE("the libraries' versions are named, without a GPU too") {
    const std::string versions = Cuda::library_version();
    CHECK(versions.substr(0, 7) == "CUDA 13");
    CHECK(contains(versions, ", cuDNN 9."));
    CHECK(contains(versions, ", cuBLASLt 13."));
}

TEST_CASE("the description of the arithmetic names versions and enabled options") {
    const auto names = [](const CudaOptions& options) {
        std::string all;
        Cuda::describe(options, [&](std::string_view name, const std::string& text) {
            CHECK_FALSE(text.empty());
            CHECK(std::ranges::count(machine_property::all, name) == (name == "tf32" ? 0 : 1));
            all += std::string(all.empty() ? "" : " ").append(name);
        });
        return all;
    };
    CHECK(names({}) == "gpu cuda");
    CHECK(names({.tf32 = true, .deterministic = true}) == "gpu cuda tf32 deterministic");
    const auto tf32 = [](const CudaOptions& options) {
        std::string found = "off";
        Cuda::describe(options, [&](std::string_view name, const std::string& text) {
            if (name == "tf32") found = text;
        });
        return found;
    };
    CHECK(tf32({}) == "off");
    CHECK(tf32({.tf32 = true}) == "on");
    CHECK(tf32({.tf32_convolutions = true}) == "convolutions");
    CHECK(tf32({.tf32 = true, .tf32_convolutions = true}) == "on");
}
