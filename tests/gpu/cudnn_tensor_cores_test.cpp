// SPDX-License-Identifier: Apache-2.0
//
// Whether the convolutions of the tutorial's network and of ResNet-44 run on the tensor cores wherever a precision allows it:
// plans made without a GPU, for the description of one.
#include "../test.hpp"

#include <set>

#include <cupola/models/cifar10_net.hpp>
#include <cupola/models/resnet.hpp>
#include <cupola/ops/cuda/impl/convolution_plans.hpp>

#include "cudnn_described.hpp"

using namespace cudnn_test;
using namespace impl;

namespace {

struct Precision {
    std::string_view name;
    ElementType element;
    bool tf32;
};
constexpr Precision precisions[] = {{"float", ElementType::float32, false},
                                    {"TF32", ElementType::float32, true},
                                    {"bfloat16", ElementType::bfloat16, false},
                                    {"half", ElementType::float16, false}};

/// The graphs of a training with each convolution of a network, each once. The first convolution needs no gradient of its input.
std::vector<ConvolutionProblem> problems_of(std::span<const LayerInfo> layers, std::int64_t batch,
                                            ElementType element) {
    std::vector<ConvolutionProblem> result;
    std::set<std::string> seen;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const LayerInfo& layer = layers[i];
        if (layer.kind != LayerKind::convolution) continue;
        const std::int64_t kernel = layer.parameters.list[0].shape[1],
                           stride = layer.input.height() / layer.output.height();
        const auto axis = [&](std::int64_t size) { return window_axis(size, kernel, stride, (kernel - 1) / 2); };
        const ConvolutionShape shape{axis(layer.input.height()), axis(layer.input.width()), layer.input.channels(),
                                     layer.output.channels(), layer.parameters.count == 2};
        REQUIRE(shape.height.output == layer.output.height());
        REQUIRE(shape.width.output == layer.output.width());
        const bool relu = layers[i + 1].kind == LayerKind::activation;
        for (const ConvolutionDirection direction : directions) {
            const ConvolutionProblem problem{direction, batch, shape, element, relu};
            if (direction == ConvolutionDirection::backward_data && layer.reads == 0) continue;
            if (seen.insert(impl::describe(problem)).second) result.push_back(problem);
        }
    }
    return result;
}

/// The convolutions of both networks.
std::vector<ConvolutionProblem> problems_of_both(std::int64_t batch, ElementType element) {
    std::vector<ConvolutionProblem> result = problems_of(Cifar10Net::layers, batch, element);
    CHECK(result.size() == 5);
    const std::vector<ConvolutionProblem> resnet = problems_of(ResNet<44>::layers, batch, element);
    CHECK(resnet.size() == 17);
    result.insert(result.end(), resnet.begin(), resnet.end());
    return result;
}

}  // namespace

TEST_CASE(
    "every convolution of the tutorial's network and of ResNet-44 runs on tensor cores where its precision allows it") {
    int plans = 0;
    for (const std::int64_t batch : {128, 2048}) {
        for (const Precision& precision : precisions) {
            for (const ConvolutionProblem& problem : problems_of_both(batch, precision.element)) {
                for (const bool deterministic : {false, true}) {
                    const impl::EngineRules rules =
                        impl::convolution_rules(precision.element, precision.tf32, deterministic);
                    const ChosenPlan plan = impl::plan_convolution(described(), problem, rules);
                    ++plans;
                    CAPTURES(precision.name, deterministic, impl::describe(problem), plan.choice.engine);
                    const bool tensor_cores = has(plan, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
                    if (!rules.rounded_factors) {
                        CHECK_MESSAGE(!tensor_cores, "float is not rounded");
                        continue;
                    }
                    CHECK_MESSAGE(tensor_cores, "the plan must use the tensor cores");
                }
            }
        }
    }
    CHECK(plans == 2 * 4 * 22 * 2);
}
