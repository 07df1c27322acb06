// SPDX-License-Identifier: Apache-2.0
//
// An own loss whose formula has no derivative.
//
// expect: CubeFormula is not the formula of a loss: it lacks `float derivative(float output, float target) const`
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct CubeFormula {
    CUPOLA_HOST_DEVICE float operator()(float x, float t) const { return (x - t) * (x - t) * math::abs(x - t); }
#ifndef WITH_ERROR
    CUPOLA_HOST_DEVICE float derivative(float x, float t) const { return 3.0F * (x - t) * math::abs(x - t); }
#endif
};
struct Cube : ElementwiseLoss<CubeFormula> {
    static constexpr std::string_view name = "cube";
};

void run(const BatchView& batch) {
    DataParallel<Net, Cube, Sgd, ConcatMean, Host> training({.batch_size = 8});
    training.step(std::span(&batch, 1));
}
