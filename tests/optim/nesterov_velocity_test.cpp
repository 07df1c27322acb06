// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/nesterov_velocity.hpp>

#include "../test.hpp"

#include "../devices.hpp"
#include "../reference/compare.hpp"
#include "updated_tensors.hpp"

using reference::Floats;

namespace {

using Doubles = std::vector<double>;

/// The rule with the position x and the velocity v apart, as the papers have it, in double. The gradient is that at
/// x + momentum * v, which is what the parameters of NesterovVelocity are.
struct ThreeVariables {
    Doubles x, v;
    double momentum, weight_decay;

    [[nodiscard]] double lookahead(std::size_t i) const { return x[i] + momentum * v[i]; }
    [[nodiscard]] Doubles parameters() const {
        Doubles result;
        for (std::size_t i = 0; i < x.size(); ++i) result.push_back(lookahead(i));
        return result;
    }
    template <class T>
    void step(double rate, const std::vector<T>& gradient) {
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double g = static_cast<double>(gradient[i]) + weight_decay * lookahead(i);
            v[i] = momentum * v[i] - rate * g;
            x[i] += v[i];
        }
    }
};

/// The formula in double: the expressions of impl::NesterovVelocityFormula.
void in_place(double rate, double momentum, double g, double& y, double& v) {
    const double step = rate * g;
    v = momentum * v - step;
    y += momentum * v - step;
}

}  // namespace

TYPED_TEST_CASE(
    "twenty steps of NesterovVelocity are those of position and velocity apart, with a schedule and weight decay", D,
    Devices) {
    for (const std::int64_t size : {1, 4, 37, 5000}) {
        for (const double momentum : {0.0, 0.875, 0.99}) {
            for (const double weight_decay : {0.0, 0.05}) {
                CAPTURES(size, momentum, weight_decay);
                const NesterovVelocity optimizer{.learning_rate = exponential_decay(0.05, 5, 0.5),
                                                 .momentum = momentum,
                                                 .weight_decay = weight_decay};
                const Floats initial = reference::Random(1).normal(size);
                UpdatedTensors<D, NesterovVelocity> tensor(optimizer, initial);
                ThreeVariables expected{
                    {initial.begin(), initial.end()}, Doubles(initial.size()), momentum, weight_decay};
                for (std::int64_t step = 0; step < 20; ++step) {
                    const Floats gradient = reference::Random(static_cast<std::uint64_t>(10 + step)).normal(size);
                    tensor.step(step, gradient);
                    expected.step(optimizer.learning_rate(step), gradient);
                    CHECK(reference::distance(tensor.w, expected.parameters()) < 1e-5);
                }
                if (momentum != 0.0) CHECK(reference::distance(tensor.state, expected.v) < 1e-5);
            }
        }
    }
}

TEST_CASE("in double, the form in place and the form of position and velocity differ by rounding alone") {
    // Quadratics of three curvatures with moving targets; the rate changes in each step, which Sgd's buffer would not bear.
    constexpr double momentum = 0.875;
    const Doubles curvature{0.25, 1, 1.75};
    ThreeVariables apart{{1, -2, 0.5}, Doubles(3), momentum, 0};
    Doubles y = apart.x, v(3);
    double largest = 0;
    for (int step = 0; step < 100; ++step) {
        const double rate = 0.125 / (1 + 0.03125 * step);
        Doubles gradient;
        for (std::size_t i = 0; i < 3; ++i) {
            const double target = ((13 * step + 5 * static_cast<int>(i)) % 11 - 5) / 16.0;
            gradient.push_back(curvature[i] * (apart.lookahead(i) - target));
            in_place(rate, momentum, curvature[i] * (y[i] - target), y[i], v[i]);
        }
        apart.step(rate, gradient);
        for (std::size_t i = 0; i < 3; ++i) largest = std::max(largest, std::abs(y[i] - momentum * v[i] - apart.x[i]));
    }
    CHECK(largest < 2e-15);
    CHECK(std::abs(apart.x[1]) < 0.5);  // it has moved from -2
}

TEST_CASE("the formula in double is the one that is compiled") {
    // Numbers of few bits, so that no operation rounds.
    double y = 1.5, v = -0.25;
    float w = 1.5F, velocity = -0.25F;
    in_place(0.125, 0.875, 3, y, v);
    impl::NesterovVelocityFormula{0.125F, 0.875F}(w, 3, velocity);
    CHECK(static_cast<double>(w) == y);
    CHECK(static_cast<double>(velocity) == v);
    CHECK(v == -0.59375);
    CHECK(y == 0.60546875);
}
