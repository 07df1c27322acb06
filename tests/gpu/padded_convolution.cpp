// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of few channels, on the emulator: whether their channels are padded for the tensor cores is a choice as that of
// the engine is, and changes no value.
#include "../test.hpp"

#include <cupola/cuda.hpp>
#include <cupola/ops/cuda/convolution.hpp>

#include "../reference/compare.hpp"
#include "../throws_with.hpp"
#include "emulator/control.hpp"
#include "emulator/cudnn_engines.hpp"

namespace {

constexpr double enough = 60;

/// Forward of a convolution of 5 x 7 positions, in memory of the host, which the emulator's devices read.
template <class T>
struct Forward {
    Forward(CudaContext& cuda, std::int64_t channels, bool relu = true, bool training = true, std::int64_t groups = 1)
        : context(cuda),
          shape{window_axis(5, 3, 1, Padding::same), window_axis(7, 3, 2, Padding::same), channels, 16, true, groups},
          input(static_cast<std::size_t>(batch * 5 * 7 * channels)),
          output(static_cast<std::size_t>(batch * 5 * 4 * 16)),
          operation({.context = cuda,
                     .batch = batch,
                     .input = Shape{5, 7, channels},
                     .output = Shape{5, 4, 16},
                     .activation = relu ? Activation::relu : Activation::none,
                     .training = training},
                    shape) {}

    static constexpr std::int64_t batch = 3;

    /// The bits of the output, where rows of scratch memory and of weights are NaN before.
    [[nodiscard]] std::vector<std::uint16_t> run() {
        const impl::OnCudaDevice team = context.team();
        const reference::Floats values = reference::Random(1).normal(std::ssize(input)),
                                weights = reference::Random(2).normal(16 * 9 * shape.in_channels),
                                bias = reference::Random(3).normal(16);
        for (std::size_t i = 0; i < input.size(); ++i) input[i] = T(values[i]);
        const MemoryNeeds needs = operation.needs();
        CudaArena scratch(needs.scratch, "scratch"), packed(needs.packed, "packed");
        CudaArena tensors(aligned(input.size() * sizeof(T)) + output.size() * sizeof(T), "tensors");
        CudaArena parameters(aligned(weights.size() * sizeof(float)) + bias.size() * sizeof(float), "parameters");
        CHECK(cudaMemset(scratch.data(), 0xFF, scratch.size()) == cudaSuccess);
        CHECK(cudaMemset(packed.data(), 0xFF, packed.size()) == cudaSuccess);
        const auto upload = [](void* to, const auto& from) {
            CHECK(cudaMemcpy(to, from.data(), from.size() * sizeof(from[0]), cudaMemcpyHostToDevice) == cudaSuccess);
        };
        auto* const w = reinterpret_cast<float*>(parameters.data());
        auto* const b = reinterpret_cast<float*>(parameters.data() + aligned(weights.size() * sizeof(float)));
        auto* const x = reinterpret_cast<T*>(tensors.data());
        auto* const y = reinterpret_cast<T*>(tensors.data() + aligned(input.size() * sizeof(T)));
        upload(w, weights);
        upload(b, bias);
        upload(x, input);
        ForwardArgs<Cuda, T> args{.context = context, .input = x, .output = y};
        args.parameters = {w, b};
        args.packed = packed.data();
        args.scratch = scratch.data();
        operation.prepare(args);
        operation.forward(args);
        std::vector<std::uint16_t> bits(output.size());
        Cuda::copy_to_host(context, reinterpret_cast<std::byte*>(bits.data()), reinterpret_cast<const std::byte*>(y),
                           bits.size() * sizeof(std::uint16_t));
        return bits;
    }

    CudaContext& context;
    ConvolutionShape shape;
    std::vector<T> input, output;
    ops::Convolution<Cuda, T> operation;
};

/// Sets the time of the engine with tensor cores, and restores it.
struct EngineTime : NotCopied {
    explicit EngineTime(double seconds) {
        emulator::set_engine_behavior(emulator::tensor_core_engine, emulator::EngineBehavior{seconds});
    }
    ~EngineTime() { emulator::set_engine_behavior(emulator::tensor_core_engine, std::nullopt); }
};

}  // namespace

TEST_CASE_TEMPLATE("few channels are padded where that takes less time, with the same bits", T, BFloat16, Float16) {
    for (const std::int64_t channels : {1, 3, 7}) {
        for (const bool relu : {false, true}) {
            CAPTURES(channels, relu);
            CudaContext context(0, {.plan_seconds = enough});
            Forward<T> padded(context, channels, relu);
            CHECK(padded.operation.pads());
            const PlanRecord record = context.plan_choices().records().at(0);
            CHECK(contains(record.key, ": 3 x 5 x 7 x 8 -> "));
            REQUIRE(record.candidates.size() == 4);
            CHECK(contains(record.candidates[3].name, ", tensor cores, padded"));
            CHECK(record.timed == 4);  // two settings of an engine with padding, and two without
            CHECK(record.seconds == doctest::Approx(95e-6));
            CHECK(record.next_seconds == doctest::Approx(105e-6));

            const EngineTime fast(2e-6);  // less than the kernel that pads
            CudaContext other(0, {.plan_seconds = enough});
            Forward<T> plain(other, channels, relu);
            CHECK_FALSE(plain.operation.pads());
            CHECK(plain.operation.needs().scratch < padded.operation.needs().scratch);
            CHECK(contains(other.plan_choices().records().at(0).key, text(": 3 x 5 x 7 x ", channels, " -> ")));
            const std::vector<std::uint16_t> bits = plain.run();
            CHECK(padded.run() == bits);

            // The kept choice says whether to pad.
            CudaContext again(0, {.plan_seconds = enough,
                                  .plan_choices = std::make_shared<PlanChoices>(context.plan_choices().to_text())});
            const std::int64_t before = emulator::library_calls();
            Forward<T> kept(again, channels, relu);
            CHECK(kept.operation.pads());
            CHECK(emulator::library_calls() == before);
        }
    }
}

TEST_CASE("without times, channels are padded where only then an engine with tensor cores is ranked first") {
    CudaContext context(0, {.plan_seconds = 0});
    CHECK(Forward<BFloat16>(context, 3).operation.pads());
    CHECK(Forward<BFloat16>(context, 3, true, false).operation.pads());
    CHECK_FALSE(Forward<BFloat16>(context, 8).operation.pads());
    CHECK_FALSE(Forward<BFloat16>(context, 12).operation.pads());
    // Those of groups are not, with times neither.
    CHECK_FALSE(Forward<BFloat16>(context, 4, true, true, 2).operation.pads());
    CudaContext timed(0, {.plan_seconds = enough});
    CHECK_FALSE(Forward<BFloat16>(timed, 4, true, true, 2).operation.pads());
    CudaContext tf32(0, {.tf32 = true, .plan_seconds = 0});
    CHECK_FALSE(Forward<float>(tf32, 3).operation.pads());
    // Scratch memory for padding counts as an engine's own does.
    CudaContext limited(0, {.plan_seconds = 0});
    constexpr std::size_t weights = 16 * 9 * 8, of_engine = weights * sizeof(float);
    limited.set_max_workspace(of_engine + weights * sizeof(BFloat16));  // and none for the input
    CHECK_FALSE(Forward<BFloat16>(limited, 3).operation.pads());
    CudaContext large(0, {.plan_seconds = 0});
    large.set_max_workspace(Forward<BFloat16>(context, 3).operation.needs().scratch);
    CHECK(Forward<BFloat16>(large, 3).operation.pads());
}
