// SPDX-License-Identifier: Apache-2.0
//
// The choice of a plan by its time, with engines of cuDNN and algorithms of cuBLASLt whose times the test sets.
#include "../../../test.hpp"

#include <mutex>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/convolution_plans.hpp>
#include <cupola/ops/cuda/impl/cublas_product.hpp>

#include "../../../throws_with.hpp"
#include "../control.hpp"
#include "../cudnn_engines.hpp"

using emulator::nondeterministic_engine, emulator::plain_engine, emulator::tensor_core_engine, emulator::tiled_engine;
using impl::ChosenPlan, impl::ConvolutionDirection, impl::ConvolutionProblem, impl::CublasProduct;

namespace {

constexpr double microsecond = 1e-6;

/// Sets the times of engines and algorithms, and restores them.
class Times : NotCopied {
public:
    Times() = default;
    ~Times() {
        for (std::int64_t i = 0; i < emulator::engine_count; ++i) {
            emulator::set_engine_behavior(i, std::nullopt);
            emulator::set_product_behavior(i, std::nullopt);
        }
        emulator::set_gpu_name("Emulated GPU");
        emulator::set_clock({});
        emulator::set_load_seconds(0.3);
    }
    void engine(std::int64_t engine, double seconds, bool fails = false, std::int64_t workspace = 0) const {
        emulator::set_engine_behavior(engine, emulator::EngineBehavior{seconds, fails, workspace});
    }
    void product(std::int64_t splits, double seconds, bool fails = false) const {
        emulator::set_product_behavior(splits, emulator::EngineBehavior{seconds, fails});
    }
};

/// Seconds that a plan takes here at most to be made and timed; no test needs as much.
constexpr double enough = 60;

ConvolutionProblem problem_of(ConvolutionDirection direction = ConvolutionDirection::backward_data,
                              ElementType element = ElementType::float32) {
    const ConvolutionShape shape{window_axis(6, 3, 1, Padding::same), window_axis(6, 3, 1, Padding::same), 4, 8, true};
    return {direction, 2, shape, element, direction == ConvolutionDirection::forward};
}

ChosenPlan planned(const CudaContext& context, const ConvolutionProblem& problem = problem_of()) {
    const impl::OnCudaDevice team = context.team();
    const CudaOptions& options = context.options();
    impl::EngineRules rules = impl::convolution_rules(problem.element, options.tf32, options.deterministic);
    rules.max_workspace = std::min(rules.max_workspace, context.max_workspace());
    const impl::CudnnTarget target{.handle = context.cudnn(), .device_name = context.gpu_name()};
    const impl::PlanTrial trial{.stream = context.stream(), .seconds = options.plan_seconds};
    return impl::plan_convolution(target, problem, rules, &context.plan_choices(), trial);
}

CublasProduct product_of(const CudaContext& context, CublasProduct::Epilogue epilogue = CublasProduct::Epilogue::none) {
    const impl::OnCudaDevice team = context.team();
    const impl::CublasMatrix a{CUDA_R_32F, 32, 16, true}, b{CUDA_R_32F, 32, 24}, d{CUDA_R_32F, 16, 24};
    CublasProduct product(context, a, b, d, epilogue, true);
    CHECK(product.found());
    return product;
}

/// The record of the last plan.
PlanRecord last(const CudaContext& context) {
    REQUIRE_FALSE(context.plan_choices().records().empty());
    return context.plan_choices().records().back();
}

std::int64_t knob(const EngineChoice& choice, std::int64_t type) {
    for (const auto& [its_type, value] : choice.knobs) {
        if (its_type == type) return value;
    }
    return -1;
}

}  // namespace

TEST_CASE("the engine that takes the least time is chosen, of those that the rules allow") {
    Times times;
    for (const std::int64_t fastest : {plain_engine, tiled_engine, nondeterministic_engine}) {
        CAPTURE(fastest);
        for (const std::int64_t each : {plain_engine, tiled_engine, nondeterministic_engine})
            times.engine(each,
                         each == fastest ? 100 * microsecond : (200 + 10 * static_cast<double>(each)) * microsecond);
        for (const std::int64_t forbidden : {emulator::short_sums_engine, emulator::compiled_engine,
                                             emulator::large_workspace_engine, emulator::down_convert_engine})
            times.engine(forbidden, microsecond);
        const CudaContext context(0, {.plan_seconds = enough});
        CHECK(planned(context).choice.engine == fastest);
        CHECK(last(context).source == PlanRecord::Source::timed);
        CHECK(last(context).seconds == doctest::Approx(100e-6));
        CHECK(last(context).timed == 3);
        CHECK(last(context).not_timed == 0);
        // Deterministic mode excludes an engine however fast it is.
        const CudaContext strict(0, {.deterministic = true, .plan_seconds = enough});
        const ChosenPlan same_bits = planned(strict);
        CHECK(same_bits.choice.engine == (fastest == nondeterministic_engine ? plain_engine : fastest));
        CHECK(same_bits.dropped.nondeterministic == 1);
        CHECK(last(strict).timed == 2);
    }
}

TEST_CASE("the time that the host takes for a call does not count") {
    Times times;
    constexpr double of_host = 40 * microsecond;
    for (const std::int64_t each : {plain_engine, tiled_engine, nondeterministic_engine})
        emulator::set_engine_behavior(each,
                                      emulator::EngineBehavior{.seconds = 5 * microsecond, .host_seconds = of_host});
    emulator::set_engine_behavior(tiled_engine,
                                  emulator::EngineBehavior{.seconds = 3 * microsecond, .host_seconds = of_host});
    for (const std::int64_t splits : {1, 2, 3})
        emulator::set_product_behavior(splits,
                                       emulator::EngineBehavior{.seconds = 4 * microsecond, .host_seconds = of_host});
    emulator::set_product_behavior(3, emulator::EngineBehavior{.seconds = 2 * microsecond, .host_seconds = of_host});
    const CudaContext context(0, {.plan_seconds = enough});
    CHECK(planned(context).choice.engine == tiled_engine);
    CHECK(last(context).seconds == doctest::Approx(3e-6));
    static_cast<void>(product_of(context));
    CHECK(last(context).seconds == doctest::Approx(2e-6));
}

TEST_CASE("the choice and its time are the same whether the GPU was idle, and whether libraries are loaded") {
    const Times times;
    times.engine(nondeterministic_engine, 100 * microsecond);
    times.engine(tiled_engine, 150 * microsecond);
    times.engine(plain_engine, 200 * microsecond);
    times.product(3, 40 * microsecond);
    times.product(2, 45 * microsecond);
    times.product(1, 50 * microsecond);
    // More candidates than are compared by turns.
    const ConvolutionProblem problem = problem_of(ConvolutionDirection::backward_weights);
    // From a GPU that is never idle to one that takes long for its full clock.
    for (const double ramp : {0.0, 0.3e-3, 1e-3, 4e-3, 30e-3, 100e-3}) {
        for (const double load : {0.0, 0.3}) {
            CAPTURES(ramp, load);
            emulator::set_clock({.ramp = ramp});
            emulator::set_load_seconds(load);
            const CudaContext context(0, {.plan_seconds = 0.5});
            CHECK(planned(context, problem).choice.engine == nondeterministic_engine);
            CHECK(last(context).seconds == doctest::Approx(100e-6).epsilon(1e-3));
            CHECK(last(context).next_seconds == doctest::Approx(105e-6).epsilon(1e-3));
            CHECK(last(context).timed == 6);
            CHECK(last(context).not_timed == 0);
            emulator::let_idle(0);
            static_cast<void>(product_of(context));
            CHECK(last(context).choice.engine == 3);
            CHECK(last(context).seconds == doctest::Approx(40e-6).epsilon(1e-3));
            CHECK(last(context).timed == 3);
        }
    }
}

TEST_CASE("the best candidates are compared by turns: a clock that sags now and then prefers none of them") {
    const Times times;
    times.engine(nondeterministic_engine, 100 * microsecond);
    times.engine(tiled_engine, 104 * microsecond);
    times.engine(plain_engine, 108 * microsecond);
    for (int shift = 0; shift < 8; ++shift) {
        CAPTURE(shift);
        // Periods in which about two candidates are timed, and some that begin within one.
        emulator::set_clock({.ramp = 0, .sag = 0.1, .sag_period = (600 + 110 * shift) * microsecond});
        const CudaContext context(0, {.plan_seconds = enough});
        CHECK(planned(context).choice.engine == nondeterministic_engine);
        CHECK(last(context).seconds == doctest::Approx(100e-6).epsilon(1e-3));
        CHECK(last(context).next_seconds == doctest::Approx(104e-6).epsilon(1e-3));
    }
}

TEST_CASE("what is timed has the candidates of the heuristics of mode B too, and only that asks for them") {
    const ConvolutionProblem problem = problem_of(ConvolutionDirection::backward_weights, ElementType::bfloat16);
    const CudaContext context(0, {.plan_seconds = enough});
    const EngineChoice choice = planned(context, problem).choice;
    CHECK(choice.engine == tensor_core_engine);
    CHECK(knob(choice, CUDNN_KNOB_TYPE_TILE_SIZE) == emulator::last_of_mode_b);
    CHECK(last(context).timed == 5);
    CHECK(last(context).seconds == doctest::Approx(0.7 * 100e-6 * emulator::few_channels_time));
    const CudaContext first(0, {.plan_seconds = 0});
    const std::int64_t asked = emulator::heuristics_asked(CUDNN_HEUR_MODE_B);
    CHECK(knob(planned(first, problem).choice, CUDNN_KNOB_TYPE_TILE_SIZE) == 4);
    CHECK(emulator::heuristics_asked(CUDNN_HEUR_MODE_B) == asked);
}

TEST_CASE("settings of an engine's knobs are candidates of their own") {
    Times times;
    const CudaContext context(0, {.plan_seconds = enough});
    const ConvolutionProblem problem = problem_of(ConvolutionDirection::forward, ElementType::bfloat16);
    const ChosenPlan plan = planned(context, problem);
    CHECK(plan.choice.engine == tensor_core_engine);
    CHECK(knob(plan.choice, CUDNN_KNOB_TYPE_TILE_SIZE) == emulator::fast_tile);
    const PlanRecord record = last(context);
    CHECK(record.next_seconds / record.seconds == doctest::Approx(1 / emulator::fast_tile_time));
    REQUIRE(record.candidates.size() == 2);
    CHECK(contains(record.candidates[0].name, "engine 1 "));
    CHECK(record.candidates[0].name.ends_with(", tensor cores"));
    CHECK(record.candidates[0].seconds == doctest::Approx(300e-6));
    CHECK(record.candidates[1].seconds == record.seconds);
    CHECK(record.timed == 2);  // and two engines without tensor cores
    const std::string key = "cuDNN 91900, Emulated GPU, " + impl::describe(problem);
    CHECK(record.key == key);
    CHECK(context.plan_choices().take_lines() ==
          std::vector<std::string>{"plan of " + key + ": " + impl::engine_text(plan.choice) +
                                   ", 0.2700 ms, the fastest of 2 (the next: 0.3000 ms)"});
    CHECK(context.plan_choices().take_lines().empty());
}

TEST_CASE("an engine without tensor cores is left out, however fast, where there is one with them") {
    Times times;
    times.engine(plain_engine, microsecond);
    times.engine(tiled_engine, microsecond);
    for (const double seconds : {0.0, enough}) {
        for (const bool tf32 : {false, true}) {
            for (const ElementType element : {ElementType::float32, ElementType::bfloat16, ElementType::float16}) {
                CAPTURES(tf32, static_cast<int>(element));
                const CudaContext context(0, {.tf32 = tf32, .plan_seconds = seconds});
                const bool rounds = tf32 || element != ElementType::float32;
                const ChosenPlan plan = planned(context, problem_of(ConvolutionDirection::forward, element));
                CHECK((plan.choice.engine == tensor_core_engine) == rounds);
                if (seconds > 0) CHECK((plan.dropped.plain > 0) == rounds);
            }
        }
    }
    // The others are left if there is none: those of a GPU that cannot, here of a library that fails to run it.
    times.engine(tensor_core_engine, microsecond, true);
    const CudaContext context(0, {.plan_seconds = enough});
    const ChosenPlan plan = planned(context, problem_of(ConvolutionDirection::forward, ElementType::bfloat16));
    CHECK(plan.choice.engine == tiled_engine);
    CHECK(plan.dropped.plain == 0);
    CHECK(plan.dropped.failed == 2);
}

TEST_CASE("of candidates that differ by less than 2%, the one that is ranked first is chosen") {
    Times times;
    times.engine(nondeterministic_engine, 100 * microsecond);
    times.engine(tiled_engine, 99 * microsecond);
    times.engine(plain_engine, 99 * microsecond);
    CHECK(planned(CudaContext(0, {.plan_seconds = enough})).choice.engine == nondeterministic_engine);
    times.engine(plain_engine, 97 * microsecond);
    CHECK(planned(CudaContext(0, {.plan_seconds = enough})).choice.engine == plain_engine);
}

TEST_CASE("with 0 seconds nothing runs, and the first candidate is chosen") {
    const CudaContext context(0, {.plan_seconds = 0});
    const std::int64_t before = emulator::library_calls();
    CHECK(planned(context).choice.engine == nondeterministic_engine);
    CHECK(last(context).source == PlanRecord::Source::first);
    CHECK(contains(to_string(last(context)), ": engine 2 "));
    CHECK(contains(to_string(last(context)), ", the first that is offered"));
    const CublasProduct product = product_of(context);
    CHECK(last(context).choice.engine == 3);  // the first of the products with a ReLU
    CHECK(last(context).source == PlanRecord::Source::first);
    CHECK(emulator::library_calls() == before);
    CHECK(message_of<InvalidArgument>([] { CudaContext(0, {.plan_seconds = -1}); }) ==
          "plan_seconds must be at least 0, not -1");
}

TEST_CASE("the limit of time leaves out the later candidates, by the device's clock too") {
    Times times;
    times.engine(nondeterministic_engine, 0.3);
    times.engine(tiled_engine, 100 * microsecond);
    const CudaContext context(0, {.plan_seconds = 0.5});
    const std::int64_t before = emulator::library_calls();
    CHECK(planned(context).choice.engine == nondeterministic_engine);
    CHECK(emulator::library_calls() == before + 2);
    CHECK(last(context).timed == 1);
    CHECK(last(context).not_timed == 2);
    CHECK(contains(to_string(last(context)), ", 300.0000 ms; no time was left for 2 others"));

    times.product(3, 0.7);
    const CublasProduct product = product_of(context);
    CHECK(last(context).choice.engine == 3);
    CHECK(last(context).not_timed == 2);
}

TEST_CASE("a candidate that fails when it runs is passed over") {
    Times times;
    times.engine(nondeterministic_engine, microsecond, true);
    times.engine(tiled_engine, microsecond, true);
    times.product(3, microsecond, true);
    times.product(2, microsecond, true);
    const CudaContext context(0, {.plan_seconds = enough});
    const ChosenPlan plan = planned(context);
    CHECK(plan.choice.engine == plain_engine);
    CHECK(plan.dropped.failed == 2);
    CHECK(contains(plan.dropped.to_text(), "2 that failed when they ran"));
    const CublasProduct product = product_of(context);
    CHECK(last(context).choice.engine == 1);

    times.engine(plain_engine, microsecond, true);
    const std::string message =
        message_of<DeviceError>([&] { static_cast<void>(planned(CudaContext(0, {.plan_seconds = enough}))); });
    CHECK(
        contains(message, "cuDNN has no engine on Emulated GPU for the input gradient of a convolution in float32: "));
    CHECK(contains(message, "3 that failed when they ran"));
}

TEST_CASE("a device that is lost while candidates are timed is an error") {
    const CudaContext context(0, {.plan_seconds = enough});
    emulator::fail_device(0, 12);
    CHECK(contains(message_of<DeviceError>([&] { static_cast<void>(planned(context)); }), "cudaErrorIllegalAddress"));
    emulator::mend();
    cudaGetLastError();
    CHECK(planned(context).choice.engine == nondeterministic_engine);
}

TEST_CASE("a candidate whose scratch memory exceeds the limit, or the GPU's memory, is passed over") {
    Times times;
    constexpr std::int64_t much = std::int64_t{8} << 20;
    times.engine(nondeterministic_engine, 100 * microsecond, false, much);
    CudaContext context(0, {.plan_seconds = enough});
    CHECK(planned(context).choice.engine == nondeterministic_engine);
    CudaContext limited(0, {.plan_seconds = enough});
    limited.set_max_workspace(std::size_t{1} << 20);
    const ChosenPlan small = planned(limited);
    CHECK(small.choice.engine == tiled_engine);
    CHECK(small.plan.workspace_bytes() <= limited.max_workspace());

    emulator::set_memory(emulator::memory_in_use() + (std::size_t{4} << 20));
    CudaContext of_small_gpu(0, {.plan_seconds = enough});
    CHECK(planned(of_small_gpu).choice.engine == tiled_engine);
    // One that gets none takes none from those that were timed before, which are compared once more.
    times.engine(nondeterministic_engine, 100 * microsecond);
    times.engine(tiled_engine, 50 * microsecond, false, much);
    CudaContext of_another(0, {.plan_seconds = enough});
    CHECK(planned(of_another).choice.engine == nondeterministic_engine);
    CHECK(last(of_another).timed == 2);
    // No memory for the operands: nothing is timed, and a line says so.
    CudaContext of_full_gpu(0, {.plan_seconds = enough});
    emulator::set_memory(emulator::memory_in_use() + 1024);
    const ChosenPlan first = planned(of_full_gpu);
    emulator::set_memory(std::size_t{4} << 30);
    CHECK(first.choice.engine == nondeterministic_engine);
    CHECK(last(of_full_gpu).source == PlanRecord::Source::first);
    const std::vector<std::string> lines = of_full_gpu.plan_choices().take_lines();
    REQUIRE(lines.size() == 2);
    CHECK(contains(lines[0], "no candidate is timed for the plan of cuDNN 91900, Emulated GPU, input gradient"));
    CHECK(contains(lines[0], "the operands of a plan that is timed need "));

    // Products too: without scratch memory there is no sum in parts.
    CudaContext without(0, {.plan_seconds = enough});
    without.set_max_workspace(100);
    CHECK(product_of(without).workspace_bytes() == 0);
    CHECK(last(without).choice.engine == 1);
    CudaContext with(0, {.plan_seconds = enough});
    static_cast<void>(product_of(with));
    CudaContext kept(
        0, {.plan_seconds = enough, .plan_choices = std::make_shared<PlanChoices>(with.plan_choices().to_text())});
    kept.set_max_workspace(100);
    CHECK(product_of(kept).workspace_bytes() == 0);
    CHECK(contains(kept.plan_choices().take_lines().at(0), "the kept algorithm 2 of "));
}

TEST_CASE("the memory for timing is freed, and no other memory is written") {
    const CudaContext context(0, {.plan_seconds = enough});
    const CudaArena live(std::size_t{1} << 16, "a test's data");
    const std::size_t before = emulator::memory_in_use();
    const int overruns = emulator::overruns();
    static_cast<void>(planned(context));
    static_cast<void>(product_of(context, CublasProduct::Epilogue::bias));
    CHECK(emulator::memory_in_use() == before);
    CHECK(emulator::overruns() == overruns);
    std::vector<std::byte> values(live.size());
    CHECK(cudaMemcpy(values.data(), live.data(), live.size(), cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(std::ranges::count(values, std::byte{0}) == std::ssize(values));
}

TEST_CASE("the choice is kept: another device and another run use it without timing") {
    Times times;
    times.engine(plain_engine, 10 * microsecond);
    times.product(1, 10 * microsecond);
    CudaOptions options{.plan_seconds = enough};
    const CudaContext first(0, options), second(1, options);
    CHECK(planned(first).choice.engine == plain_engine);
    static_cast<void>(product_of(first));
    times.engine(tiled_engine, microsecond);
    times.product(2, microsecond);
    const std::int64_t before = emulator::library_calls();
    CHECK(planned(second).choice.engine == plain_engine);
    CHECK(product_of(second).workspace_bytes() == 0);
    CHECK(second.plan_choices().records().size() == 2);

    const std::string text = first.plan_choices().to_text();
    options.plan_choices = std::make_shared<PlanChoices>(text, "plans.txt");
    const CudaContext later(0, options);
    CHECK(planned(later).choice.engine == plain_engine);
    CHECK(last(later).source == PlanRecord::Source::kept);
    CHECK(to_string(last(later)).ends_with(": engine 0, as chosen before"));
    CHECK(product_of(later).workspace_bytes() == 0);
    CHECK(to_string(last(later)).ends_with(": algorithm 1, as chosen before"));
    CHECK(emulator::library_calls() == before);
    CHECK(later.plan_choices().to_text() == text);
    CHECK(later.plan_choices().fingerprint() == first.plan_choices().fingerprint());
    // Without the text it times again, and takes what is the fastest by then.
    const CudaContext forgetful(0, {.plan_seconds = enough});
    CHECK(planned(forgetful).choice.engine == tiled_engine);
    static_cast<void>(product_of(forgetful));
    CHECK(forgetful.plan_choices().fingerprint() != first.plan_choices().fingerprint());
}

TEST_CASE("a fused product and the same without ReLU use one algorithm") {
    Times times;
    const CudaContext context(0, {.plan_seconds = enough});
    for (const auto epilogue : {CublasProduct::Epilogue::bias, CublasProduct::Epilogue::bias_relu})
        static_cast<void>(product_of(context, epilogue));
    CHECK(context.plan_choices().size() == 1);
    CHECK(last(context).choice.engine == 2);
    CHECK(last(context).key ==
          "cuBLASLt 130100, Emulated GPU, product in float32 to float32: 32 x 16 transposed by 32 x 24, bias, ReLU");
    CHECK(last(context).timed == 3);
    const std::vector<TimedCandidate> candidates = last(context).candidates;
    REQUIRE(candidates.size() == 3);
    CHECK(candidates[0].name == text("algorithm 3, workspace ", 3 * 16 * 24 * 4));
    CHECK(candidates[1].seconds == doctest::Approx(100e-6));
}

TEST_CASE("a convolution and the same with its ReLU fused use one engine, which is timed once") {
    const CudaContext context(0, {.plan_seconds = enough});
    for (const ElementType element : {ElementType::float32, ElementType::bfloat16}) {
        ConvolutionProblem problem = problem_of(ConvolutionDirection::forward, element);
        const EngineChoice fused = planned(context, problem).choice;
        const std::int64_t before = emulator::library_calls();
        problem.relu = false;
        ChosenPlan apart = planned(context, problem);
        CHECK(apart.choice == fused);
        CHECK(emulator::library_calls() == before);
        CHECK_FALSE(contains(apart.plan.description(), text("\"mode\":", int{CUDNN_POINTWISE_RELU_FWD})));
        // In the other order, with the times.
        const CudaContext other(0, {.plan_seconds = enough});
        apart = planned(other, problem);
        CHECK(apart.choice == fused);
        CHECK_FALSE(contains(apart.plan.description(), text("\"mode\":", int{CUDNN_POINTWISE_RELU_FWD})));
        CHECK(planned(other, problem_of(ConvolutionDirection::forward, element)).choice == fused);
        CHECK(other.plan_choices().size() == 1);
    }
    CHECK(context.plan_choices().size() == 2);
}

TEST_CASE("devices that make the same plans at the same time choose once") {
    const Times times;
    emulator::set_load_seconds(0);  // the same number of runs for whoever is first
    const CudaOptions options{.plan_seconds = enough};
    std::int64_t alone = emulator::library_calls();
    CHECK(planned(CudaContext(0, {.plan_seconds = enough})).choice.engine == nondeterministic_engine);
    alone = emulator::library_calls() - alone;
    const std::int64_t before = emulator::library_calls();
    std::array<EngineChoice, 3> choices;
    std::vector<std::thread> threads;
    // None begins to time before all have found no choice.
    std::unique_lock<std::mutex> held = options.plan_choices->measure();
    for (int device = 0; device < 3; ++device)
        threads.emplace_back([&, device] {
            const CudaContext context(device, options);
            context.own_thread(3);
            choices[static_cast<std::size_t>(device)] = planned(context).choice;
        });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    held.unlock();
    for (std::thread& thread : threads) thread.join();
    CHECK(emulator::library_calls() - before == alone);
    CHECK(choices[0] == choices[1]);
    CHECK(choices[0] == choices[2]);
    CHECK(options.plan_choices->records().size() == 1);
}

TEST_CASE("choices of another GPU or another version are not used, and a line says so") {
    Times times;
    const CudaContext first(0, {.plan_seconds = enough});
    static_cast<void>(planned(first));
    static_cast<void>(planned(first, problem_of(ConvolutionDirection::forward)));
    const std::string text = first.plan_choices().to_text();

    emulator::set_gpu_name("Another GPU");
    CudaOptions options{.plan_seconds = enough, .plan_choices = std::make_shared<PlanChoices>(text, "run1/plans.txt")};
    const CudaContext other(0, options);
    static_cast<void>(planned(other));
    static_cast<void>(planned(other, problem_of(ConvolutionDirection::forward)));
    std::vector<std::string> lines = other.plan_choices().take_lines();
    REQUIRE(lines.size() == 3);
    CHECK(lines[0] == "run1/plans.txt has 2 choices for Emulated GPU and none for Another GPU: new ones are made");
    CHECK(last(other).source == PlanRecord::Source::timed);
    CHECK(other.plan_choices().size() == 4);

    emulator::set_gpu_name("Emulated GPU");
    std::string older = text;
    for (std::size_t at = 0; (at = older.find("cuDNN 91900")) != std::string::npos;)
        older.replace(at, 11, "cuDNN 90100");
    options.plan_choices = std::make_shared<PlanChoices>(older, "plans.txt");
    const CudaContext newer(0, options);
    static_cast<void>(planned(newer));
    lines = newer.plan_choices().take_lines();
    REQUIRE(lines.size() == 2);
    CHECK(lines[0] ==
          "plans.txt has 2 choices for cuDNN 90100 and none for cuDNN 91900 on Emulated GPU: new ones are made");
}

TEST_CASE("choices that were made with another driver are used, and a line says so once") {
    const CudaContext first(0, {.plan_seconds = enough});
    const EngineChoice choice = planned(first).choice;
    CudaOptions options{.plan_seconds = enough,
                        .plan_choices = std::make_shared<PlanChoices>(first.plan_choices().to_text(), "plans.txt")};
    emulator::set_driver(13010);
    const CudaContext one(0, options), two(1, options);
    emulator::set_driver(CUDART_VERSION);
    const std::int64_t before = emulator::library_calls();
    CHECK(planned(one).choice == choice);
    CHECK(emulator::library_calls() == before);
    const std::vector<std::string> lines = one.plan_choices().take_lines();
    REQUIRE(lines.size() == 2);
    CHECK(
        lines[0] ==
        "plans.txt has choices that were made with a driver for CUDA 13.0, and this driver is for CUDA 13.1: they are "
        "used, and may not be the fastest any more");
    CHECK(lines[1].ends_with(", as chosen before"));
}

TEST_CASE("a kept choice that cannot be used is replaced, and a line says so") {
    const ConvolutionProblem problem = problem_of();
    const std::string key = "cuDNN 91900, Emulated GPU, " + impl::describe(problem);
    for (const EngineChoice& bad :
         {EngineChoice{99, {}}, EngineChoice{emulator::short_sums_engine, {}}, EngineChoice{tiled_engine, {{99, 1}}}}) {
        CudaOptions options{.plan_seconds = enough};
        options.plan_choices->set(key, bad);
        const CudaContext context(0, options);
        const ChosenPlan plan = planned(context);
        CHECK(plan.choice.engine == nondeterministic_engine);
        CHECK(options.plan_choices->find(key) == plan.choice);
        const std::vector<std::string> lines = options.plan_choices->take_lines();
        REQUIRE(lines.size() == 2);
        CHECK(lines[0] == "the kept " + impl::engine_text(bad) + " of " + key + " cannot be used: another is chosen");
    }
    CudaOptions options{.plan_seconds = enough};
    const CudaContext context(0, options);
    static_cast<void>(product_of(context));
    const PlanRecord good = last(context);
    EngineChoice bad = good.choice;
    SUBCASE("too few words") { bad.knobs.pop_back(); }
    SUBCASE("a word of another algorithm") { bad.knobs[0].second ^= 1; }
    SUBCASE("words in another order") { std::swap(bad.knobs[1], bad.knobs[2]); }
    options.plan_choices = std::make_shared<PlanChoices>();
    options.plan_choices->set(good.key, bad);
    const CudaContext again(0, options);
    static_cast<void>(product_of(again));
    CHECK(last(again).choice == good.choice);
    CHECK(contains(options.plan_choices->take_lines().at(0),
                   "the kept algorithm 2 of " + good.key + " cannot be used: another is chosen"));
}

TEST_CASE("a plan that is made while its stream is captured is not timed and leaves the capture valid") {
    const CudaContext context(0, {.plan_seconds = enough});
    const impl::OnCudaDevice team = context.team();
    const std::int64_t before = emulator::library_calls();
    REQUIRE(cudaStreamBeginCapture(context.stream(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(planned(context).choice.engine == nondeterministic_engine);
    static_cast<void>(product_of(context));
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(context.stream(), &graph) == cudaSuccess);
    cudaGraphDestroy(graph);
    CHECK(last(context).source == PlanRecord::Source::first);
    CHECK(emulator::library_calls() == before);
}

TEST_CASE("a chosen plan computes, and keeps no pointer to the memory of its timing") {
    const CudaContext context(0, {.plan_seconds = enough});
    const ConvolutionProblem problem = problem_of();
    ChosenPlan chosen = planned(context, problem);
    std::vector<CudaArena> tensors;
    std::vector<const void*> pointers;
    for (const std::size_t bytes : impl::tensor_bytes(problem)) {
        pointers.push_back(tensors.emplace_back(bytes, "a tensor").data());
    }
    CudaArena workspace(chosen.plan.workspace_bytes(), "the scratch memory");
    chosen.plan.run(context.cudnn(), workspace.data(), pointers);
    context.synchronize();
    CHECK(emulator::failure().empty());
}
