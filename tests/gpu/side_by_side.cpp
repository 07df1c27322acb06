// SPDX-License-Identifier: Apache-2.0
//
// The gradients of a layer's weights and of its input on two streams, and kernels that are launched before the one before them has
// ended, on the emulator, which runs the branches of a graph in a random order: neither changes a bit. And the copy of a step's numbers
// by the kernel of the update, which a check behind it makes once more.
#include "../test.hpp"

#include <cupola/cuda.hpp>
#include <cupola/layers.hpp>
#include <cupola/layers/initializer.hpp>
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/optim/schedule.hpp>
#include <cupola/optim/sgd.hpp>
#include <cupola/parallel/cuda/concat_mean.hpp>
#include <cupola/parallel/data_parallel.hpp>

#include "../devices.hpp"
#include "../throws_with.hpp"
#include "emulator/control.hpp"
#include "emulator/cudnn_engines.hpp"
#include "emulator/stream.hpp"

namespace {

// The last layer has more than 16 outputs: layers of fewer have one kernel for both gradients. The pooling is a kernel before a product.
struct SideNet : Sequential<Input<6, 6, 3>, Conv2d<4, 3>, ReLU, Conv2d<4, 3>, ReLU, MaxPool2d<2>, Flatten, Linear<24>,
                            ReLU, Linear<20>> {};
// Products have scratch memory from 8 samples on; with 10 none of it is a multiple of 256 bytes.
constexpr std::int64_t batch_size = 10;

/// In host memory, which the emulator's devices read.
class SideBatches {
public:
    explicit SideBatches(float deviation = 1) : inputs_(batch_size * 108), labels_(batch_size) {
        initialize(inputs_, normal(static_cast<double>(deviation)), 1, 1, 3, 0);
        for (std::size_t n = 0; n < labels_.size(); ++n) labels_[n] = static_cast<std::int32_t>(n % 20);
    }
    BatchView operator()(std::int64_t, int, CudaContext&) const {
        return {inputs_.data(), labels_.data(), batch_size, SideNet::input_shape};
    }

private:
    std::vector<float> inputs_;
    std::vector<std::int32_t> labels_;
};

/// The algorithms with scratch memory take the least time.
class WithScratch : NotCopied {
public:
    WithScratch() {
        emulator::set_engine_behavior(emulator::tensor_core_engine, emulator::EngineBehavior{.seconds = 50e-6});
        emulator::set_engine_behavior(emulator::tiled_engine, emulator::EngineBehavior{.seconds = 50e-6});
        emulator::set_product_behavior(2, emulator::EngineBehavior{.seconds = 20e-6});
    }
    ~WithScratch() {
        for (const std::int64_t engine : {emulator::tensor_core_engine, emulator::tiled_engine})
            emulator::set_engine_behavior(engine, std::nullopt);
        emulator::set_product_behavior(2, std::nullopt);
    }
};

struct Result {
    std::vector<float> parameters;
    /// In one step.
    std::int64_t dependent = 0;
    std::size_t scratch = 0;
};

template <class Net>
Result trained(CudaOptions options, int accumulation = 1) {
    const SideBatches batches;
    options.plan_seconds = 60;
    options.deterministic = true;
    options.linear_chains = false;  // the products of a layer side by side, too
    DataParallel<Net, CrossEntropy<20>, Sgd, ConcatMean, Cuda> training({.replicas = 2,
                                                                         .device = options,
                                                                         .batch_size = batch_size,
                                                                         .gradient_accumulation_steps = accumulation,
                                                                         .seed = 3,
                                                                         .optimizer = {.learning_rate = 0.1}});
    for (int i = 0; i < 4; ++i) training.step(batches);
    CHECK(training.not_captured() == "");
    const std::int64_t before = emulator::dependent_kernels();
    training.step(batches);
    Result result{training.parameters(), emulator::dependent_kernels() - before, training.memory().plan.scratch};
    CHECK(emulator::failure() == "");
    return result;
}

/// A step of one or two batches per replica has so many kernels that follow one other kernel, their own or a library's.
template <class Net>
void expect_same_bits(std::array<int, 2> kernels_launched_early) {
    const WithScratch scratch;
    for (const int accumulation : {1, 2}) {
        CAPTURE(accumulation);
        const Result chain = trained<Net>({.side_by_side_gradients = false}, accumulation);
        CHECK(chain.dependent == 0);
        for (const std::uint64_t seed : {1, 2, 3}) {
            CAPTURE(seed);
            emulator::set_seed(seed);
            const Result branches = trained<Net>({}, accumulation);
            CHECK(branches.parameters == chain.parameters);
            CHECK(branches.dependent == 0);
            CHECK(branches.scratch > chain.scratch);
            const Result early = trained<Net>({.dependent_launch = true}, accumulation);
            CHECK(early.parameters == chain.parameters);
            CHECK(early.dependent == kernels_launched_early[accumulation - 1]);
        }
    }
}

}  // namespace

TEST_CASE("branches of the graph and kernels that are launched early change no bits") {
    SUBCASE("float") { expect_same_bits<SideNet>({8, 22}); }
    SUBCASE("bfloat16") { expect_same_bits<InPrecision<MixedBFloat16, SideNet>>({12, 24}); }
}

TEST_CASE("a kernel is launched early after one kernel, its own or a library's, and not after a copy") {
    CudaContext cuda(0, {.dependent_launch = true});
    CudaArena memory(2 * sizeof(float), "a test");
    auto* const at = reinterpret_cast<float*>(memory.data());
    const auto launched_early = [&](const auto& before) {
        const std::int64_t count = emulator::dependent_kernels();
        before();
        impl::queue_set(cuda, at, 1.0F);
        cuda.synchronize();
        CHECK(emulator::failure() == "");
        return emulator::dependent_kernels() - count;
    };
    const CudaContext::DeferScope scope(cuda);
    CHECK(launched_early([] {}) == 0);
    CHECK(launched_early([] {}) == 1);
    CHECK(launched_early([&] { cuda.queue_copy(at + 1, at, sizeof(float)); }) == 0);
    CHECK(launched_early([&] {
              emulator::enqueue(
                  cuda.stream_of_library(), [] { return true; }, "a call");
          }) == 1);
    const CudaContext::StreamScope other(cuda, nullptr);
    CHECK(launched_early([] {}) == 0);
}

TEST_CASE("work on two streams waits for what precedes it, and what follows waits for both") {
    CudaContext cuda(0, {});
    CudaArena memory(4 * sizeof(float), "a test");
    auto* const at = reinterpret_cast<float*>(memory.data());
    for (int i = 0; i < 50; ++i) {
        const auto set = [&](int k, float value) { impl::queue_set(cuda, at + k, value); };
        set(0, static_cast<float>(i));
        cuda.launch_joined();
        cuda.queue_side_by_side(
            true, [&] { cuda.queue_copy(at + 1, at, sizeof(float)); },
            [&] { cuda.queue_copy(at + 2, at, sizeof(float)); });
        cuda.queue_copy(at + 3, at + 2, sizeof(float));
        set(0, -1.0F);
        set(2, -1.0F);
        cuda.synchronize();
        std::vector<float> read(4);
        Cuda::copy_to_host(cuda, reinterpret_cast<std::byte*>(read.data()), memory.data(), memory.size());
        CHECK(read == std::vector<float>{-1.0F, static_cast<float>(i), -1.0F, static_cast<float>(i)});
    }
}

TEST_CASE("without a second stream, or where the caller does not allow it, work is queued in its order") {
    for (const bool allowed : {false, true}) {
        CudaContext cuda(0, {.side_by_side_gradients = !allowed});
        std::string order;
        cuda.queue_side_by_side(
            allowed, [&] { order += "main "; }, [&] { order += "side"; });
        CHECK(order == "main side");
    }
}

TEST_CASE("a check of the parameters behind the update is in the numbers of its step") {
    // The second update, which is captured, makes parameters infinite: 1e-4, and then 1e38 times gradients of large inputs.
    const SideBatches batches(1000.0F);
    DataParallel<SideNet, CrossEntropy<20>, Sgd, ConcatMean, Cuda> training(
        {.batch_size = batch_size,
         .seed = 3,
         .optimizer = {.learning_rate = exponential_decay(1e-8, 1, 1e46)},
         .check_every = 1});
    training.step(batches);
    CHECK(message_of<DivergedError>([&] { training.step(batches); }).find("after step 1 the parameter ") == 0);
}
