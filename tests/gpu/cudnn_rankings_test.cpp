// SPDX-License-Identifier: Apache-2.0
//
// The plans that follow from the order in which one version of cuDNN ranks its engines. With another version these cases are
// skipped, and the others (cudnn_plans_test.cpp, cudnn_tensor_cores_test.cpp) hold.
#include "../test.hpp"

#include <cupola/ops/cuda/impl/convolution_plans.hpp>

#include "../throws_with.hpp"
#include "cudnn_described.hpp"

using namespace cudnn_test;
using namespace impl;

namespace {

/// Whether this version of cuDNN may rank its engines in another order than 9.19, for which the cases were written.
bool other_version() { return cudnnGetVersion() / 100 != 919; }

}  // namespace

TEST_CASE("for float cuDNN ranks engines with tensor cores first, which are passed over" *
          doctest::skip(other_version())) {
    for (const ConvolutionProblem& problem : tutorial(ElementType::float32)) {
        const ChosenPlan plan =
            impl::plan_convolution(described(), problem, impl::convolution_rules(ElementType::float32, false, false));
        CHECK_MESSAGE(plan.dropped.tensor_core > 0, impl::describe(problem));
    }
}

TEST_CASE("a deterministic choice skips engines that are not deterministic, even if cuDNN ranks one of them first" *
          doctest::skip(other_version())) {
    const ConvolutionProblem problem = tutorial(ElementType::float32)[1];
    const ChosenPlan any =
        impl::plan_convolution(described(), problem, impl::convolution_rules(ElementType::float32, false, false));
    const ChosenPlan same_bits =
        impl::plan_convolution(described(), problem, impl::convolution_rules(ElementType::float32, false, true));
    INFO(impl::describe(problem), ": ", any.choice.engine, " and ", same_bits.choice.engine);
    REQUIRE(has(any, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
    CHECK_FALSE(has(same_bits, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
    CHECK(any.dropped.nondeterministic == 0);
    CHECK(same_bits.dropped.nondeterministic > 0);
    CHECK(any.choice.engine != same_bits.choice.engine);
}

TEST_CASE("without an engine, the error names the convolution and the skipped engines" *
          doctest::skip(other_version())) {
    ConvolutionProblem problem = tutorial(ElementType::bfloat16)[0];
    problem.shape.bias = false;  // cuDNN has no precompiled engine with a ReLU but without a bias
    const std::string shape = "128 x 24 x 24 x 3 -> 24 x 24 x 64, window 5 x 5, stride 1 x 1, padding 2 2 2 2";
    CHECK(message_of<DeviceError>([&] {
              static_cast<void>(impl::plan_convolution(described(), problem,
                                                       impl::convolution_rules(ElementType::bfloat16, false, false)));
          }) == "cuDNN has no engine on NVIDIA H200 for the forward, ReLU of a convolution in bfloat16: " + shape +
                    "; it offered none");

    // Rules that most engines do not satisfy.
    problem = tutorial(ElementType::bfloat16)[4];
    impl::EngineRules rules = impl::convolution_rules(ElementType::bfloat16, false, true);
    rules.rounded_factors = false;
    const ChosenPlan slow = impl::plan_convolution(described(), problem, rules);
    CHECK(slow.dropped.tensor_core > 0);
    CHECK(contains(slow.dropped.to_text(), "it passed over "));
    CHECK(contains(slow.dropped.to_text(),
                   text(slow.dropped.tensor_core, " for tensor cores, which round float factors")));
}

TEST_CASE("what is timed has about twice the candidates with tensor cores for a gradient of weights in 16 bits" *
          doctest::skip(other_version())) {
    for (const ElementType element : {ElementType::bfloat16, ElementType::float16}) {
        const impl::EngineRules rules = impl::convolution_rules(element, false, false);
        for (const ConvolutionProblem& problem : tutorial(element)) {
            const impl::CudnnDescriptor graph = impl::convolution_graph(described(), problem);
            const auto candidates = [&](bool times) {
                std::vector<EngineChoice> found;
                for (const cudnnBackendHeurMode_t mode : impl::heuristic_modes(times)) {
                    for (const impl::CudnnEngine& engine : impl::cudnn_engines(described(), graph, mode)) {
                        impl::EnginesDropped dropped;
                        std::string refusal;
                        if (impl::allowed(engine, rules, dropped) && engine.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) &&
                            std::ranges::find(found, engine.choice) == found.end() &&
                            impl::CudnnPlan::make(described(), engine.config, refusal))
                            found.push_back(engine.choice);
                    }
                }
                return found;
            };
            const std::vector<EngineChoice> first = candidates(false), all = candidates(true);
            INFO(impl::describe(problem), ": ", first.size(), " and ", all.size());
            // Those that are asked first keep their order.
            REQUIRE(all.size() >= first.size());
            CHECK(std::ranges::equal(first, std::span(all).first(first.size())));
            if (problem.direction == impl::ConvolutionDirection::backward_weights)
                CHECK(all.size() >= first.size() + 34);
            if (problem.direction == impl::ConvolutionDirection::forward) CHECK(all.size() == first.size());
        }
    }
}

TEST_CASE("a description of another GPU leads to other engines" * doctest::skip(other_version())) {
    std::string text_of_old = cudnn_test::device_text();
    const std::string now = "\"deviceVer\": 900";
    REQUIRE(contains(text_of_old, now));
    text_of_old.replace(text_of_old.find(now), now.size(), "\"deviceVer\": 750");
    // This GPU has no tensor cores for float, and cuDNN has no bfloat16 engine for it.
    const impl::CudnnDescriptor old = impl::cudnn_device(text_of_old);
    const CudnnTarget target{.device = &old, .device_name = "an sm_75"};
    const auto offered = [&](ElementType element) {
        return impl::cudnn_engines(target, impl::convolution_graph(target, tutorial(element)[3]), CUDNN_HEUR_MODE_A);
    };
    const std::vector<impl::CudnnEngine> engines = offered(ElementType::float32);
    CHECK(engines.size() > 0);
    for (const impl::CudnnEngine& engine : engines) CHECK_FALSE(engine.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
    CHECK(offered(ElementType::bfloat16).empty());
}
