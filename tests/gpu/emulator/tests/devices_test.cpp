// SPDX-License-Identifier: Apache-2.0
//
// Which GPU has the memory of what is made for it, what is left on the others, and how the loss of a GPU is reported. On emulated GPUs.
#include "../../../test.hpp"

#include <cupola/cuda.hpp>
#include <cupola/host.hpp>
#include <cupola/layers/on_device.hpp>
#include <cupola/predict.hpp>

#include "../../../throws_with.hpp"
#include "../control.hpp"

namespace {

struct Net : Sequential<Input<6>, Linear<5>, ReLU, Linear<3>> {};
struct Placed : Sequential<Input<6>, OnDevice<Cuda, Linear<5>>, ReLU, Linear<3>> {};

constexpr std::int64_t batch = 4;
constexpr int all_devices = 4;

/// The state of the process and of the calling thread before any use of CUDA, and again at the end.
struct Fresh : NotCopied {
    Fresh() {
        restore();
        emulator::forget_contexts();
    }
    ~Fresh() { restore(); }
    static void restore() {
        emulator::mend();
        emulator::set_devices(all_devices);
        emulator::set_virtual_architecture(90);
        cudaSetDevice(0);
        while (cudaGetLastError() != cudaSuccess) {
        }
    }
};

template <class Network>
Checkpoint checkpoint() {
    Checkpoint result;
    result.state.parameters.resize(static_cast<std::size_t>(Network::parameter_elements));
    initialize(result.state.parameters, normal(0.5), 1, 1, 3, 0);
    return result;
}
std::vector<float> samples() {
    std::vector<float> values(static_cast<std::size_t>(batch) * 6);
    initialize(values, normal(1.0), 1, 1, 5, 0);
    return values;
}
template <class AnyPredictor>
std::vector<float> predicted(const AnyPredictor& predictor) {
    std::vector<float> outputs(static_cast<std::size_t>(batch) * 3);
    predictor.predict(samples(), outputs);
    return outputs;
}

/// The bytes in use on each device.
std::array<std::size_t, all_devices> memory_in_use() {
    std::array<std::size_t, all_devices> bytes{};
    for (int device = 0; device < all_devices; ++device)
        bytes[static_cast<std::size_t>(device)] = emulator::memory_in_use(device);
    return bytes;
}

void wait_kernel(int* to) {
    impl::begin_kernel();
    *to += 1;
}

}  // namespace

TEST_CASE("the streams of a predictor, its parameters and its statistics are on the first GPU of its options") {
    const Fresh fresh;
    const std::array<std::size_t, all_devices> before = memory_in_use();
    {
        const Predictor<Net, Cuda> predictor(checkpoint<Net>(), "a state",
                                             {.max_batch = batch, .streams = 3, .device = {.first_gpu = 2}});
        const std::array<std::size_t, all_devices> during = memory_in_use();
        for (const std::size_t other : {0U, 1U, 3U}) CHECK(during[other] == before[other]);
        CHECK(during[2] >= before[2] + predictor.bytes());
        const std::vector<float> expected =
            predicted(Predictor<Net>(checkpoint<Net>(), "a state", {.max_batch = batch}));
        const std::vector<float> outputs = predicted(predictor);
        for (std::size_t i = 0; i < outputs.size(); ++i)
            CHECK(outputs[i] == doctest::Approx(expected[i]).epsilon(1e-4));
    }
    CHECK(memory_in_use() == before);
    for (const int other : {0, 1, 3}) CHECK_FALSE(emulator::has_context(other));
}

TEST_CASE("a predictor has as many streams as it is asked for on a machine with one GPU") {
    const Fresh fresh;
    emulator::set_devices(1);
    const Predictor<Net, Cuda> predictor(checkpoint<Net>(), "a state", {.max_batch = batch, .streams = 3});
    CHECK(predicted(predictor).size() == 12);
}

TEST_CASE("a layer on Cuda in a network on Host has its memory on its own GPU") {
    const Fresh fresh;
    const std::array<std::size_t, all_devices> before = memory_in_use();
    // The context of stream 1 is that of device 1 of Host, whose layer is on GPU 1.
    const Predictor<Placed> predictor(checkpoint<Placed>(), "a state", {.max_batch = 1, .streams = 2});
    const std::array<std::size_t, all_devices> during = memory_in_use();
    CHECK(during[0] > before[0]);
    CHECK(during[1] - before[1] == during[0] - before[0]);
}

TEST_CASE("a scope on a GPU returns to the one before it, unless that has no context") {
    const Fresh fresh;
    const auto device = [] {
        int found = -1;
        cudaGetDevice(&found);
        return found;
    };
    emulator::forget_contexts();
    { const impl::OnCudaDevice scope(3); }
    CHECK_FALSE(emulator::has_context(0));
    CHECK(device() == 3);
    { const impl::OnCudaDevice scope(1, std::nothrow); }
    CHECK(device() == 3);
    CHECK_FALSE(emulator::has_context(0));
    CHECK(cudaSetDevice(0) == cudaSuccess);
    { const impl::OnCudaDevice scope(1); }
    CHECK(device() == 0);
}

TEST_CASE("an error of a library is DeviceLost where the GPU can no longer be used, with the error of CUDA") {
    const Fresh fresh;
    const auto fails = [] { impl::check_cudnn(CUDNN_STATUS_EXECUTION_FAILED, "cudnnBackendExecute"); };
    CHECK(message_of<DeviceError>(fails).find("every call for it fails") == std::string::npos);
    for (const cudaError_t code : {cudaErrorIllegalAddress, cudaErrorUnknown, cudaErrorTensorMemoryLeak}) {
        CAPTURE(code);
        CudaContext context(0, {});
        emulator::fail_device(0, 0, code);
        static_cast<void>(cudaMemsetAsync(context.sums(), 0, 4, context.stream()));
        CHECK(cudaStreamSynchronize(context.stream()) == code);
        const std::string lasting = text("; every call for it fails with ", cudaGetErrorName(code), ": ");
        CHECK(contains(message_of<DeviceLost>(fails), lasting));
        CHECK(contains(
            message_of<DeviceLost>([] { impl::check_cublas(CUBLAS_STATUS_EXECUTION_FAILED, "cublasLtMatmul"); }),
            lasting));
        CHECK(contains(message_of<DeviceLost>([&] { impl::check_cuda(code, "cudaStreamSynchronize"); }),
                       cudaGetErrorName(code)));
        emulator::mend();
    }
}

TEST_CASE("the codes after which CUDA's documentation asks for another process are DeviceLost, and others are not") {
    const Fresh fresh;
    for (const cudaError_t code :
         {cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorContained, cudaErrorIllegalAddress,
          cudaErrorLaunchTimeout, cudaErrorAssert, cudaErrorHardwareStackError, cudaErrorIllegalInstruction,
          cudaErrorMisalignedAddress, cudaErrorInvalidAddressSpace, cudaErrorInvalidPc, cudaErrorLaunchFailure,
          cudaErrorTensorMemoryLeak, cudaErrorMpsClientTerminated, cudaErrorExternalDevice}) {
        CAPTURE(code);
        CHECK(impl::loses_device(code));
    }
    // On a GPU that can still be used an unknown error is that of one call.
    for (const cudaError_t code : {cudaSuccess, cudaErrorInvalidValue, cudaErrorMemoryAllocation, cudaErrorNotReady,
                                   cudaErrorCooperativeLaunchTooLarge, cudaErrorUnknown}) {
        CAPTURE(code);
        CHECK_FALSE(impl::loses_device(code));
    }
}

TEST_CASE("only a kernel whose code can wait for the kernel before it is launched before that has ended") {
    const Fresh fresh;
    CudaContext context(0, {.dependent_launch = true});
    const CudaArena memory(sizeof(int), "a test");
    auto* const at = reinterpret_cast<int*>(const_cast<std::byte*>(memory.data()));
    const auto launched_early = [&] {
        const std::int64_t count = emulator::dependent_kernels();
        const CudaContext::DeferScope scope(context);
        for (int i = 0; i < 2; ++i) impl::launch_kernel(&wait_kernel, 1, 1, context, at);
        context.synchronize();
        return emulator::dependent_kernels() - count;
    };
    CHECK(launched_early() == 1);
    // From PTX for 8.0 the driver has made code for this GPU.
    emulator::set_virtual_architecture(80);
    CHECK(launched_early() == 0);
}
