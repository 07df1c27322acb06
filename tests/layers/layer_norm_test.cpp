// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/layers/rms_norm.hpp
//
// LayerNorm and RMSNorm: the channels of each position, with PyTorch's figures. ops/group_norm_test.cpp has the plain loops.
#include "../test.hpp"

#include <cupola/layers/layer_norm.hpp>
#include <cupola/layers/rms_norm.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/net/check_gradients.hpp>
#endif

#include "../reference/compare.hpp"
#include "torch_figures.hpp"

namespace {

static_assert(LayerOn<LayerNorm<>, AnyDevice> && LayerOn<RMSNorm<>, AnyDevice>);
static_assert(LayerNorm<>::output(Shape{8, 5, 16}).shape == Shape{8, 5, 16});
static_assert(RMSNorm<>::output(Shape{12, 16}).shape == Shape{12, 16});
static_assert(LayerNorm<>::parameters(Shape{8, 5, 16}).count == 2 && RMSNorm<>::parameters(Shape{8, 5, 16}).count == 1);
static_assert(LayerNorm<>::parameters(Shape{12, 16}).list[0].shape == Shape{16} &&
              LayerNorm<>::parameters(Shape{12, 16}).list[0].initializer == constant(1) &&
              LayerNorm<>::parameters(Shape{12, 16}).list[1].initializer == constant(0));
static_assert(description_of<LayerNorm<>>() == "LayerNorm" && description_of<RMSNorm<>>() == "RMSNorm");
static_assert(description_of<LayerNorm<1e-6>>() == "LayerNorm, epsilon 0.000001");
static_assert(description_of<RMSNorm<1e-6>>() == "RMSNorm, epsilon 0.000001");
static_assert(std::string_view(LayerNorm<0.0>::output(Shape{4}).error) ==
              "has an epsilon that is not positive and finite");
static_assert(std::string_view(RMSNorm<-1.0>::output(Shape{4}).error) ==
              "has an epsilon that is not positive and finite");
static_assert(std::string_view(LayerNorm<>::output(Shape{std::int64_t{1} << 31}).error) ==
              "expects fewer than 2^31 channels");

}  // namespace

TYPED_TEST_CASE("LayerNorm computes what PyTorch computes", D, DevicesAndElements) {
    torch_figures::check<LayerNorm<>, D>(
        {.output = {-1.77807641F, 1.23378253F, -1.08243132F, 1.93783593F, -0.111486822F, -1.95966876F, 1.61971974F,
                    0.0629226714F, 0.652900457F, -0.0521714799F, -2.34660506F, 1.12758696F, -1.05785513F, 2.72780609F,
                    0.00568355992F, -0.797013044F},
         .input_gradient = {0.139079615F, 0.156278893F, -0.244567066F, -0.0507914424F, -0.326721162F, -0.120661408F,
                            0.0781677961F, 0.369214773F, -0.557803214F, 0.539851367F, -0.352177024F, 0.37012893F,
                            -0.410752892F, 0.343586981F, -0.504615664F, 0.571781576F},
         .parameter_gradients = {{0.586519778F, 0.783735514F, 0.301471531F, -0.609246671F},
                                 {-3.0F, 2.0F, -2.5F, 2.5F}}});
}

TYPED_TEST_CASE("RMSNorm computes what PyTorch computes", D, DevicesAndElements) {
    torch_figures::check<RMSNorm<>, D>(
        {.output = {-1.4506371F, 0.642895937F, -1.08797777F, 1.18688488F, -0.167836279F, -2.72733974F, 0.923099518F,
                    -0.944079101F, 1.31629038F, 0.0F, -1.80989933F, 0.822681427F, -0.594635308F, 2.41570592F,
                    0.204405889F, -1.33792949F},
         .input_gradient = {-0.000967502594F, -0.054434754F, -0.402150393F, -0.282530248F, -0.64489907F, -0.165620238F,
                            -0.462436199F, 0.0902710557F, -0.500256777F, 0.594158828F, -0.267579198F, 0.418819636F,
                            -0.139213651F, 0.636060596F, -0.225349531F, 0.836513937F},
         .parameter_gradients = {{1.17913032F, 0.720832169F, 0.908728242F, -0.79665482F}}});
}

TYPED_TEST_CASE("LayerNorm of a large mean is exact where PyTorch's is", D, Devices) {
    // torch.nn.LayerNorm(4)(torch.tensor([[1010000., 1010001., 1010002., 1010004.]]))
    operation_run::Problem problem;
    problem.input = problem.output = {4};
    problem.x = {1010000, 1010001, 1010002, 1010004};
    problem.dy = {1, 1, 1, 1};
    problem.parameters = {{1, 1, 1, 1}, {0, 0, 0, 0}};
    const auto outcome =
        operation_run::run<D>(problem, [](const auto& build) { return operation_of<LayerNorm<>>(build); });
    CHECK(reference::distance(outcome.output,
                              reference::Floats{-1.18321325F, -0.507091394F, 0.169030465F, 1.52127418F}) < 1e-6);
}

#ifndef CUPOLA_TEST_CUDA
TEST_CASE("the gradients of LayerNorm and RMSNorm are their derivatives") {
    const GradientCheck of_layer = check_gradients<LayerNorm<>, Host>({3, 2, 5}),
                        of_rms = check_gradients<RMSNorm<>, Host>({4, 7});
    CHECK_MESSAGE(of_layer, of_layer.report());
    CHECK_MESSAGE(of_rms, of_rms.report());
}
#endif
