// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/loss/binary_cross_entropy.hpp, cupola/loss/huber.hpp, cupola/loss/mean_absolute_error.hpp
// Covers: cupola/loss/mean_squared_error.hpp, cupola/ops/cuda/elementwise_loss.hpp, cupola/ops/elementwise_loss.hpp
// Covers: cupola/losses.hpp, cupola/ops/host/elementwise_loss.hpp
//
// Losses made from a formula per element, a user's among them, against the same formulas in double; and what they refuse.
#include <cupola/loss/elementwise_loss.hpp>

#include "../test.hpp"

#include <cupola/loss/binary_cross_entropy.hpp>
#include <cupola/loss/huber.hpp>
#include <cupola/loss/mean_absolute_error.hpp>
#include <cupola/loss/mean_squared_error.hpp>

#include "../devices.hpp"
#include "../reference/elementwise_loss.hpp"
#include "../throws_with.hpp"
#include "loss_run.hpp"

using namespace loss_run;

namespace {

/// A user's loss, with a constant: a log(cosh((x - t) / a)).
struct LogCoshFormula {
    float a;

    CUPOLA_HOST_DEVICE float operator()(float x, float t) const {
        const float d = math::abs(x - t) / a;
        return a * (d + math::log1p(math::exp(-2.0F * d)) - 0.69314718F);
    }
    CUPOLA_HOST_DEVICE float derivative(float x, float t) const { return math::tanh((x - t) / a); }
};
struct LogCosh : ElementwiseLoss<LogCoshFormula, 2> {
    static constexpr std::string_view name = "log_cosh";
};
struct LogCoshInDouble {
    static double loss(double x, double t) { return 2 * std::log(std::cosh((x - t) / 2)); }
    static double derivative(double x, double t) { return std::tanh((x - t) / 2); }
};

struct WithoutDerivative {
    float operator()(float x, float) const { return x; }
};
struct OfOneValue {
    float operator()(float x) const { return x; }
    float derivative(float x, float) const { return x; }
};
/// Members with and without initialisers, which need as many constants.
struct OfMembers {
    float operator()(float x, float t) const { return x - t; }
    float derivative(float, float) const { return 1; }
};
struct OneMember : OfMembers {
    float a;
};
struct InitialisedMember : OfMembers {
    float a = 1;
};
struct SecondInitialised {
    float a, b = 1;
    float operator()(float x, float t) const { return x - t; }
    float derivative(float, float) const { return 1; }
};
struct TwoMembers {
    float a, b;
    float operator()(float x, float t) const { return x - t; }
    float derivative(float, float) const { return 1; }
};
struct Whole {
    int a;
    float operator()(float x, float t) const { return x - t; }
    float derivative(float, float) const { return 1; }
};
template <class Formula, Number... constants>
constexpr bool complete = ElementwiseLoss<Formula, constants...>::formula_diagnostic().empty();
static_assert(complete<OfMembers> && complete<InitialisedMember> && !complete<OneMember>);
static_assert(complete<SecondInitialised, 2> && complete<SecondInitialised, 2, 3>);
#ifndef __CUDACC__  // nvcc does not find a member without a value beside one with an initialiser
static_assert(!complete<SecondInitialised>);
#endif
static_assert(!complete<TwoMembers> && !complete<TwoMembers, 2> && complete<TwoMembers, 2, 3>);
static_assert(!complete<TwoMembers, 1, 2, 3> && !complete<OfMembers, 1> && !complete<Whole, 1>);

static_assert(LossFormula<LogCoshFormula> && LossFormula<impl::SquaredErrorFormula>);
static_assert(!LossFormula<WithoutDerivative> && !LossFormula<OfOneValue> && !LossFormula<float>);
static_assert(MeanSquaredError::target({4, 6, 3}) == Shape{4, 6, 3} && BinaryCrossEntropy::target({7}) == Shape{7});
static_assert(Huber<>::diagnostic({3}).empty() && !Huber<0>::diagnostic({3}).empty());

/// `spread` is that of the outputs; targets are from 0 to 1, as one of the losses expects. `rounding` is that of the loss of an element
/// near its target.
template <class D, class Loss, class Oracle>
void agrees(const Loss& loss, const Oracle& oracle, double spread = 2.0, double rounding = 1e-7) {
    for (const Shape& output : {Shape{1}, Shape{3}, Shape{5, 7, 3}, Shape{64, 64, 2}}) {
        for (const std::int64_t batch : {1, 3, 1025}) {
            if (batch * output.size() > 200'000) continue;
            const std::uint64_t seed = reference::fresh_seed();
            INFO(Loss::name, ", ", to_string(output), ", batch ", batch, ", seed ", seed);
            reference::Random random(seed);
            const Floats x = random.normal(batch * output.size(), spread, 0.5);
            Floats t = random.normal(batch * output.size(), 0.3, 0.5);
            for (float& value : t) value = std::min(1.0F, std::max(0.0F, value));
            double sum = 0;
            reference::Doubles gradient(x.size());
            for (std::size_t i = 0; i < x.size(); ++i) {
                const auto xi = static_cast<double>(x[i]), ti = static_cast<double>(t[i]);
                sum += oracle.loss(xi, ti) / static_cast<double>(output.size());
                gradient[i] = oracle.derivative(xi, ti) / static_cast<double>(x.size());
            }
            // The difference of an output and a target near it is rounded as they are.
            const reference::Doubles terms(x.size(), 1.0 / static_cast<double>(x.size()));
            for (const int threads : thread_counts<D>()) {
                const auto outcome = loss_run::run<D>(loss, output, x, t, threads);
                CHECK(std::abs(outcome.result.sum - sum) <=
                      reference::tolerance * std::abs(sum) + rounding * static_cast<double>(batch));
                CHECK(outcome.result.weight == static_cast<double>(batch));
                CHECK(outcome.result.correct == 0);
                CHECK(outcome.result.predictions == 0);
                CHECK(reference::distance_of_sums_at(gradient, outcome.gradient, gradient, terms) <
                      reference::tolerance);
            }
        }
    }
}

/// The loss and the derivative of one element.
template <class D, class Loss>
std::pair<double, float> of_one(const Loss& loss, float x, float t) {
    const auto outcome = loss_run::run<D>(loss, {1}, {x}, {t});
    return {outcome.result.sum, outcome.gradient[0]};
}

}  // namespace

TYPED_TEST_CASE("losses of a formula per element agree with the same formula in double", D, Devices) {
    agrees<D>(MeanSquaredError{}, reference::SquaredError{});
    agrees<D>(MeanAbsoluteError{}, reference::AbsoluteError{});
    agrees<D>(Huber<>{}, reference::HuberError{1.0});
    agrees<D>(Huber<0.25>{}, reference::HuberError{0.25});
    agrees<D>(BinaryCrossEntropy{}, reference::BinaryCrossEntropy{1.0});
    agrees<D>(BinaryCrossEntropy{3.5F}, reference::BinaryCrossEntropy{3.5}, 8.0);
    // It cancels terms of about 1, and rounds three of them by 6e-8 each.
    agrees<D>(LogCosh{}, LogCoshInDouble{}, 2.0, 2e-7);
}

TYPED_TEST_CASE("a binary cross-entropy with a weight of positives per channel agrees with each channel's own", D,
                Devices) {
    const auto check = [](auto channel_count) {
        constexpr std::int64_t channels = decltype(channel_count)::value;
        WeightedBinaryCrossEntropy<channels> loss;
        for (std::size_t c = 0; c < loss.positive_weights.size(); ++c)
            loss.positive_weights[c] = 0.5F + static_cast<float>(c % 7);
        for (const Shape& output : {Shape{channels}, Shape{3, 5, channels}}) {
            const std::uint64_t seed = reference::fresh_seed();
            INFO(to_string(output), ", seed ", seed);
            const std::int64_t count = 9 * output.size();
            reference::Random random(seed);
            const Floats x = random.normal(count, 3.0);
            Floats t;
            for (std::int64_t i = 0; i < count; ++i) t.push_back(static_cast<float>(i % 3) / 2);
            double sum = 0;
            reference::Doubles gradient;
            for (std::size_t i = 0; i < x.size(); ++i) {
                const reference::BinaryCrossEntropy of_channel{
                    static_cast<double>(loss.positive_weights[i % static_cast<std::size_t>(channels)])};
                const auto xi = static_cast<double>(x[i]), ti = static_cast<double>(t[i]);
                sum += of_channel.loss(xi, ti) / static_cast<double>(output.size());
                gradient.push_back(of_channel.derivative(xi, ti) / static_cast<double>(count));
            }
            for (const int threads : thread_counts<D>()) {
                const auto outcome = loss_run::run<D>(loss, output, x, t, threads);
                CHECK(close(outcome.result.sum, sum));
                CHECK(outcome.result.weight == 9);
                CHECK(reference::distance(outcome.gradient, gradient) < reference::tolerance);
            }
        }
    };
    check(std::integral_constant<std::int64_t, 1>{});
    check(std::integral_constant<std::int64_t, 3>{});
    check(std::integral_constant<std::int64_t, 65>{});
    check(std::integral_constant<std::int64_t, 1001>{});
    CHECK(message_of<InvalidArgument>([] {
              (void)loss_run::run<D>(WeightedBinaryCrossEntropy<2>{}, {2}, {0, 0, 0, 0}, {0, 1, 1, 2});
          }) == "sample 1 of the batch has target 2 at element 1, but the loss expects targets that are from 0 to 1");
}

TYPED_TEST_CASE(
    "losses of a formula per element have the same bits for any number of threads, with and without gradient", D,
    Devices) {
    reference::Random random(reference::fresh_seed());
    const Floats x = random.normal(1025 * 37), t = random.normal(1025 * 37);
    const auto one = loss_run::run<D>(Huber<>{}, {37}, x, t);
    for (const int threads : {1, 2, 3}) {
        for (const bool with_gradient : {true, false}) {
            const auto other = loss_run::run<D>(Huber<>{}, {37}, x, t, threads, with_gradient);
            CHECK(other.result.sum == one.result.sum);
            if (with_gradient) CHECK(reference::same_bits(other.gradient, one.gradient));
        }
    }
}

TYPED_TEST_CASE("the losses per element at equality, at their bounds and far from them", D, Devices) {
    using Pair = std::pair<double, float>;
    CHECK(of_one<D>(MeanSquaredError{}, 3.0F, 3.0F) == Pair(0.0, 0.0F));
    CHECK(of_one<D>(MeanSquaredError{}, -0x1p50F, 0x1p50F) == Pair(0x1p102, -0x1p52F));
    CHECK(of_one<D>(MeanAbsoluteError{}, 3.0F, 3.0F) == Pair(0.0, 0.0F));
    CHECK(of_one<D>(MeanAbsoluteError{}, -1e30F, 1e30F) == Pair(static_cast<double>(2e30F), -1.0F));
    CHECK(of_one<D>(Huber<2>{}, 3.0F, 1.0F) == Pair(2.0, 2.0F));
    CHECK(of_one<D>(Huber<2>{}, 1.0F, 4.0F) == Pair(4.0, -2.0F));
    CHECK(of_one<D>(Huber<2>{}, 1e30F, 0.0F) == Pair(static_cast<double>(2e30F), 2.0F));
    CHECK(of_one<D>(BinaryCrossEntropy{}, 1e30F, 1.0F) == Pair(0.0, 0.0F));
    CHECK(of_one<D>(BinaryCrossEntropy{}, 1e30F, 0.0F) == Pair(static_cast<double>(1e30F), 1.0F));
    CHECK(of_one<D>(BinaryCrossEntropy{2.0F}, -1e30F, 1.0F) == Pair(static_cast<double>(2e30F), -2.0F));
    // A loss near 0 is not lost beside 1.
    const auto [loss, slope] = of_one<D>(BinaryCrossEntropy{}, -30.0F, 0.0F);
    CHECK(loss == doctest::Approx(std::exp(-30.0)).epsilon(1e-5));
    CHECK(static_cast<double>(slope) == doctest::Approx(std::exp(-30.0)).epsilon(1e-5));
}

TYPED_TEST_CASE("an output that is no number gives a loss and a gradient that are none", D, Devices) {
    const auto check = [](const auto& loss) {
        INFO(std::string(std::remove_cvref_t<decltype(loss)>::name));
        const auto outcome = loss_run::run<D>(loss, {2}, {0.5F, 0.5F, not_a_number, 0.5F}, {0, 1, 0, 1});
        CHECK(std::isnan(outcome.result.sum));
        CHECK(std::isnan(outcome.gradient[2]));
        CHECK_FALSE(std::isnan(outcome.gradient[3]));
        CHECK_FALSE(std::isfinite(loss_run::run<D>(loss, {2}, {0.5F, -infinity}, {0, 1}).result.sum));
    };
    check(MeanSquaredError{});
    check(MeanAbsoluteError{});
    check(Huber<>{});
    check(BinaryCrossEntropy{});
}

TYPED_TEST_CASE("a target that a formula does not take is reported with its sample and its element", D, Devices) {
    const auto message = [](const auto& loss, const Floats& targets) {
        return message_of<InvalidArgument>(
            [&] { (void)loss_run::run<D>(loss, {3}, Floats(targets.size(), 0.5F), targets); });
    };
    CHECK(message(MeanSquaredError{}, {0, 1, 2, 3, not_a_number, infinity}) ==
          "sample 1 of the batch has target nan at element 1, but the loss expects targets that are finite");
    CHECK(message(MeanAbsoluteError{}, {-infinity, 1, 2}) ==
          "sample 0 of the batch has target -inf at element 0, but the loss expects targets that are finite");
    CHECK(message(BinaryCrossEntropy{}, {0, 1, 0.5F, 0, 0, 255}) ==
          "sample 1 of the batch has target 255 at element 2, but the loss expects targets that are from 0 to 1");
    CHECK(message(BinaryCrossEntropy{}, {0, -0.5F, 0}) ==
          "sample 0 of the batch has target -0.5 at element 1, but the loss expects targets that are from 0 to 1");
    CHECK(message(BinaryCrossEntropy{}, {0, 1, not_a_number}) ==
          "sample 0 of the batch has target nan at element 2, but the loss expects targets that are from 0 to 1");
    Floats many(3 * 5000, 1.0F);
    many[9001] = many[12'000] = not_a_number;
    CHECK(message(LogCosh{}, many) ==
          "sample 3000 of the batch has target nan at element 1, but the loss expects targets that are finite");
}

TYPED_TEST_CASE("a weight of positives that is not above 0 is rejected", D, Devices) {
    for (const float weight : {0.0F, -1.0F, infinity, not_a_number}) {
        const BinaryCrossEntropy loss{.positive_weight = weight};
        const WeightedBinaryCrossEntropy<3> of_channels{.positive_weights = {1.0F, weight, 1.0F}};
        CHECK(message_of<InvalidArgument>([&] { (void)of_channels.template operation<D>({3}); }) ==
              message_of<InvalidArgument>([&] { (void)loss.template operation<D>({1}); }));
        CHECK(message_of<InvalidArgument>([&] { (void)loss.template operation<D>({1}); }) ==
              text("the weight of positives of a binary cross-entropy must be finite and above 0, not ", weight));
    }
}
