// SPDX-License-Identifier: Apache-2.0
//
// An own loss with a constant too many for its formula.
//
// expect: QuantileFormula cannot be made of the 2 constants of its ElementwiseLoss: they are its members, as floats, in their order
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct QuantileFormula {
    float q;
    CUPOLA_HOST_DEVICE float operator()(float x, float t) const { return math::select(t > x, q, q - 1.0F) * (t - x); }
    CUPOLA_HOST_DEVICE float derivative(float x, float t) const { return math::select(t > x, -q, 1.0F - q); }
};
#ifdef WITH_ERROR
struct Quantile : ElementwiseLoss<QuantileFormula, 0.9, 0.1> {
#else
struct Quantile : ElementwiseLoss<QuantileFormula, 0.9> {
#endif
    static constexpr std::string_view name = "quantile";
};

void run(const BatchView& batch) {
    DataParallel<Net, Quantile, Sgd, ConcatMean, Host> training({.batch_size = 8});
    training.step(std::span(&batch, 1));
}
