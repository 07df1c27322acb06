// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/elastic_formula.hpp
#include <cupola/optim/clipped.hpp>
#include <cupola/optim/elastic_update.hpp>

#include "../test.hpp"

#include "../devices.hpp"
#include "../reference/compare.hpp"
#include "each_optimizer.hpp"
#include "updated_tensors.hpp"

using reference::Floats;

namespace {

using Doubles = std::vector<double>;

/// An optimiser of a user whose update is no formula.
struct WithoutFormula {
    [[nodiscard]] int state_arenas() const { return 0; }
    [[nodiscard]] std::string_view state_name(int) const { return ""; }
    [[nodiscard]] std::string description() const { return "without a formula"; }
    [[nodiscard]] double learning_rate_at(std::int64_t) const { return 0.1; }
    template <class Device>
    void update(const Update<Device>&) const {}
};
static_assert(ElasticOptimizer<Sgd, AnyDevice> && ElasticOptimizer<Lamb, AnyDevice>);
static_assert(ElasticOptimizer<Clipped<Clipped<NesterovVelocity>>, AnyDevice>);
static_assert(Optimizer<WithoutFormula, AnyDevice> && !ElasticOptimizer<WithoutFormula, AnyDevice>);
static_assert(!ElasticOptimizer<Clipped<WithoutFormula>, AnyDevice>);
static_assert(elastic_diagnostic<Clipped<Adam>, AnyDevice>().empty());
static_assert(!elastic_diagnostic<WithoutFormula, AnyDevice>().empty());
// Without a force the types of the loops are those of the formula alone; with one there are two arrays more.
static_assert(formula_states<impl::ElasticFormula<impl::SgdFormula>> == 2);
static_assert(MovingFormula<impl::ElasticFormula<impl::AdamFormula>>);
static_assert(MeasuringFormula<impl::ElasticFormula<impl::LambFormula>>);
static_assert(impl::PositionedFormula<impl::NesterovVelocityFormula> && !impl::PositionedFormula<impl::SgdFormula>);
// The centre is read and not written, also where a formula in two parts writes its state.
static_assert(!impl::MoveArguments<impl::ElasticFormula<impl::AdamFormula>>::is_written(2));
static_assert(!impl::UpdateArguments<impl::ElasticFormula<impl::AdamFormula>>::is_written(2));
static_assert(impl::UpdateArguments<impl::ElasticFormula<impl::AdamFormula>>::is_written(3));

/// Two tensors with padding around them: a whole number of vectors and one that is not, the second with a regulariser.
constexpr std::size_t arena = 80;
std::vector<Segment> segments() { return {{.offset = 4, .size = 16, .rank = 4}, {25, 37, 0.01, 1}}; }
bool is_parameter(std::size_t i) { return (i >= 4 && i < 20) || (i >= 25 && i < 62); }

/// The position that replicas exchange, in double, of the parameters and the first state arena.
template <class O>
double position(const O&, double w, double) {
    return w;
}
double position(const NesterovVelocity& optimizer, double w, double velocity) {
    return w - optimizer.momentum * velocity;
}
template <class O>
double position(const Clipped<O>& clipped, double w, double first_state) {
    return position(clipped.optimizer, w, first_state);
}

}  // namespace

TYPED_TEST_CASE("every optimiser with a formula takes the force: its own update, and a pull of d, in one pass", D,
                Devices) {
    with_each_optimizer([]<class O>(const O& optimizer) {
        CAPTURE(optimizer.description());
        const auto gradient = [](std::int64_t step) {
            return reference::Random(static_cast<std::uint64_t>(10 + step)).normal(arena);
        };
        const Floats initial = reference::Random(1).normal(arena), centre = reference::Random(2).normal(arena);
        for (const double moving_rate : {0.225, 0.0}) {
            for (const bool apart : {false, true}) {
                CAPTURES(moving_rate, apart);
                UpdatedTensors<D, O> plain(optimizer, initial, segments()), elastic(optimizer, initial, segments());
                for (std::int64_t step = 0; step < 3; ++step) {
                    plain.step(step, gradient(step));
                    elastic.step(step, gradient(step));
                }
                const Floats before = plain.w, state_before = plain.state;
                plain.step(3, gradient(3));
                elastic.step(3, gradient(3), centre, moving_rate, apart);
                Doubles expected, differences;
                for (std::size_t i = 0; i < arena; ++i) {
                    const double first = state_before.empty() ? 0 : static_cast<double>(state_before[i]),
                                 d = position(optimizer, static_cast<double>(before[i]), first) -
                                     static_cast<double>(centre[i]);
                    expected.push_back(static_cast<double>(plain.w[i]) - (is_parameter(i) ? moving_rate * d : 0));
                    differences.push_back(is_parameter(i) ? d : static_cast<double>(gradient(3)[i]));
                }
                CHECK(reference::distance(elastic.w, expected) < 1e-6);
                CHECK(reference::distance(elastic.difference, differences) < 1e-6);
                CHECK(reference::distance(elastic.state, Doubles(plain.state.begin(), plain.state.end())) < 1e-6);
                for (std::size_t i = 0; i < arena; ++i) {
                    if (is_parameter(i)) continue;
                    CHECK(elastic.w[i] == initial[i]);
                    CHECK(elastic.difference[i] == gradient(3)[i]);
                }
            }
        }
    });
}

TYPED_TEST_CASE("twenty steps of EASGD and EAMSGD with one replica are the papers' rules in double", D, Devices) {
    for (const std::int64_t size : {1, 37, 5000}) {
        for (const double momentum : {0.0, 0.875}) {
            CAPTURES(size, momentum);
            constexpr double alpha = 0.25;
            const NesterovVelocity optimizer{.learning_rate = 0.125, .momentum = momentum};
            const Floats initial = reference::Random(1).normal(size);
            UpdatedTensors<D, NesterovVelocity> tensor(optimizer, initial);
            Doubles x(initial.begin(), initial.end()), v(x.size()), c(x.size()), y(x);
            for (std::int64_t step = 0; step < 20; ++step) {
                const Floats gradient = reference::Random(static_cast<std::uint64_t>(10 + step)).normal(size);
                // The tensor has the centre of the reference, rounded: its own is another test's.
                tensor.step(step, gradient, Floats(c.begin(), c.end()), alpha);
                Doubles differences;
                for (std::size_t i = 0; i < x.size(); ++i) {
                    const double d = x[i] - c[i];
                    v[i] = momentum * v[i] - 0.125 * static_cast<double>(gradient[i]);
                    x[i] += v[i] - alpha * d;
                    c[i] += alpha * d;
                    y[i] = x[i] + momentum * v[i];
                    differences.push_back(d);
                }
                CHECK(reference::distance(tensor.w, y) < 1e-5);
                CHECK(reference::distance(tensor.difference, differences) < 1e-5);
            }
            if (momentum != 0) CHECK(reference::distance(tensor.state, v) < 1e-5);
        }
    }
}

TEST_CASE("the constants of an update with a force are written in the order of its ranges, with the rate in them") {
    const auto count = [](const auto& optimizer, double moving_rate) {
        typename AnyDevice::Context context(0, device_options<AnyDevice>(1));
        const std::vector<Segment> of_update = segments();
        std::vector<std::string> types;
        std::vector<std::byte> bytes;
        const auto write = [&](std::string_view type, std::span<const std::byte> constant) {
            types.emplace_back(type);
            bytes.insert(bytes.end(), constant.begin(), constant.end());
        };
        ConstantsWriter to(write);
        const Update<AnyDevice> update{.context = context, .elements = arena, .segments = of_update};
        write_constants(optimizer, update, {.moving_rate = moving_rate}, to);
        CHECK(types.size() == 2);
        CHECK(types[0].find("ElasticFormula") != std::string::npos);
        return bytes;
    };
    CHECK(count(Sgd{}, 0.25).size() > 0);
    CHECK(count(Sgd{}, 0.25) != count(Sgd{}, 0.5));
    CHECK(count(Clipped<Adam>{.max_value = 1}, 0.25) != count(Clipped<Adam>{.max_value = 1}, 0.5));
}
