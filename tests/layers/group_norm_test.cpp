// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/layers/instance_norm2d.hpp
//
// GroupNorm and InstanceNorm2d: statistics over the positions of a sample, with PyTorch's figures.
// ops/group_norm_test.cpp has the plain loops.
#include "../test.hpp"

#include <cupola/layers/group_norm.hpp>
#include <cupola/layers/instance_norm2d.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/net/check_gradients.hpp>
#endif

#include "../reference/compare.hpp"
#include "torch_figures.hpp"

namespace {

using Affine = InstanceNorm2d<1e-5, with_affine>;

static_assert(LayerOn<GroupNorm<2>, AnyDevice> && LayerOn<InstanceNorm2d<>, AnyDevice> && LayerOn<Affine, AnyDevice>);
static_assert(GroupNorm<4>::output(Shape{8, 5, 16}).shape == Shape{8, 5, 16});
static_assert(GroupNorm<4>::output(Shape{16}).shape == Shape{16});
static_assert(InstanceNorm2d<>::output(Shape{8, 1, 3}).shape == Shape{8, 1, 3});
static_assert(GroupNorm<4>::parameters(Shape{8, 5, 16}).list[1].shape == Shape{16});
static_assert(parameters_of<InstanceNorm2d<>>(Shape{8, 8, 3}).count == 0);
static_assert(parameters_of<Affine>(Shape{8, 8, 3}).count == 2 &&
              Affine::parameters(Shape{8, 8, 3}).list[0].initializer == constant(1));
static_assert(description_of<GroupNorm<4>>() == "GroupNorm 4" &&
              description_of<InstanceNorm2d<>>() == "InstanceNorm2d");
static_assert(description_of<GroupNorm<4, 1e-6>>() == "GroupNorm 4, epsilon 0.000001");
static_assert(description_of<Affine>() == "InstanceNorm2d, affine");

template <class L>
constexpr std::string_view error_of(const Shape& input) {
    return L::output(input).error;
}
static_assert(error_of<GroupNorm<-2>>({4, 4, 2}) == "has the number of groups -2, which must be at least 1");
static_assert(error_of<GroupNorm<3>>({4, 4, 8}) == "expects a multiple of its groups as channels");
static_assert(error_of<GroupNorm<2, 0.0>>({4, 4, 2}) == "has an epsilon that is not positive and finite");
static_assert(error_of<GroupNorm<1>>({1 << 16, 1 << 16, 2}) == "expects fewer than 2^31 channels and positions");
static_assert(error_of<InstanceNorm2d<>>({16}) == "expects height x width x channels");
static_assert(error_of<InstanceNorm2d<>>({1, 1, 16}) == "has one value per channel, whose mean is that value");
static_assert(error_of<InstanceNorm2d<1e-5, no_bias>>({4, 4, 2}) == "accepts only the option with_affine");
static_assert(error_of<InstanceNorm2d<1e-5, with_affine, with_affine>>({4, 4, 2}) == "is given an option twice");

}  // namespace

TYPED_TEST_CASE("GroupNorm computes what PyTorch computes", D, DevicesAndElements) {
    torch_figures::check<GroupNorm<2>, D>(
        {.output = {-1.55362201F, 2.37304831F, -1.69873023F, 1.96980274F, 0.132173181F, -1.18819404F, 0.619238138F,
                    -0.495672822F, 0.385042489F, -0.777281523F, -1.69873023F, 1.96980274F, -1.80649126F, 1.96213579F,
                    0.619238138F, -0.495672822F},
         .input_gradient = {-0.494790971F, 0.258259386F, -0.545413613F, 0.306280911F, -0.428017378F, 0.664548874F,
                            -0.503005862F, 0.742138743F, -0.782075167F, 0.527016521F, -0.512625933F, 0.275738955F,
                            -0.320578873F, 0.575637579F, -0.455246747F, 0.692133844F},
         .parameter_gradients = {{0.568955839F, 0.358231485F, 0.948259771F, -0.0210724361F},
                                 {-3.0F, 2.0F, -2.5F, 2.5F}}});
}

TYPED_TEST_CASE("InstanceNorm2d computes what PyTorch computes", D, Devices) {
    // With epsilon 0.5: two values per channel are 1 and -1 without one.
    torch_figures::check<InstanceNorm2d<0.5>, D>(
        {.output = {-0.870388269F, 0.916949332F, -0.870388269F, 0.916949332F, 0.870388389F, -0.916949332F, 0.870388269F,
                    -0.916949332F, 0.916949332F, -0.870388269F, -0.870388269F, 0.916949332F, -0.916949332F,
                    0.870388329F, 0.870388269F, -0.916949332F},
         .input_gradient = {-0.0211003199F, -0.011229381F, -0.0211003199F, -0.011229381F, 0.0211003199F, 0.011229381F,
                            0.0211003199F, 0.011229381F, -0.011229381F, -0.0211003199F, -0.0211003199F, -0.011229381F,
                            0.011229381F, 0.0211003199F, 0.0211003199F, 0.011229381F}});
    torch_figures::check<InstanceNorm2d<0.5, with_affine>, D>(
        {.output = {-1.37038827F, 1.74004257F, -1.4467839F, 1.53156805F, 0.370388299F, -1.24004269F, 0.9467839F,
                    -0.53156805F, 0.416949332F, -1.16438103F, -1.4467839F, 1.53156805F, -1.41694927F, 1.66438091F,
                    0.9467839F, -0.53156805F},
         .input_gradient = {-0.0211003199F, -0.0182477441F, -0.0290129408F, -0.0126330536F, 0.0211003199F,
                            0.0182477441F, 0.0290129408F, 0.0126330536F, -0.011229381F, -0.0342880189F, -0.0290129408F,
                            -0.0126330536F, 0.011229381F, 0.0342880189F, 0.0290129408F, 0.0126330536F},
         .parameter_gradients = {{-0.0116402656F, -0.0116402656F, 0.435194135F, -0.458474666F},
                                 {-3.0F, 2.0F, -2.5F, 2.5F}}});
}

#ifndef CUPOLA_TEST_CUDA
TEST_CASE("the gradients of GroupNorm and InstanceNorm2d are their derivatives") {
    const GradientCheck of_groups = check_gradients<GroupNorm<3>, Host>({3, 2, 6});
    CHECK_MESSAGE(of_groups, of_groups.report());
    const GradientCheck of_instances = check_gradients<InstanceNorm2d<1e-5, with_affine>, Host>({3, 2, 5});
    CHECK_MESSAGE(of_instances, of_instances.report());
}
#endif
