// SPDX-License-Identifier: Apache-2.0
//
// The described GPU and the convolutions for which the tests of cuDNN's plans make plans, without a GPU.
#pragma once

#include "../test.hpp"

#include <cupola/ops/cuda/impl/convolution_plans.hpp>

namespace cudnn_test {

inline std::string device_text() {
    std::ifstream file("tests/gpu/device_sm90.json");
    REQUIRE_MESSAGE(file, "tests/gpu/device_sm90.json is not there: run from the root of the sources");
    return {std::istreambuf_iterator<char>(file), {}};
}

/// The device for which plans are made.
inline const cupola::impl::CudnnTarget& described() {
    static const cupola::impl::CudnnDescriptor device = cupola::impl::cudnn_device(device_text());
    static const cupola::impl::CudnnTarget target{.device = &device, .device_name = "NVIDIA H200"};
    return target;
}

inline cupola::ConvolutionShape same(std::int64_t height, std::int64_t width, std::int64_t in, std::int64_t out,
                                     std::int64_t kernel, std::int64_t stride) {
    using cupola::Padding;
    return {cupola::window_axis(height, kernel, stride, Padding::same),
            cupola::window_axis(width, kernel, stride, Padding::same), in, out, true};
}

inline constexpr cupola::impl::ConvolutionDirection directions[] = {
    cupola::impl::ConvolutionDirection::forward, cupola::impl::ConvolutionDirection::backward_data,
    cupola::impl::ConvolutionDirection::backward_weights};

/// The tutorial network's two convolutions with bias and ReLU, in all directions.
inline std::vector<cupola::impl::ConvolutionProblem> tutorial(cupola::ElementType element) {
    std::vector<cupola::impl::ConvolutionProblem> result;
    for (const cupola::ConvolutionShape& shape : {same(24, 24, 3, 64, 5, 1), same(12, 12, 64, 64, 5, 1)}) {
        for (const cupola::impl::ConvolutionDirection direction : directions)
            result.push_back({direction, 128, shape, element, true});
    }
    return result;
}

inline bool has(const cupola::impl::ChosenPlan& plan, cudnnBackendNumericalNote_t note) {
    return std::ranges::count(plan.numerical_notes, note) > 0;
}

}  // namespace cudnn_test
