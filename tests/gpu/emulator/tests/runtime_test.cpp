// SPDX-License-Identifier: Apache-2.0
//
// The emulated runtime: which work is ordered, captures, memory and errors; and the detection of a missing wait.
#include "../../../test.hpp"

#include <cuda_runtime.h>

#include "../control.hpp"
#include "../memory.hpp"
#include "../stream.hpp"
#include "device_memory.hpp"

using emulator_tests::Event, emulator_tests::Stream;

namespace {

void add_kernel(int* to, int value) { *to += value; }
void double_kernel(int* to) { *to *= 2; }
void copy_kernel(int* to, const int* from) { *to = *from; }
void waiting_kernel(int* to) {
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    *to += 1;
}

template <class... Parameters, class... Arguments>
cudaError_t start(cudaStream_t stream, void (*kernel)(Parameters...), Arguments... arguments) {
    const cudaLaunchConfig_t config{1, 1, 0, stream, nullptr, 0};
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/// The same, as a kernel that may begin before the end of the one before it.
template <class... Parameters, class... Arguments>
cudaError_t start_early(cudaStream_t stream, void (*kernel)(Parameters...), Arguments... arguments) {
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    const cudaLaunchConfig_t config{1, 1, 0, stream, &early, 1};
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/// Memory of a device, filled with zeros.
template <class V>
struct Memory : NotCopied {
    explicit Memory(std::size_t count) {
        CHECK(cudaMalloc(&get, count * sizeof(V)) == cudaSuccess);
        CHECK(cudaMemset(get, 0, count * sizeof(V)) == cudaSuccess);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
    }
    ~Memory() { cudaFree(get); }
    [[nodiscard]] V read(std::size_t i = 0) const {
        V value{};
        CHECK(cudaMemcpy(&value, get + i, sizeof(V), cudaMemcpyDeviceToHost) == cudaSuccess);
        return value;
    }
    V* get = nullptr;
};
struct Graph {
    ~Graph() {
        if (exec != nullptr) cudaGraphExecDestroy(exec);
        if (graph != nullptr) cudaGraphDestroy(graph);
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
};

/// Returns and clears the last error.
cudaError_t forgotten() { return cudaGetLastError(); }

}  // namespace

TEST_CASE("a stream's work is done in its order, and later") {
    emulator::set_eager(false);
    const Stream stream;
    const Memory<int> memory(1);
    for (int i = 0; i < 20; ++i) {
        CHECK(start(stream, &add_kernel, memory.get, 3) == cudaSuccess);
        CHECK(start(stream, &double_kernel, memory.get) == cudaSuccess);
    }
    CHECK(*memory.get == 0);  // nothing has run
    emulator::set_pace(1);
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    CHECK(forgotten() == cudaErrorNotReady);
    CHECK(*memory.get == 3);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
    int expected = 0;
    for (int i = 0; i < 20; ++i) expected = (expected + 3) * 2;
    CHECK(memory.read() == expected);
    emulator::set_pace(3);
    emulator::set_eager(true);
}

TEST_CASE("an event orders two streams, of one device or two, and without it the wrong order is visible") {
    for (const int other : {0, 1}) {
        const Stream first, second(other);
        const Event event;
        const Memory<int> memory(2);
        int wrong = 0;
        for (const bool waits : {true, false}) {
            wrong = 0;
            for (int i = 1; i <= 100; ++i) {
                CHECK(cudaMemsetAsync(memory.get, i, 1, first) == cudaSuccess);
                CHECK(cudaEventRecord(event, first) == cudaSuccess);
                if (waits) CHECK(cudaStreamWaitEvent(second, event) == cudaSuccess);
                CHECK(cudaMemcpyAsync(memory.get + 1, memory.get, sizeof(int), cudaMemcpyDeviceToDevice, second) ==
                      cudaSuccess);
                CHECK(cudaStreamSynchronize(second) == cudaSuccess);
                if (memory.read(1) != i) ++wrong;
                CHECK(cudaStreamSynchronize(first) == cudaSuccess);
            }
            if (waits) CHECK(wrong == 0);
        }
        CHECK(wrong > 10);
    }
}

TEST_CASE("a wait for an event refers to its last record before the wait, and to nothing before the first") {
    emulator::set_eager(false);
    const Stream first, second;
    const Event event;
    const Memory<int> memory(1);
    CHECK(cudaEventQuery(event) == cudaSuccess);
    CHECK(cudaEventSynchronize(event) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(second, event) == cudaSuccess);
    CHECK(cudaStreamSynchronize(second) == cudaSuccess);
    CHECK(start(first, &add_kernel, memory.get, 1) == cudaSuccess);
    CHECK(cudaEventRecord(event, first) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(second, event) == cudaSuccess);
    // That wait does not include the next recording of the event.
    bool arrived = false;
    emulator::enqueue(
        first, [&] { return arrived; }, "a gate");
    CHECK(cudaEventRecord(event, first) == cudaSuccess);
    CHECK(cudaStreamSynchronize(second) == cudaSuccess);
    CHECK(*memory.get == 1);
    CHECK(cudaEventQuery(event) == cudaErrorNotReady);
    CHECK(forgotten() == cudaErrorNotReady);
    arrived = true;
    CHECK(cudaEventSynchronize(event) == cudaSuccess);
    CHECK(cudaEventQuery(event) == cudaSuccess);
    emulator::set_eager(true);
}

TEST_CASE("the default stream and blocking streams wait for each other, and other streams do not") {
    cudaStream_t blocking = nullptr;
    CHECK(cudaStreamCreate(&blocking) == cudaSuccess);
    const Memory<int> memory(2);
    for (int i = 1; i <= 50; ++i) {
        CHECK(cudaMemsetAsync(memory.get, i, 1, blocking) == cudaSuccess);
        CHECK(start(nullptr, &copy_kernel, memory.get + 1, memory.get) == cudaSuccess);
        CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
        CHECK(memory.read(1) == i);
        CHECK(cudaMemsetAsync(memory.get, i + 100, 1, nullptr) == cudaSuccess);
        CHECK(start(blocking, &copy_kernel, memory.get + 1, memory.get) == cudaSuccess);
        CHECK(cudaStreamSynchronize(blocking) == cudaSuccess);
        CHECK(memory.read(1) == i + 100);
    }
    const Stream other;
    int wrong = 0;
    for (int i = 1; i <= 50; ++i) {
        CHECK(cudaMemsetAsync(memory.get, i, 1, other) == cudaSuccess);
        CHECK(start(nullptr, &copy_kernel, memory.get + 1, memory.get) == cudaSuccess);
        CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
        if (memory.read(1) != i) ++wrong;
        CHECK(cudaStreamSynchronize(other) == cudaSuccess);
    }
    CHECK(wrong > 5);
    CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
}

TEST_CASE("the time between two events is that of the work between them") {
    const Stream stream;
    const Event begin, end;
    float milliseconds = -1;
    CHECK(cudaEventRecord(begin, stream) == cudaSuccess);
    emulator::enqueue(stream, [] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return true;
    });
    CHECK(cudaEventRecord(end, stream) == cudaSuccess);
    CHECK(cudaEventSynchronize(end) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess);
    CHECK(milliseconds >= 5);
}

TEST_CASE("work that has to wait is tried again, and work that waits for ever ends with an error") {
    const Stream first, second(1);
    int arrived = 0;
    const auto meet = [&arrived, came = false]() mutable {
        if (!came) ++arrived;
        came = true;
        return arrived == 2;
    };
    emulator::enqueue(first, meet, "a sum");
    emulator::enqueue(second, meet, "a sum");
    CHECK(cudaStreamSynchronize(first) == cudaSuccess);
    CHECK(cudaStreamSynchronize(second) == cudaSuccess);

    emulator::mend();  // clears the failures of other tests
    emulator::set_patience(0.05);
    emulator::enqueue(
        first, [] { return false; }, "the sum of no one else");
    CHECK(cudaStreamSynchronize(first) == cudaErrorLaunchFailure);
    CHECK(emulator::failure().find("the host waits for ever:") == 0);
    CHECK(emulator::failure().find("is at the sum of no one else;") != std::string::npos);
    emulator::set_patience(60);
    emulator::mend();
    CHECK(forgotten() == cudaErrorLaunchFailure);
}

TEST_CASE("a copy of pageable memory uses the bytes at the call, a copy of pinned memory those at execution") {
    emulator::set_eager(false);
    const Stream stream;
    const Memory<int> memory(1);
    int host = 5, *pinned = nullptr;
    CHECK(cudaHostAlloc(&pinned, sizeof(int), cudaHostAllocPortable | cudaHostAllocMapped) == cudaSuccess);
    *pinned = 6;
    CHECK(cudaMemcpyAsync(memory.get, &host, sizeof(int), cudaMemcpyHostToDevice, stream) == cudaSuccess);
    host = 0;
    CHECK(cudaMemcpyAsync(&host, memory.get, sizeof(int), cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    CHECK(host == 5);
    CHECK(cudaMemcpyAsync(memory.get, pinned, sizeof(int), cudaMemcpyDefault, stream) == cudaSuccess);
    *pinned = 7;  // too early
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(memory.read() == 7);
    *pinned = 0;
    CHECK(cudaMemcpyAsync(pinned, memory.get, sizeof(int), cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    CHECK(*pinned == 0);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(*pinned == 7);
    // Pointers outside device memory, and more bytes than were allocated.
    CHECK(cudaMemcpyAsync(&host, &host, sizeof(int), cudaMemcpyDeviceToHost, stream) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(memory.get, pinned, 8, cudaMemcpyHostToDevice, stream) == cudaErrorInvalidValue);
    CHECK(cudaMemsetAsync(memory.get, 0, 8, stream) == cudaErrorInvalidValue);
    CHECK(forgotten() == cudaErrorInvalidValue);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    emulator::set_eager(true);
}

TEST_CASE("memory is NaN at first, is counted, and a write outside of it is detected") {
    emulator::set_memory(1 << 20);
    std::size_t free = 0, total = 0;
    float* memory = nullptr;
    CHECK(cudaMalloc(&memory, 400'000) == cudaSuccess);
    CHECK(memory[0] != memory[0]);
    CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
    CHECK(total == 1 << 20);
    CHECK(free == total - 400'000);
    CHECK(emulator::memory_in_use() == 400'000);
    float* more = nullptr;
    CHECK(cudaMalloc(&more, 700'000) == cudaErrorMemoryAllocation);
    CHECK(more == nullptr);
    CHECK(forgotten() == cudaErrorMemoryAllocation);
    emulator::mend();
    const int before = emulator::overruns();
    reinterpret_cast<char*>(memory)[400'000] = 0;
    CHECK(cudaFree(memory) == cudaSuccess);
    CHECK(emulator::overruns() == before + 1);
    CHECK(emulator::failure().find("memory of 400000 bytes of device 0 was written outside of") == 0);
    emulator::mend();
    CHECK(cudaFree(&free) == cudaErrorInvalidValue);
    CHECK(forgotten() == cudaErrorInvalidValue);
    emulator::set_memory(std::size_t{4} << 30);
}

TEST_CASE("captured work does not run at the capture, and then once per launch") {
    const Stream stream;
    const Memory<int> memory(2);
    Graph graph;
    const std::int64_t captures = emulator::captures(), launches = emulator::launches_of_captures();
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(start(stream, &add_kernel, memory.get, 3) == cudaSuccess);
    CHECK(cudaMemcpyAsync(memory.get + 1, memory.get, sizeof(int), cudaMemcpyDeviceToDevice, stream) == cudaSuccess);
    emulator::enqueue(stream, [to = memory.get] { return ++*to, true; });
    CHECK(cudaMemsetAsync(memory.get, 0, 0, stream) == cudaSuccess);
    cudaStreamCaptureStatus status{};
    CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusActive);
    CHECK(cudaStreamEndCapture(stream, &graph.graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&graph.exec, graph.graph) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(memory.read() == 0);
    std::size_t count = 0;
    CHECK(cudaGraphGetNodes(graph.graph, nullptr, &count) == cudaSuccess);
    REQUIRE(count == 4);
    std::vector<cudaGraphNode_t> nodes(count);
    CHECK(cudaGraphGetNodes(graph.graph, nodes.data(), &count) == cudaSuccess);
    cudaGraphNodeType type{};
    CHECK(cudaGraphNodeGetType(nodes[0], &type) == cudaSuccess);
    CHECK(type == cudaGraphNodeTypeKernel);
    CHECK(cudaGraphNodeGetType(nodes[1], &type) == cudaSuccess);
    CHECK(type == cudaGraphNodeTypeMemcpy);
    CHECK(cudaGraphNodeGetType(nodes[3], &type) == cudaSuccess);
    CHECK(type == cudaGraphNodeTypeMemset);
    // Two launches of a graph do not overlap, on two streams either.
    const Stream other;
    for (int i = 0; i < 5; ++i) {
        CHECK(cudaGraphLaunch(graph.exec, stream) == cudaSuccess);
        CHECK(cudaGraphLaunch(graph.exec, other) == cudaSuccess);
    }
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(memory.read() == 40);
    CHECK(memory.read(1) == 39);
    CHECK(emulator::captures() == captures + 1);
    CHECK(emulator::launches_of_captures() == launches + 10);
}

TEST_CASE("a capture includes the streams that wait for it, in parallel, and all have to be joined") {
    const Stream stream, side;
    const Event fork, join;
    const Memory<int> memory(3);
    for (const bool joined : {true, false}) {
        Graph graph;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        CHECK(start(stream, &add_kernel, memory.get, 1) == cudaSuccess);
        CHECK(cudaEventRecord(fork, stream) == cudaSuccess);
        CHECK(cudaStreamWaitEvent(side, fork) == cudaSuccess);
        CHECK(start(side, &copy_kernel, memory.get + 1, memory.get) == cudaSuccess);
        CHECK(cudaEventRecord(join, side) == cudaSuccess);
        CHECK(start(stream, &add_kernel, memory.get + 2, 1) == cudaSuccess);  // beside it
        if (joined) CHECK(cudaStreamWaitEvent(stream, join) == cudaSuccess);
        CHECK(start(stream, &add_kernel, memory.get + 1, 10) == cudaSuccess);
        if (!joined) {
            CHECK(cudaStreamEndCapture(stream, &graph.graph) == cudaErrorStreamCaptureUnjoined);
            CHECK(forgotten() == cudaErrorStreamCaptureUnjoined);
            continue;
        }
        CHECK(cudaStreamEndCapture(stream, &graph.graph) == cudaSuccess);
        CHECK(cudaGraphInstantiate(&graph.exec, graph.graph) == cudaSuccess);
        for (int i = 1; i <= 20; ++i) {
            CHECK(cudaGraphLaunch(graph.exec, stream) == cudaSuccess);
            CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
            CHECK(memory.read(0) == i);
            CHECK(memory.read(1) == i + 10);
            CHECK(memory.read(2) == i);
        }
        CHECK(cudaEventQuery(join) == cudaErrorCapturedEvent);
        CHECK(forgotten() == cudaErrorCapturedEvent);
    }
}

TEST_CASE(
    "an external record in a graph releases another stream before the graph's end, and an external wait holds it") {
    const Stream stream, side;
    const Event ready, gate;
    const Memory<int> memory(3);
    Graph graph;
    bool open = false, passed = false;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(start(stream, &add_kernel, memory.get, 1) == cudaSuccess);
    CHECK(cudaEventRecordWithFlags(ready, stream, cudaEventRecordExternal) == cudaSuccess);
    emulator::enqueue(
        stream, [&] { return open; }, "a gate of the test");
    CHECK(cudaStreamWaitEvent(stream, gate, cudaEventWaitExternal) == cudaSuccess);
    emulator::enqueue(stream, [&] { return passed = true; });
    CHECK(cudaStreamEndCapture(stream, &graph.graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&graph.exec, graph.graph) == cudaSuccess);
    std::size_t count = 5;
    std::vector<cudaGraphNode_t> nodes(count);
    CHECK(cudaGraphGetNodes(graph.graph, nodes.data(), &count) == cudaSuccess);
    REQUIRE(count == 5);
    cudaGraphNodeType type{};
    CHECK(cudaGraphNodeGetType(nodes[1], &type) == cudaSuccess);
    CHECK(type == cudaGraphNodeTypeEventRecord);
    CHECK(cudaGraphNodeGetType(nodes[3], &type) == cudaSuccess);
    CHECK(type == cudaGraphNodeTypeWaitEvent);
    for (int i = 1; i <= 20; ++i) {
        open = passed = false;
        bool gate_open = false;
        emulator::enqueue(
            side, [&] { return gate_open; }, "another gate of the test");
        CHECK(cudaEventRecord(gate, side) == cudaSuccess);
        CHECK(cudaGraphLaunch(graph.exec, stream) == cudaSuccess);
        const Stream reader;
        CHECK(cudaStreamWaitEvent(reader, ready) == cudaSuccess);
        CHECK(start(reader, &copy_kernel, memory.get + 1, memory.get) == cudaSuccess);
        CHECK(cudaStreamSynchronize(reader) == cudaSuccess);  // the graph itself cannot end yet
        CHECK(memory.get[1] == i);
        open = true;
        for (int k = 0; k < 20; ++k) CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
        CHECK_FALSE(passed);
        gate_open = true;
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        CHECK(passed);
        static_cast<void>(forgotten());
    }
}

TEST_CASE("work that cannot be captured aborts the capture") {
    const Stream stream, other;
    const Event event, elsewhere;
    int host = 0;
    const Memory<int> memory(1);
    CHECK(cudaEventRecord(elsewhere, other) == cudaSuccess);
    const auto broken_by = [&](cudaError_t expected, auto call) {
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        CHECK(start(stream, &add_kernel, memory.get, 1) == cudaSuccess);
        CHECK(call() == expected);
        CHECK(start(stream, &add_kernel, memory.get, 1) == cudaErrorStreamCaptureInvalidated);
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
        CHECK(graph == nullptr);
        static_cast<void>(forgotten());
        // The stream can be used as before.
        CHECK(start(stream, &add_kernel, memory.get, 1) == cudaSuccess);
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    };
    broken_by(cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamSynchronize(stream); });
    broken_by(cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamSynchronize(other); });
    broken_by(cudaErrorStreamCaptureUnsupported, [&] { return cudaEventQuery(elsewhere); });
    broken_by(cudaErrorStreamCaptureUnsupported, [&] {
        int* more = nullptr;
        return cudaMalloc(&more, 4);
    });
    broken_by(cudaErrorStreamCaptureUnsupported,
              [&] { return cudaMemcpyAsync(&host, memory.get, 4, cudaMemcpyDeviceToHost, stream); });
    broken_by(cudaErrorStreamCaptureIsolation, [&] { return cudaStreamWaitEvent(stream, elsewhere); });
    emulator::refuse_captures(true);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(start(stream, &add_kernel, memory.get, 1) == cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    emulator::refuse_captures(false);
    static_cast<void>(forgotten());
    // The calls of another thread are not captured.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    std::thread([&] { CHECK(cudaStreamSynchronize(other) == cudaSuccess); }).join();
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("a failed device stays failed, and only this device, until it is repaired") {
    const Stream stream, other(1);
    const Memory<int> memory(1);
    emulator::fail_device(0, 5);
    for (int i = 0; i < 10; ++i) start(stream, &add_kernel, memory.get, 1);
    CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
    CHECK(*memory.get == 5);
    int* more = nullptr;
    CHECK(cudaMalloc(&more, 4) == cudaErrorIllegalAddress);
    CHECK(cudaStreamQuery(stream) == cudaErrorIllegalAddress);
    CHECK(start(stream, &add_kernel, memory.get, 1) == cudaErrorIllegalAddress);
    CHECK(forgotten() == cudaErrorIllegalAddress);
    CHECK(forgotten() == cudaErrorIllegalAddress);  // every call returns it
    int device = -1;
    CHECK(cudaGetDevice(&device) == cudaErrorIllegalAddress);
    CHECK(device == 0);
    CHECK(cudaSetDevice(0) == cudaErrorIllegalAddress);
    std::size_t free = 0, total = 0;
    CHECK(cudaMemGetInfo(&free, &total) == cudaErrorIllegalAddress);
    CHECK(std::string(cudaGetErrorName(cudaErrorIllegalAddress)) == "cudaErrorIllegalAddress");
    CHECK(std::string(cudaGetErrorString(cudaErrorIllegalAddress)) == "an illegal memory access was encountered");
    CHECK(cudaStreamSynchronize(other) == cudaSuccess);
    emulator::mend();
    CHECK(forgotten() == cudaErrorIllegalAddress);
    CHECK(forgotten() == cudaSuccess);
    CHECK(start(stream, &add_kernel, memory.get, 1) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(memory.read() == 6);
}

TEST_CASE("a test sets the error of a lost device, the driver, the compute capability and the visible devices") {
    const Stream stream;
    const Memory<int> memory(1);
    emulator::fail_device(0, 0, cudaErrorECCUncorrectable);
    start(stream, &add_kernel, memory.get, 1);
    CHECK(cudaStreamSynchronize(stream) == cudaErrorECCUncorrectable);
    emulator::mend();
    static_cast<void>(forgotten());

    int driver = 0, count = 0;
    emulator::set_driver(12080);
    CHECK(cudaDriverGetVersion(&driver) == cudaSuccess);
    CHECK(driver == 12080);
    CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
    emulator::set_driver(CUDART_VERSION);
    CHECK(forgotten() == cudaErrorInsufficientDriver);

    emulator::set_capability(8, 0);
    cudaFuncAttributes attributes{};
    const auto* const kernel = reinterpret_cast<const void*>(&add_kernel);
    CHECK(cudaFuncGetAttributes(&attributes, kernel) == cudaErrorNoKernelImageForDevice);
    CHECK(start(stream, &add_kernel, memory.get, 1) == cudaErrorNoKernelImageForDevice);
    emulator::set_capability(12, 0);  // from PTX
    CHECK(cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess);
    int major = 0;
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess);
    CHECK(major == 12);
    emulator::set_capability(9, 0);
    static_cast<void>(forgotten());

    for (const auto& [list, seen] : {std::pair{"", 0}, {"0", 1}, {"1,0", 2}, {"2,7,1", 1}, {"-1", 0}, {"0,1,2,3", 4}}) {
        CAPTURE(list);
        setenv("CUDA_VISIBLE_DEVICES", list, 1);
        CHECK(cudaGetDeviceCount(&count) == (seen == 0 ? cudaErrorNoDevice : cudaSuccess));
        CHECK(count == seen);
        CHECK(cudaSetDevice(seen) == cudaErrorInvalidDevice);
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
    static_cast<void>(forgotten());
}

TEST_CASE("a test sets the number of devices, and a kernel runs only on its stream's device") {
    int count = 0;
    emulator::set_devices(2);
    CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
    CHECK(count == 2);
    CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
    emulator::set_devices(0);
    CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
    CHECK(count == 0);
    emulator::set_devices(4);
    static_cast<void>(forgotten());
    const Stream other(1);
    const Event of_other(1);
    CHECK(start(other, &add_kernel, static_cast<int*>(nullptr), 1) == cudaErrorInvalidResourceHandle);
    CHECK(cudaEventRecord(of_other, nullptr) == cudaErrorInvalidResourceHandle);
    static_cast<void>(forgotten());
    int device = -1, processors = 0;
    CHECK(cudaStreamGetDevice(other, &device) == cudaSuccess);
    CHECK(device == 1);
    emulator::set_multiprocessors(3);
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 1) == cudaSuccess);
    CHECK(processors == 3);
    emulator::set_multiprocessors(2);
    CHECK(emulator::current_device() == 0);
    // Each thread has its own last error.
    CHECK(cudaSetDevice(1) == cudaSuccess);
    std::thread([] { CHECK(emulator::current_device() == 0); }).join();
    CHECK(emulator::current_device() == 1);
    CHECK(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("threads that queue and wait at the same time each have their work done in order") {
    emulator::mend();
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int device = 0; device < 4; ++device) {
        threads.emplace_back([device, &wrong] {
            cudaSetDevice(device);
            cudaStream_t stream = nullptr;
            cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
            int* memory = nullptr;
            cudaMalloc(&memory, sizeof(int));
            cudaMemsetAsync(memory, 0, sizeof(int), stream);
            for (int i = 1; i <= 200; ++i) {
                start(stream, &add_kernel, memory, 1);
                int value = -1;
                if (i % 10 != 0) continue;
                cudaMemcpyAsync(&value, memory, sizeof(int), cudaMemcpyDeviceToHost, stream);
                if (value != i) ++wrong;
            }
            cudaFree(memory);
            cudaStreamDestroy(stream);
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(emulator::failure().empty());
}

namespace {

/// Reads `in[first]` to `in[last]` and writes `out[first]` to `out[last]`; reads and writes `both[0]`.
void spread_kernel(const int* in, int* out, int* both, int first, int last) {
    for (int i = first; i < last; ++i) out[i] = in[i];
    *both = 2 * *both + 1;
}

}  // namespace

TEST_CASE(
    "the memory that a kernel reads and writes is recorded in pages, and the costs of copies and libraries' calls") {
    constexpr std::size_t page = 4096, ints = page / sizeof(int);
    emulator::track_memory(page);
    {
        const Stream stream;
        const Memory<int> in(16 * ints), out(16 * ints), both(1);
        CHECK(reinterpret_cast<std::uintptr_t>(in.get) % page == 0);
        emulator::record_work();
        CHECK(start(stream, &spread_kernel, in.get, out.get, both.get, 0, static_cast<int>(5 * ints)) == cudaSuccess);
        CHECK(start(stream, &spread_kernel, in.get, out.get, both.get, static_cast<int>(ints - 1),
                    static_cast<int>(ints + 1)) == cudaSuccess);
        CHECK(cudaMemcpyAsync(out.get, in.get, 100, cudaMemcpyDefault, stream) == cudaSuccess);
        CHECK(cudaMemsetAsync(out.get, 0, 50, stream) == cudaSuccess);
        emulator::enqueue(stream, [] { return true; }, "a call",
                          {.bytes_read = 7, .bytes_written = 8, .operations = 9});
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        const std::vector<emulator::RecordedWork> work = emulator::recorded_costs();
        REQUIRE(work.size() == 5);
        CHECK((work[0].bytes_read == 6 * page && work[0].bytes_written == 6 * page));
        CHECK((work[1].bytes_read == 3 * page && work[1].bytes_written == 3 * page));
        CHECK((work[2].bytes_read == 100 && work[2].bytes_written == 100));
        CHECK((work[3].bytes_read == 0 && work[3].bytes_written == 50));
        CHECK((work[4].bytes_read == 7 && work[4].bytes_written == 8 && work[4].operations == 9));
        CHECK((work[0].blocks == 1 && work[2].blocks == 0 && work[4].blocks == 0));
        CHECK((work[4].is_library && !work[0].is_library && work[4].name == "a call"));
        // Afterwards the memory is as before.
        CHECK(both.read() == 3);
    }
    emulator::track_memory(0);
    CHECK(emulator::failure() == "");
}

TEST_CASE("a test chooses which work runs; the rest takes its place in the stream and is recorded") {
    const Stream stream;
    const Memory<int> memory(1);
    int calls = 0;
    const auto queue_both = [&] {
        emulator::record_work();
        CHECK(start(stream, &add_kernel, memory.get, 1) == cudaSuccess);
        emulator::enqueue(
            stream, [&] { return ++calls > 0; }, "a call");
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        CHECK(emulator::recorded_work().size() == 2);
    };
    emulator::set_runs(emulator::Runs::nothing);
    queue_both();
    CHECK((memory.read() == 0 && calls == 0));
    emulator::set_runs(emulator::Runs::no_libraries);
    queue_both();
    CHECK((memory.read() == 1 && calls == 0));
    emulator::set_runs(emulator::Runs::everything);
    queue_both();
    CHECK((memory.read() == 2 && calls == 1));
}

TEST_CASE("work takes its time by the clock of its device whether it runs or not, and is recorded with that") {
    const Stream stream;
    const Memory<int> memory(1);
    constexpr double of_kernel = 3e-6, of_call = 0.5;
    emulator::set_kernel_seconds(of_kernel);
    for (const emulator::Runs runs :
         {emulator::Runs::everything, emulator::Runs::no_libraries, emulator::Runs::nothing}) {
        emulator::set_runs(runs);
        emulator::record_work();
        const double began = emulator::device_seconds(0);
        CHECK(start(stream, &add_kernel, memory.get, 1) == cudaSuccess);
        const double seconds = emulator::queued_seconds(stream, of_call, 0);
        emulator::enqueue(
            stream, [=] { return emulator::take_seconds(seconds), true; }, "a call");
        CHECK(start(stream, &add_kernel, memory.get, 1) == cudaSuccess);
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        const std::vector<emulator::RecordedWork> work = emulator::recorded_costs();
        REQUIRE(work.size() == 3);
        CHECK((work[0].seconds == of_kernel && work[1].seconds == of_call && work[2].seconds == of_kernel));
        CHECK((work[0].begun >= began && work[1].begun > work[0].begun));
        CHECK(work[2].begun - work[1].begun > of_call / 2);
        CHECK(emulator::device_seconds(0) - began > of_call / 2);
    }
    emulator::set_runs(emulator::Runs::everything);
    emulator::set_kernel_seconds(5e-6);
}

TEST_CASE("a kernel that begins before the end of the one before it has to wait for that, and to follow one") {
    emulator::mend();
    const Memory<int> value(1);
    const Stream stream;
    const std::int64_t before = emulator::dependent_kernels();
    CHECK(start(stream, add_kernel, value.get, 1) == cudaSuccess);
    CHECK(start_early(stream, waiting_kernel, value.get) == cudaSuccess);
    CHECK(start_early(stream, waiting_kernel, value.get) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(value.read() == 3);
    CHECK(emulator::dependent_kernels() - before == 2);

    CHECK(start_early(stream, add_kernel, value.get, 1) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
    CHECK(emulator::failure().find("for which 1 of its 1 threads did not wait") != std::string::npos);
    emulator::mend();

    // After a library's call, too, which is the kernel before it.
    emulator::enqueue(stream, [to = value.get] { return *to = 10, true; }, "a call",
                      {.bytes_read = 0, .bytes_written = sizeof(int), .operations = 0});
    CHECK(start_early(stream, waiting_kernel, value.get) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(value.read() == 11);

    // After a fill, and as the first work of a capture.
    CHECK(cudaMemsetAsync(value.get, 0, sizeof(int), stream) == cudaSuccess);
    CHECK(start_early(stream, waiting_kernel, value.get) == cudaErrorLaunchFailure);
    CHECK(emulator::failure().find("and follows none") != std::string::npos);
    emulator::mend();
    CHECK(start(stream, add_kernel, value.get, 1) == cudaSuccess);
    Graph graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(start_early(stream, waiting_kernel, value.get) == cudaErrorLaunchFailure);
    static_cast<void>(cudaStreamEndCapture(stream, &graph.graph));
    CHECK(emulator::failure().find("and follows none") != std::string::npos);
    emulator::mend();
    static_cast<void>(forgotten());
}

TEST_CASE("managed memory is in the memory of the devices to which it was brought") {
    emulator::set_memory(1 << 20);
    void* memory = nullptr;
    constexpr std::size_t bytes = 600'000, first = 200'000;
    const auto device = [](int number) { return cudaMemLocation{cudaMemLocationTypeDevice, number}; };
    CHECK(cudaMallocManaged(&memory, bytes) == cudaSuccess);
    CHECK(emulator::memory_in_use() == 0);
    auto* const values = static_cast<std::byte*>(memory);
    CHECK(cudaMemAdvise(values, first, cudaMemAdviseSetPreferredLocation, device(2)) == cudaSuccess);
    CHECK(cudaMemAdvise(values, bytes, cudaMemAdviseSetAccessedBy, device(0)) == cudaSuccess);
    CHECK(cudaMemPrefetchAsync(values, first, device(2), 0) == cudaSuccess);
    CHECK(cudaMemPrefetchAsync(values + first, bytes - first, device(0), 0) == cudaSuccess);
    CHECK(emulator::memory_in_use(2) == first);
    CHECK(emulator::memory_in_use(0) == bytes - first);
    CHECK(emulator::is_reached_by(0, values));
    CHECK(emulator::is_reached_by(1, values));
    // What is there already, what does not fit, and what is not managed memory.
    CHECK(cudaMemPrefetchAsync(values, first, device(1), 0) == cudaErrorNotSupported);
    void *large = nullptr, *own = nullptr;
    CHECK(cudaMallocManaged(&large, 900'000) == cudaSuccess);
    CHECK(cudaMemPrefetchAsync(large, 900'000, device(2), 0) == cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&own, 4) == cudaSuccess);
    CHECK(cudaMemPrefetchAsync(own, 4, device(0), 0) == cudaErrorInvalidValue);
    CHECK(cudaMemAdvise(values, bytes + 1, cudaMemAdviseSetAccessedBy, device(0)) == cudaErrorInvalidValue);
    CHECK(cudaMemAdvise(values, bytes, cudaMemAdviseSetAccessedBy, device(99)) == cudaErrorInvalidValue);
    emulator::set_concurrent_managed(false);
    CHECK(cudaMemAdvise(values, bytes, cudaMemAdviseSetAccessedBy, device(0)) == cudaErrorInvalidValue);
    emulator::set_concurrent_managed(true);
    CHECK(forgotten() == cudaErrorInvalidValue);
    for (void* const each : {memory, large, own}) CHECK(cudaFree(each) == cudaSuccess);
    CHECK(emulator::memory_in_use() == 0);
    emulator::set_memory(std::size_t{4} << 30);
}
