// SPDX-License-Identifier: Apache-2.0
//
// The plans of convolutions, made without a GPU: cuDNN can plan for a description of one. The description is an assumed one
// until one is recorded on a GPU.
#include "../test.hpp"

#include <cupola/ops/cuda/impl/convolution_plans.hpp>

#include "../ops/convolution_cases.hpp"
#include "../throws_with.hpp"
#include "cudnn_described.hpp"

using namespace cudnn_test;
using namespace impl;

namespace {

std::string notes_of(const ChosenPlan& plan) {
    constexpr std::string_view names[] = {"TENSOR_CORE",
                                          "DOWN_CONVERT_INPUTS",
                                          "REDUCED_PRECISION_REDUCTION",
                                          "FFT",
                                          "NONDETERMINISTIC",
                                          "WINOGRAD",
                                          "WINOGRAD_TILE_4x4",
                                          "WINOGRAD_TILE_6x6",
                                          "WINOGRAD_TILE_13x13",
                                          "STRICT_NAN_PROP"};
    std::string result;
    for (const cudnnBackendNumericalNote_t note : plan.numerical_notes) {
        result += ' ';
        result += static_cast<std::size_t>(note) < std::size(names) ? names[note] : "unknown";
    }
    return result.empty() ? " none" : result;
}

std::string knobs_of(const ChosenPlan& plan) {
    std::string result;
    for (const auto& [knob, value] : plan.choice.knobs) result += text(' ', knob, '=', value);
    return result.empty() ? " none" : result;
}

}  // namespace

TEST_CASE("every direction of the tutorial network's convolutions has a precompiled plan that keeps the rules") {
    CHECK_MESSAGE(contains(device_text(), "\"assumed, not recorded on a GPU"), "the description says what it is");
    struct Precision {
        const char* name;
        ElementType element;
        bool tf32;
    };
    int plans = 0;
    for (const Precision& precision :
         {Precision{"float", ElementType::float32, false}, Precision{"TF32", ElementType::float32, true},
          Precision{"bfloat16", ElementType::bfloat16, false}, Precision{"half", ElementType::float16, false}}) {
        for (const ConvolutionProblem& problem : tutorial(precision.element)) {
            for (const bool deterministic : {false, true}) {
                const impl::EngineRules rules =
                    impl::convolution_rules(precision.element, precision.tf32, deterministic);
                const ChosenPlan plan = impl::plan_convolution(described(), problem, rules);
                const std::string line =
                    text(precision.name, deterministic ? ", deterministic" : "", ", ", impl::describe(problem),
                         ": engine ", plan.choice.engine, ", knobs", knobs_of(plan), ", notes", notes_of(plan),
                         ", workspace ", plan.plan.workspace_bytes(), " bytes; ", plan.dropped.to_text());
                MESSAGE(line);
                INFO(line);
                ++plans;
                CHECK(plan.plan.workspace_bytes() <= rules.max_workspace);
                CHECK(std::ranges::count(plan.behavior_notes, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) == 0);
                CHECK_FALSE(has(plan, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION));
                if (deterministic) CHECK_FALSE(has(plan, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
                if (precision.element == ElementType::float32 && !precision.tf32) {
                    CHECK_FALSE(has(plan, CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
                    CHECK_FALSE(has(plan, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
                } else {
                    CHECK_MESSAGE(has(plan, CUDNN_NUMERICAL_NOTE_TENSOR_CORE), "the tensor cores are for this");
                }
            }
        }
    }
    CHECK(plans == 48);
}

TEST_CASE("a choice that was stored as text is used again, whatever cuDNN ranks first") {
    for (const ElementType element : {ElementType::float32, ElementType::bfloat16, ElementType::float16}) {
        const impl::EngineRules rules = impl::convolution_rules(element, true, false);
        PlanChoices kept;
        std::vector<ChosenPlan> first;
        for (const ConvolutionProblem& problem : tutorial(element))
            first.push_back(impl::plan_convolution(described(), problem, rules, &kept));
        CHECK(kept.size() == 6);
        PlanChoices read(kept.to_text());
        CHECK(read.to_text() == kept.to_text());

        const std::vector<ConvolutionProblem> problems = tutorial(element);
        for (std::size_t i = 0; i < problems.size(); ++i) {
            INFO(impl::describe(problems[i]));
            const ChosenPlan again = impl::plan_convolution(described(), problems[i], rules, &read);
            CHECK(again.choice == first[i].choice);
            CHECK(again.plan.workspace_bytes() == first[i].plan.workspace_bytes());
            CHECK(again.numerical_notes == first[i].numerical_notes);
            CHECK(again.plan.description() == first[i].plan.description());

            // An engine other than the first, which is taken only if the stored choice is used.
            const impl::CudnnDescriptor graph = impl::convolution_graph(described(), problems[i]);
            std::optional<EngineChoice> other;
            for (const impl::CudnnEngine& engine : impl::cudnn_engines(described(), graph, CUDNN_HEUR_MODE_A)) {
                if (engine.choice.engine != first[i].choice.engine && !engine.choice.knobs.empty())
                    other = engine.choice;
            }
            REQUIRE(other.has_value());
            PlanChoices forced;
            forced.set(impl::plan_key(described(), problems[i], rules), *other);
            const ChosenPlan as_told = impl::plan_convolution(described(), problems[i], rules, &forced);
            CHECK(as_told.choice == *other);
            CHECK(as_told.plan.description() != first[i].plan.description());
            const EngineChoice without_knobs{0, {}};  // cuDNN's engine for every problem
            forced.set(impl::plan_key(described(), problems[i], rules), without_knobs);
            CHECK(impl::plan_convolution(described(), problems[i], rules, &forced).choice == without_knobs);
        }
    }
}

TEST_CASE(
    "a choice that cuDNN does not offer or the rules forbid is replaced by the first that is offered and allowed") {
    const ConvolutionProblem problem = tutorial(ElementType::float32)[0];
    const impl::EngineRules tf32 = impl::convolution_rules(ElementType::float32, true, false);
    const impl::EngineRules float32 = impl::convolution_rules(ElementType::float32, false, false);
    const EngineChoice rounded = impl::plan_convolution(described(), problem, tf32).choice;
    const EngineChoice good = impl::plan_convolution(described(), problem, float32).choice;
    REQUIRE(rounded != good);
    const std::string key = impl::plan_key(described(), problem, float32);
    CHECK_MESSAGE(key != impl::plan_key(described(), problem, tf32), "choices under other rules are kept apart");
    for (const EngineChoice& bad : {EngineChoice{9999, {}}, EngineChoice{good.engine, {{9999, 1}}}, rounded}) {
        CAPTURE(bad.engine);
        PlanChoices choices;
        choices.set(key, bad);
        CHECK(impl::plan_convolution(described(), problem, float32, &choices).choice == good);
        CHECK(choices.find(key) == good);
    }
}

TEST_CASE(
    "odd channels, strides and padding that is longer at the end have plans, forward with and without bias and ReLU") {
    int plans = 0;
    for (const ConvolutionShape& shape : {same(12, 6, 5, 3, 2, 2), same(8, 10, 1, 1, 3, 2), same(6, 13, 16, 5, 5, 3),
                                          same(7, 9, 3, 64, 1, 1), same(1, 1, 16, 16, 3, 1)}) {
        for (const ElementType element : {ElementType::float32, ElementType::bfloat16, ElementType::float16}) {
            const auto plan = [&](ConvolutionDirection direction, bool bias, bool relu) {
                ConvolutionProblem problem{direction, 3, shape, element, relu};
                problem.shape.bias = bias;
                CHECK_NOTHROW(static_cast<void>(
                    impl::plan_convolution(described(), problem, impl::convolution_rules(element, false, true))));
                ++plans;
            };
            plan(ConvolutionDirection::forward, false, false);
            plan(ConvolutionDirection::forward, true, false);
            plan(ConvolutionDirection::forward, true, true);
            plan(ConvolutionDirection::backward_data, false, false);
            plan(ConvolutionDirection::backward_weights, false, false);
        }
    }
    CHECK(plans == 75);

    ConvolutionProblem problem{ConvolutionDirection::forward, 3, same(8, 10, 16, 16, 3, 2), ElementType::bfloat16,
                               true};
    problem.shape.width = window_axis(10, 5, 1, Padding::same);
    const std::string made = impl::plan_convolution(described(), problem, {}).plan.description();
    INFO(made);
    for (const char* part :
         {R"("pad_lower":[0,2])", R"("pad_upper":[1,2])", R"("stride":[2,1],"dilation":[1,1])",
          R"("dim":[3,16,8,10],"stride":[1280,1,160,16])", R"("dim":[16,16,3,5],"stride":[240,1,80,16])",
          R"("dim":[3,16,4,10],"stride":[640,1,160,16])", R"("CUDNN_CROSS_CORRELATION")",
          R"("deviceName":"NVIDIA H200")"}) {
        CAPTURE(part);
        CHECK(contains(made, part));
    }
}

TEST_CASE("the key of a plan names dilation and groups, and only where there are such") {
    ConvolutionProblem problem{ConvolutionDirection::forward, 3, same(8, 10, 16, 32, 3, 2), ElementType::float32, true};
    const std::string dense =
        "forward, bias, ReLU of a convolution in float32: 3 x 8 x 10 x 16 -> 4 x 5 x 32, window 3 x 3, stride 2 x 2, "
        "padding 0 1 0 1";
    CHECK(impl::describe(problem) == dense);
    problem.shape.groups = 4;
    CHECK(impl::describe(problem) == dense + ", 4 groups");
    problem.shape.height.dilation = 2;
    CHECK(impl::describe(problem) == dense + ", dilation 2 x 1, 4 groups");
}

TEST_CASE("the graph of a convolution has its dilation and the channels of a group, in every direction") {
    for (const ConvolutionDirection direction : directions) {
        ConvolutionProblem problem{direction, 3, same(12, 12, 16, 32, 3, 1), ElementType::float32, false};
        problem.shape.width = window_axis(12, 3, 1, Padding::same, 2);
        problem.shape.groups = 4;
        problem.shape.bias = false;
        const std::string made = impl::plan_convolution(described(), problem, {}).plan.description();
        INFO(made);
        CHECK(contains(made, R"("dilation":[1,2])"));
        CHECK(contains(made, R"("dim":[32,4,3,3],"stride":[36,1,12,4])"));
    }
}

TEST_CASE("each convolution with groups or dilation of the typed tests has plans for both of its gradients") {
    for (const convolution_cases::Case& each : convolution_cases::sparse_cases()) {
        for (const ElementType element : {ElementType::float32, ElementType::bfloat16, ElementType::float16}) {
            for (const ConvolutionDirection direction :
                 {ConvolutionDirection::backward_data, ConvolutionDirection::backward_weights}) {
                for (const bool deterministic : {false, true}) {
                    const ConvolutionProblem problem = impl::convolution_problem(
                        direction, each.batch, convolution_cases::shape_of(each), element, false);
                    INFO(impl::describe(problem), deterministic ? ", deterministic" : "");
                    CHECK_NOTHROW(static_cast<void>(impl::plan_convolution(
                        described(), problem, impl::convolution_rules(element, false, deterministic))));
                }
            }
        }
    }
}

TEST_CASE("each convolution of the typed tests has one engine, with its ReLU fused or not") {
    int plans = 0;
    for (const convolution_cases::Case& each : convolution_cases::cases()) {
        for (const ElementType element : {ElementType::float32, ElementType::bfloat16, ElementType::float16}) {
            const auto planned = [&](bool relu) {
                ++plans;
                return impl::plan_convolution(
                    described(),
                    impl::convolution_problem(ConvolutionDirection::forward, each.batch,
                                              convolution_cases::shape_of(each), element, relu),
                    impl::convolution_rules(element, false, true));
            };
            const ChosenPlan fused = planned(true), apart = planned(false);
            INFO(convolution_cases::describe(each), ": engine ", fused.choice.engine, " and ", apart.choice.engine);
            CHECK(fused.choice == apart.choice);
            // Only what has a bias has its ReLU in the plan.
            CHECK((fused.plan.description() != apart.plan.description()) == each.bias);
        }
    }
    CHECK(plans == 2 * 300);
}

TEST_CASE("the text of rejected engines names each reason with their number") {
    impl::EnginesDropped dropped;
    CHECK(dropped.to_text() == "it offered none");
    dropped = {.down_convert = 1,
               .short_sums = 2,
               .nondeterministic = 3,
               .compiled_at_run_time = 4,
               .workspace = 5,
               .refused = 6,
               .refusal = "why"};
    CHECK(
        dropped.to_text() ==
        "it passed over 1 for rounding their inputs, 2 for sums of fewer bits than float has, 3 for not being deterministic, 4 for being "
        "compiled at run time, 5 for the workspace that they need, 6 that cuDNN then refused (why)");
}

TEST_CASE("a description that lacks a property is rejected") {
    CHECK(contains(message_of<DeviceError>([] { static_cast<void>(impl::cudnn_device("{}")); }), "maxGridSize"));
    CHECK(contains(message_of<DeviceError>([] { static_cast<void>(impl::cudnn_device("not JSON")); }),
                   "cuDNN's cudnnBackend"));
    std::string without = device_text();
    const std::string property = "\"multiProcessorCount\"";
    REQUIRE(contains(without, property));
    without.replace(without.find(property), property.size(), "\"multiProcessors\"");
    CHECK(contains(message_of<DeviceError>([&] { static_cast<void>(impl::cudnn_device(without)); }), "HasMember"));
}
