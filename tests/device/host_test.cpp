// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/device/flushed_denormals.hpp
//
// The CPU as a device: its team of threads, its memory, and the errors for invalid options.
#include "../test.hpp"

#include <cupola/device/flushed_denormals.hpp>
#include <cupola/device/host.hpp>
#include <cupola/ops/host/convolution_algorithm.hpp>

#include "../child_process.hpp"
#include "../throws_with.hpp"

static_assert(Device<Host>);
static_assert(Host::name == "Host");
static_assert(!std::is_copy_constructible_v<HostArena> && std::is_nothrow_move_constructible_v<HostArena>);
static_assert(!std::is_copy_constructible_v<HostContext>, "a context has one owner");

namespace {

/// How many threads an OpenMP region gets here and now.
int region_size() {
    int size = 0;
#pragma omp parallel
    {
#pragma omp single
        size = omp_get_num_threads();
    }
    return size;
}

volatile float small = 1e-30F;  // of the file, so that the compiler cannot know it

}  // namespace

TEST_CASE("a host device rejects impossible numbers of threads") {
    const auto message = [](int threads) {
        return message_of<InvalidArgument>([&] { HostContext(0, {.threads = threads}); });
    };
    CHECK(message(0) == "a host device must have 1 to 4096 threads, not 0");
    CHECK(message(-3) == "a host device must have 1 to 4096 threads, not -3");
    CHECK(message(1'000'000) == "a host device must have 1 to 4096 threads, not 1000000");
}

TEST_CASE("a context has the ordinal and the threads that it was made with") {
    const HostContext context(3, {.threads = 2});
    CHECK(context.ordinal() == 3);
    CHECK(context.threads() == 2);
    CHECK(context.engine() != nullptr);
    CHECK(context.stream() != nullptr);
}

TEST_CASE("a team sets the number of threads during its lifetime, and then restores the caller's") {
    const HostContext context(0, {.threads = 2});
    omp_set_num_threads(3);
    {
        const auto team = context.team();
        CHECK(omp_get_max_threads() == 2);
        CHECK(region_size() == 2);
    }
    CHECK(omp_get_max_threads() == 3);
    CHECK(region_size() == 3);
}

TEST_CASE("making a context leaves the caller's number of threads as it was") {
    omp_set_num_threads(2);
    const HostContext context(0, {.threads = 4});
    CHECK(omp_get_max_threads() == 2);
    omp_set_num_threads(1);
}

TEST_CASE("a rejected context leaves the caller's number of threads as it was") {
    omp_set_num_threads(2);
    CHECK_THROWS(HostContext(0, {.threads = 0}));
    CHECK(omp_get_max_threads() == 2);
    omp_set_num_threads(1);
}

TEST_CASE("contexts of different sizes exist in one process, nested and one after another") {
    const HostContext one(0, {.threads = 1}), two(1, {.threads = 2}), four(2, {.threads = 4});
    for (int round = 0; round < 3; ++round) {
        for (const HostContext* context : {&one, &four, &two}) {
            const auto team = context->team();
            CHECK(region_size() == context->threads());
        }
    }
    const auto outer = four.team();
    {
        const auto inner = two.team();
        CHECK(region_size() == 2);
    }
    CHECK(region_size() == 4);
}

TEST_CASE("contexts of different sizes work at the same time in separate threads") {
    std::vector<int> sizes(3);
    std::vector<std::thread> workers;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        workers.emplace_back([&sizes, i] {
            const HostContext context(static_cast<int>(i), {.threads = static_cast<int>(i) + 1});
            for (int round = 0; round < 20; ++round) {
                const auto team = context.team();
                const int size = region_size();
                if (round == 0 || size != sizes[i]) sizes[i] = size;
            }
        });
    }
    for (std::thread& worker : workers) worker.join();
    CHECK(sizes == std::vector<int>{1, 2, 3});
}

TEST_CASE("child: two threads where OMP_THREAD_LIMIT allows one" * doctest::skip()) {
    CHECK_NOTHROW(HostContext(0, {.threads = 1}));
    CHECK(message_of<DeviceError>([] { HostContext(7, {.threads = 2}); }) ==
          "host device 7 requested 2 OpenMP threads and got 1; OMP_THREAD_LIMIT or OMP_DYNAMIC limits this "
          "process");
}

TEST_CASE("a team that the OpenMP runtime makes smaller is rejected") {
    check_in_child("child: two threads where OMP_THREAD_LIMIT allows one", {{"OMP_THREAD_LIMIT", "1"}});
}

TEST_CASE("child: four threads where OMP_THREAD_LIMIT allows three" * doctest::skip()) {
    CHECK_NOTHROW(HostContext(0, {.threads = 3}));
    CHECK(contains(message_of<DeviceError>([] { HostContext(0, {.threads = 4}); }),
                   "requested 4 OpenMP threads and got 3"));
}

TEST_CASE("a team that is smaller by one thread is rejected too") {
    check_in_child("child: four threads where OMP_THREAD_LIMIT allows three", {{"OMP_THREAD_LIMIT", "3"}});
}

TEST_CASE("flush_denormals reaches every thread of the team") {
    // In a thread of its own, since the setting stays with the threads.
    std::vector<float> results(2, -1.0F);
    std::thread([&] {
        const HostContext context(0, {.threads = 2});
        context.flush_denormals();
        const auto team = context.team();
#pragma omp parallel
        results[static_cast<std::size_t>(omp_get_thread_num())] = small * 1e-10F;
    }).join();
    CHECK(results[0] == 0.0F);
    CHECK(results[1] == 0.0F);
    CHECK(small * 1e-10F > 0.0F);  // and no other thread
}

#ifdef __SSE__
TEST_CASE("a thread flushes denormals for the lifetime of one object") {
    {
        const impl::FlushedDenormals scope;
        CHECK(small * 1e-10F == 0.0F);
    }
    CHECK(small * 1e-10F > 0.0F);
}
#endif

TEST_CASE("an arena is aligned and zero-filled") {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{64}, std::size_t{4097}, std::size_t{33} << 20}) {
        CAPTURE(bytes);
        HostArena arena(bytes, "a test");
        REQUIRE(arena.data() != nullptr);
        CHECK(arena.size() == bytes);
        CHECK(reinterpret_cast<std::uintptr_t>(arena.data()) % alignment == 0);
        bool zero = true;
        for (std::size_t i = 0; i < bytes; ++i) zero = zero && arena.data()[i] == std::byte{0};
        CHECK(zero);
        arena.data()[0] = arena.data()[bytes - 1] = std::byte{1};
    }
}

TEST_CASE("an arena of no bytes owns nothing") {
    CHECK(HostArena(0, "a test").data() == nullptr);
    CHECK(HostArena().size() == 0);
}

TEST_CASE("a moved arena keeps its memory, and the one it came from is empty") {
    HostArena first(1000, "a test");
    first.data()[999] = std::byte{42};
    std::byte* const memory = first.data();
    HostArena second(std::move(first));
    CHECK(second.data() == memory);
    CHECK(first.data() == nullptr);  // NOLINT: what a move leaves behind is the point
    HostArena third;
    third = std::move(second);
    CHECK(third.data() == memory);
    CHECK(third.size() == 1000);
    CHECK(third.data()[999] == std::byte{42});
    CHECK(second.data() == nullptr);  // NOLINT
}

TEST_CASE("a request for more memory than any system has is rejected, and the message names its purpose") {
    CHECK(message_of<OutOfMemory>([] { HostArena(std::size_t{1} << 60, "the activations of device 0"); }) ==
          "the activations of device 0 need 1152921504.6 GB, which could not be allocated");
    CHECK_THROWS_AS(HostArena(~std::size_t{0}, "x"), OutOfMemory);
}

TEST_CASE("available memory is between a megabyte and the machine's memory") {
    const std::size_t available = Host::available_memory();
    const std::size_t total =
        static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    CHECK(available > 1'000'000);
    CHECK(available <= total);
}

TEST_CASE("a number is read from a file of the system, or is the fallback where there is no file") {
    CHECK(impl::number_in_file("/proc/meminfo", "MemTotal:", 7) > 1000);
    CHECK(impl::number_in_file("/proc/meminfo", "NoSuchKey:", 7) == 7);
    CHECK(impl::number_in_file("/no/such/file", "", 7) == 7);
}

TEST_CASE("copies between the host and its device carry every byte") {
    HostContext context(0, {});
    std::vector<std::byte> from(1001), to(1001);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7);
    HostArena arena(from.size(), "a test");
    Host::copy_from_host(context, arena.data(), from.data(), from.size());
    Host::copy_to_host(context, to.data(), arena.data(), to.size());
    CHECK(from == to);
    CHECK_NOTHROW(Host::copy_from_host(context, HostArena().data(), nullptr, 0));
    CHECK_NOTHROW(Host::copy_to_host(context, nullptr, HostArena().data(), 0));
}

TEST_CASE("the description of the arithmetic can be queried") {
    CHECK(Host::library_version().substr(0, 2) == "3.");
    CHECK_FALSE(Host::library_isa().empty());
    int properties = 0;
    Host::describe(HostOptions{}, [&](std::string_view name, const std::string& text) {
        CHECK_FALSE(text.empty());
        // A run that is resumed elsewhere says for these names that the machine is another.
        CHECK(std::ranges::count(machine_property::all, name) == 1);
        ++properties;
    });
    CHECK(properties == 4);
}

TEST_CASE("oneDNN's errors become exceptions with the call and its status") {
    CHECK(message_of<DeviceError>([] { impl::check_dnnl(dnnl_out_of_memory, "dnnl_primitive_create"); }) ==
          "oneDNN's dnnl_primitive_create failed: out_of_memory");
    CHECK_NOTHROW(impl::check_dnnl(dnnl_success, "dnnl_primitive_create"));
}
