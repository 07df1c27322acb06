// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/device/cuda/graph.hpp, cupola/device/cuda/event.hpp, cupola/device/cuda/pinned.hpp
//
// Captured work, events and pinned memory: what holds without a GPU, and, with one, their effect.
#include <cupola/device/cuda/graph.hpp>

#include "../test.hpp"

#include <stdexcept>

#include <cupola/device/cuda/event.hpp>
#include <cupola/device/cuda/pinned.hpp>

#include "../throws_with.hpp"

using impl::CapturedWork;

namespace {

bool has_gpu() {
    try {
        return cuda_devices() > 0;
    } catch (const DeviceError&) {
        return false;
    }
}

void queue_bytes(const CudaContext& context, CudaArena& to, int value) {
    impl::check_cuda(cudaMemsetAsync(to.data(), value, to.size(), context.stream()), "cudaMemsetAsync");
}

std::byte first_byte(CudaContext& context, const CudaArena& arena) {
    std::byte value{};
    Cuda::copy_to_host(context, &value, arena.data(), 1);
    return value;
}

}  // namespace

TEST_CASE("before anything is captured there is nothing to launch") {
    CapturedWork work;
    CHECK_FALSE(work.captured());
    CHECK(work.refused().empty());
    CHECK(work.nodes() == CapturedWork::Nodes{});
    work.destroy();
    std::vector<CapturedWork> several(3);
    several.push_back(std::move(work));
    CHECK_FALSE(several.back().captured());
}

TEST_CASE("an event that was never recorded has happened, and pinned memory of no bytes is empty") {
    CHECK(impl::StepEvent{}.happened());
    CHECK(impl::StepEvent{}.get() == nullptr);
    CHECK(impl::CudaPinned(0).data() == nullptr);
    CHECK(impl::CudaPinned{}.size() == 0);
}

TEST_CASE("captured work runs once per launch") {
    if (!has_gpu()) return;
    CudaContext context(0, {});
    CudaArena arena(1000, "a test");
    CapturedWork work;
    CHECK(message_of<InvalidArgument>([&] { work.launch(context); }) == "there is no captured work to launch");
    work.capture(context, [&] { queue_bytes(context, arena, 5); });
    INFO(work.refused());
    REQUIRE(work.captured());
    CHECK(work.nodes()[cudaGraphNodeTypeMemset] == 1);
    CHECK(first_byte(context, arena) == std::byte{0});
    for (int launch = 0; launch < 2; ++launch) {
        work.launch(context);
        CHECK(first_byte(context, arena) == std::byte{5});
        queue_bytes(context, arena, 6);
        CHECK(first_byte(context, arena) == std::byte{6});
    }
    work.destroy();
    CHECK_FALSE(work.captured());
}

TEST_CASE("work that cannot be captured is rejected with the reason, and the context stays usable") {
    if (!has_gpu()) return;
    CudaContext context(0, {});
    CudaArena arena(1000, "a test");
    CapturedWork work;
    work.capture(context, [&] {
        queue_bytes(context, arena, 5);
        context.synchronize();
    });
    CHECK_FALSE(work.captured());
    CHECK(contains(work.refused(),
                   "CUDA's cudaStreamSynchronize failed on device 0 with cudaErrorStreamCaptureUnsupported: "));
    CHECK(contains(message_of<InvalidArgument>([&] { work.launch(context); }),
                   "there is no captured work to launch: CUDA's "));
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(first_byte(context, arena) == std::byte{0});
    CHECK_THROWS_AS(work.capture(context, [] { throw std::logic_error("an error of the caller"); }), std::logic_error);
    work.capture(context, [&] { queue_bytes(context, arena, 7); });
    REQUIRE(work.captured());
    work.launch(context);
    CHECK(first_byte(context, arena) == std::byte{7});
}

TEST_CASE("an event happens when the work that was queued before it is done, and pinned memory then has its result") {
    if (!has_gpu()) return;
    CudaContext context(0, {});
    CudaArena arena(std::size_t{1} << 26, "a test");
    impl::CudaPinned pinned(arena.size());
    CHECK(pinned.data()[0] == std::byte{0});
    CHECK(pinned.data()[pinned.size() - 1] == std::byte{0});
    queue_bytes(context, arena, 9);
    context.queue_copy(pinned.data(), arena.data(), arena.size());
    impl::StepEvent event;
    event.record(context);
    while (!event.happened()) {
    }
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(pinned.data()[pinned.size() - 1] == std::byte{9});
}
