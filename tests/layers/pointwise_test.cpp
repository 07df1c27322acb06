// SPDX-License-Identifier: Apache-2.0
//
// Pointwise: a user's formula, with constants and without, is a layer on every device.
#include <cupola/layers/pointwise.hpp>

#include "../test.hpp"

#include <cupola/layers.hpp>
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/net/check_gradients.hpp>
#include <cupola/net/sequential.hpp>

#include "layer_run.hpp"

namespace {

struct SoftsignFormula {
    CUPOLA_HOST_DEVICE float operator()(float x) const { return x / (1.0F + math::abs(x)); }
    CUPOLA_HOST_DEVICE float gradient_from_output(float y, float dy) const {
        return dy * (1.0F - math::abs(y)) * (1.0F - math::abs(y));
    }
};
struct Softsign : Pointwise<SoftsignFormula> {};

/// a x + b x^3.
struct CubicFormula {
    float a, b;

    CUPOLA_HOST_DEVICE float operator()(float x) const { return x * (a + b * x * x); }
    CUPOLA_HOST_DEVICE float gradient_from_input(float x, float dy) const { return dy * (a + 3.0F * b * x * x); }
};
template <Number a, Number b>
struct Cubic : Pointwise<CubicFormula, a, b> {};

static_assert(Softsign::output(Shape{24, 24, 64}).shape == Shape{24, 24, 64});
static_assert(parameters_of<Softsign>(Shape{384}).count == 0);
static_assert(!traits_of<Softsign>().backward_reads_input && traits_of<Softsign>().backward_reads_output);
static_assert(traits_of<Cubic<1, 2>>().backward_reads_input && !traits_of<Cubic<1, 2>>().backward_reads_output);
static_assert(kind_of<Softsign>() == LayerKind::activation && kind_parts_of<Softsign>().activation == Activation::none);
#ifndef __CUDACC__  // nvcc writes names of its own for such arguments into the host's code
static_assert(std::is_same_v<OperationOf<Cubic<1, 2>, AnyDevice>, OperationOf<Cubic<3, 4>, AnyDevice>>);
#endif

}  // namespace

TYPED_TEST_CASE("a layer made from a formula computes the formula", D, DevicesAndElements) {
    {
        const auto [problem, outcome] = layer_run::run<Softsign, D>({7, 5, 3}, 2, reference::fresh_seed());
        reference::Doubles y, dx;
        for (std::size_t i = 0; i < problem.x.size(); ++i) {
            const auto x = static_cast<double>(problem.x[i]), out = static_cast<double>(outcome.output[i]);
            y.push_back(x / (1 + std::abs(x)));
            dx.push_back(static_cast<double>(problem.dy[i]) * (1 - std::abs(out)) * (1 - std::abs(out)));
        }
        CHECK(reference::distance(outcome.output, y) < operation_run::tolerance<D>);
        CHECK(reference::distance(outcome.input_gradient, dx) < operation_run::tolerance<D>);
    }
    const auto [problem, outcome] = layer_run::run<Cubic<0.5, -2>, D>({11}, 3, reference::fresh_seed());
    reference::Doubles y, dx;
    for (std::size_t i = 0; i < problem.x.size(); ++i) {
        const auto x = static_cast<double>(problem.x[i]);
        y.push_back(0.5 * x - 2 * x * x * x);
        dx.push_back(static_cast<double>(problem.dy[i]) * (0.5 - 6 * x * x));
    }
    CHECK(reference::distance(outcome.output, y) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, dx) < operation_run::tolerance<D>);
}

#ifndef CUPOLA_TEST_CUDA
TEST_CASE("check_gradients accepts layers made from formulas") {
    const GradientCheck softsign = check_gradients<Softsign, Host>({4, 4, 3});
    CHECK_MESSAGE(softsign, softsign.report());
    const GradientCheck cubic = check_gradients<Cubic<0.5, -0.25>, Host>({4, 4, 3});
    CHECK_MESSAGE(cubic, cubic.report());
}

namespace {

/// Formulas that read the input, and the output, between layers that fuse with ReLU.
struct Net : Sequential<Input<4, 4, 3>, Conv2d<4, 3>, LeakyReLU<0.25>, MaxPool2d<2>, Cubic<0.5, -0.25>, Flatten,
                        Linear<8>, Sigmoid, Linear<3>> {};

}  // namespace

TEST_CASE("a network of such layers keeps the tensors that each backward pass reads") {
    const GradientCheck net = check_gradients<Net, CrossEntropy<3>, Host>({.batch = 4});
    CHECK_MESSAGE(net, net.report());
}
#endif
