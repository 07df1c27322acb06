// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/loss/soft_cross_entropy.hpp, cupola/loss/weighted_cross_entropy.hpp, cupola/ops/loss_report.hpp, cupola/ops/weighted_targets.hpp
//
// The losses of classes against plain loops in double: labels per sample and per position, weights of classes, an ignored
// label and soft targets; and what they refuse.
#include <cupola/loss/cross_entropy.hpp>

#include "../test.hpp"

#include <cupola/loss/binary_cross_entropy.hpp>
#include <cupola/loss/soft_cross_entropy.hpp>
#include <cupola/loss/weighted_cross_entropy.hpp>

#include "../devices.hpp"
#include "../reference/cross_entropy.hpp"
#include "../throws_with.hpp"
#include "loss_run.hpp"

using namespace loss_run;
using Labels = std::vector<std::int32_t>;

namespace {

/// The weights of classes, one of them 0.
template <std::size_t classes>
std::array<float, classes> some_weights() {
    std::array<float, classes> weights{};
    for (std::size_t c = 0; c < classes; ++c) weights[c] = static_cast<float>((c + 1) % 4) * 0.75F;
    return weights;
}

template <std::size_t classes>
reference::CrossEntropy oracle(float smoothing, const std::array<float, classes>& weights,
                               std::optional<std::int32_t> ignored = {}) {
    return {classes, static_cast<double>(smoothing), reference::Doubles(weights.begin(), weights.end()), ignored};
}

/// Checks a loss of an output with `positions` against its oracle.
template <class D, class Loss>
void agrees(const Loss& loss, const reference::CrossEntropy& expected, const Shape& output, const Floats& z,
            const std::vector<typename Loss::Target>& targets, int threads) {
    const auto positions = static_cast<double>(output.size() / output.channels());
    const loss_run::Outcome outcome = loss_run::run<D>(loss, output, z, targets, threads);
    const std::span of_rows(targets);
    CHECK(close(outcome.result.sum, expected.loss_sum(z, of_rows) / positions));
    CHECK(close(outcome.result.weight, expected.weight(of_rows) / positions));
    CHECK(outcome.result.correct == expected.correct(z, of_rows));
    CHECK(outcome.result.predictions == expected.predictions(of_rows));
    reference::Doubles gradient = expected.gradient(z, of_rows);
    const auto rows = static_cast<double>(z.size() / expected.classes);
    for (double& value : gradient) value /= rows;
    // A probability less its target may be a small difference; the sum of the two is not.
    reference::Doubles terms = gradient;
    const reference::Doubles t = expected.targets(of_rows);
    for (std::size_t i = 0; i < t.size(); ++i) terms[i] = std::abs(terms[i]) + 2 * t[i] / rows;
    CHECK(reference::distance_of_sums_at(gradient, outcome.gradient, gradient, terms) < reference::tolerance);
}

template <class D, std::int32_t classes>
void labels_agree() {
    constexpr auto count = static_cast<std::size_t>(classes);
    for (const Shape& output : {Shape{classes}, Shape{3, 5, classes}, Shape{7, classes}}) {
        for (const std::int64_t batch : {1, 3, 1025}) {
            if (batch * output.size() > 200'000) continue;
            for (const float smoothing : {0.0F, 0.1F}) {
                // What depends on the number of rows does not depend on the smoothing.
                if (batch > 3 && smoothing == 0.0F) continue;
                const std::uint64_t seed = reference::fresh_seed();
                INFO(to_string(output), ", batch ", batch, ", smoothing ", smoothing, ", seed ", seed);
                reference::Random random(seed);
                const Floats z = random.normal(batch * output.size(), 3.0);
                Labels labels = random.labels(batch * output.size() / classes, classes);
                const auto weights = some_weights<count>();
                for (const int threads : thread_counts<D>()) {
                    agrees<D>(CrossEntropy<classes>{smoothing}, {.classes = count, .smoothing = smoothing}, output, z,
                              labels, threads);
                    agrees<D>(WeightedCrossEntropy<classes>{smoothing, weights}, oracle(smoothing, weights), output, z,
                              labels, threads);
                    // The ignored label may be a class.
                    agrees<D>(WeightedCrossEntropy<classes>{smoothing, weights, 0}, oracle(smoothing, weights, 0),
                              output, z, labels, threads);
                }
                for (std::size_t n = 0; n < labels.size(); n += 3) labels[n] = 255;
                agrees<D>(WeightedCrossEntropy<classes>{smoothing, weights, 255}, oracle(smoothing, weights, 255),
                          output, z, labels, 1);
            }
        }
    }
}

template <class D, std::int32_t classes>
void soft_targets_agree() {
    constexpr auto count = static_cast<std::size_t>(classes);
    for (const Shape& output : {Shape{classes}, Shape{3, 5, classes}}) {
        for (const std::int64_t batch : {1, 3, 1025}) {
            if (batch * output.size() > 200'000) continue;
            for (const float smoothing : {0.0F, 0.1F}) {
                // What depends on the number of rows does not depend on the smoothing.
                if (batch > 3 && smoothing == 0.0F) continue;
                const std::uint64_t seed = reference::fresh_seed();
                INFO(to_string(output), ", batch ", batch, ", smoothing ", smoothing, ", seed ", seed);
                reference::Random random(seed);
                const Floats z = random.normal(batch * output.size(), 3.0);
                Floats soft = random.ties(batch * output.size());
                for (float& target : soft) target *= 0.25F;  // they need not sum to 1
                const auto weights = some_weights<count>();
                for (const int threads : thread_counts<D>()) {
                    agrees<D>(SoftCrossEntropy<classes>{smoothing}, {.classes = count, .smoothing = smoothing}, output,
                              z, soft, threads);
                    agrees<D>(SoftCrossEntropy<classes>{smoothing, weights}, oracle(smoothing, weights), output, z,
                              soft, threads);
                }
            }
        }
    }
}

}  // namespace

TYPED_TEST_CASE("cross-entropies of labels agree with plain loops, per sample and per position", D, Devices) {
    labels_agree<D, 2>();
    labels_agree<D, 3>();
    labels_agree<D, 10>();
    labels_agree<D, 65>();
    labels_agree<D, 300>();
}

TYPED_TEST_CASE("a cross-entropy with soft targets agrees with plain loops", D, Devices) {
    soft_targets_agree<D, 2>();
    soft_targets_agree<D, 10>();
    soft_targets_agree<D, 65>();
    soft_targets_agree<D, 300>();
}

TYPED_TEST_CASE("weights that are all 1, and soft targets of one class, give the values of plain labels", D, Devices) {
    reference::Random random(reference::fresh_seed());
    const Floats z = random.normal(513 * 10, 3.0);
    const Labels labels = random.labels(513, 10);
    for (const float smoothing : {0.0F, 0.1F}) {
        const auto plain = loss_run::run<D>(CrossEntropy<10>{smoothing}, {10}, z, labels);
        const auto weighted = loss_run::run<D>(WeightedCrossEntropy<10>{smoothing}, {10}, z, labels);
        CHECK(close(weighted.result.sum, plain.result.sum));
        CHECK(weighted.result.weight == 513);
        CHECK(weighted.result.correct == plain.result.correct);
        CHECK(reference::distance(weighted.gradient, plain.gradient) < 1e-6);
        Floats soft(z.size(), 0.0F);
        for (std::size_t n = 0; n < labels.size(); ++n) soft[n * 10 + static_cast<std::size_t>(labels[n])] = 1.0F;
        const auto of_soft = loss_run::run<D>(SoftCrossEntropy<10>{smoothing}, {10}, z, soft);
        CHECK(close(of_soft.result.sum, plain.result.sum));
        CHECK(of_soft.result.correct == plain.result.correct);
        CHECK(reference::distance(of_soft.gradient, plain.gradient) < 1e-6);
    }
}

TYPED_TEST_CASE("losses of classes have the same bits for any number of threads, with and without gradient", D,
                Devices) {
    reference::Random random(reference::fresh_seed());
    const Floats z = random.normal(33 * 40 * 4, 3.0);
    const Labels labels = random.labels(33 * 40, 4);
    const WeightedCrossEntropy<4> loss{0.1F, some_weights<4>(), 2};
    const Shape output{5, 8, 4};
    const auto one = loss_run::run<D>(loss, output, z, labels);
    for (const int threads : {1, 2, 3}) {
        for (const bool with_gradient : {true, false}) {
            const auto other = loss_run::run<D>(loss, output, z, labels, threads, with_gradient);
            CHECK(other.result.sum == one.result.sum);
            CHECK(other.result.weight == one.result.weight);
            if (with_gradient) CHECK(reference::same_bits(other.gradient, one.gradient));
        }
    }
}

TYPED_TEST_CASE("ignored labels have neither loss nor gradient, whatever their logits are", D, Devices) {
    const WeightedCrossEntropy<2> loss{.ignored_label = -100};
    const auto outcome =
        loss_run::run<D>(loss, {2}, {not_a_number, infinity, 0.0F, 0.0F, 1e30F, -1e30F}, {-100, 1, -100});
    CHECK(close(outcome.result.sum, std::log(2.0)));
    CHECK(outcome.result.weight == 1.0);
    CHECK(outcome.result.correct == 0);
    CHECK(outcome.result.predictions == 1);
    CHECK(reference::distance(outcome.gradient, Floats{0, 0, 0.5F / 3, -0.5F / 3, 0, 0}) < 1e-6);

    const auto none = loss_run::run<D>(loss, {2}, {1.0F, 2.0F}, {-100});
    CHECK(none.result.sum == 0.0);
    CHECK(none.result.weight == 0.0);
    CHECK(none.result.predictions == 0);
    for (const float value : none.gradient) CHECK(value == 0.0F);
}

TYPED_TEST_CASE("losses of classes take logits of any size, and report those that are no numbers", D, Devices) {
    const WeightedCrossEntropy<3> weighted{.class_weights = {1.0F, 2.0F, 4.0F}};
    const auto large = loss_run::run<D>(weighted, {3}, {1e30F, -1e30F, 0.0F}, {1});
    CHECK(close(large.result.sum, 2 * 2e30));
    CHECK(large.result.weight == 2.0);
    CHECK(reference::distance(large.gradient, Floats{2, -2, 0}) < 1e-6);
    const auto soft = loss_run::run<D>(SoftCrossEntropy<3>{}, {3}, {1e30F, -1e30F, 0.0F}, {0.5F, 0.25F, 0.25F});
    CHECK(close(soft.result.sum, 0.25 * 2e30 + 0.25 * 1e30));
    CHECK(reference::distance(soft.gradient, Floats{0.5F, -0.25F, -0.25F}) < 1e-6);
    for (const float bad : {not_a_number, infinity}) {
        CHECK_FALSE(std::isfinite(loss_run::run<D>(weighted, {3}, {0.0F, bad, 0.0F}, {0}).result.sum));
        CHECK_FALSE(std::isfinite(
            loss_run::run<D>(SoftCrossEntropy<3>{}, {3}, {0.0F, bad, 0.0F}, {1.0F, 0.0F, 0.0F}).result.sum));
    }
}

TYPED_TEST_CASE("a target that is not one is reported with its sample, its position and its value", D, Devices) {
    const auto message = [](const auto& loss, const Shape& output, auto targets) {
        const std::size_t rows = targets.size() * static_cast<std::size_t>(output.channels());
        const bool soft = std::same_as<typename decltype(targets)::value_type, float>;
        return message_of<InvalidArgument>(
            [&] { (void)loss_run::run<D>(loss, output, Floats(soft ? targets.size() : rows, 0.0F), targets); });
    };
    CHECK(message(CrossEntropy<3>{}, {2, 2, 3}, Labels{0, 1, 2, 0, 0, 1, 3, 0}) ==
          "sample 1 of the batch has label 3 at position 2, but the loss has classes 0 to 2");
    const WeightedCrossEntropy<3> ignoring{.ignored_label = 255};
    CHECK(message(ignoring, {3}, Labels{255, 2, -1, 5}) ==
          "sample 2 of the batch has label -1, but the loss has classes 0 to 2 and ignores 255");
    CHECK(message(WeightedCrossEntropy<3>{}, {3}, Labels{255}) ==
          "sample 0 of the batch has label 255, but the loss has classes 0 to 2");
    CHECK(message(SoftCrossEntropy<3>{}, {3}, Floats{0, 0, 1, 0, not_a_number, 1, -1, 0, 0}) ==
          "sample 1 of the batch has target nan for class 1, but a target must be from 0 to 1");
    CHECK(message(SoftCrossEntropy<3>{}, {2, 3}, Floats{0, 0, 1, 0, 1, -0.5F}) ==
          "sample 0 of the batch has target -0.5 for class 2 at position 1, but a target must be from 0 to 1");
    CHECK(message(SoftCrossEntropy<3>{}, {3}, Floats{0, 1, 0, 100, 100, 100}) ==
          "sample 1 of the batch has target 100 for class 0, but a target must be from 0 to 1");
    CHECK(message(SoftCrossEntropy<3>{}, {3}, Floats{0, 1.0000001F, 0}) == "(no exception)");
    CHECK(message(SoftCrossEntropy<3>{}, {3}, Floats{0, infinity, 1}) ==
          "sample 0 of the batch has target inf for class 1, but a target must be from 0 to 1");
}

TYPED_TEST_CASE("weights of classes that are negative, not finite or all 0 are rejected", D, Devices) {
    const auto message = [](std::array<float, 3> weights) {
        const WeightedCrossEntropy<3> labels{.class_weights = weights};
        const SoftCrossEntropy<3> soft{.class_weights = weights};
        const std::string one = message_of<InvalidArgument>([&] { (void)labels.template operation<D>(); });
        CHECK(message_of<InvalidArgument>([&] { (void)soft.template operation<D>(); }) == one);
        return one;
    };
    CHECK(message({1, -0.5F, 1}) == "the weight of class 1 must be finite and at least 0, not -0.5");
    CHECK(message({1, 1, not_a_number}) == "the weight of class 2 must be finite and at least 0, not nan");
    CHECK(message({infinity, 1, 1}) == "the weight of class 0 must be finite and at least 0, not inf");
    CHECK(message({0, 0, 0}) == "the weights of all 3 classes are 0");
}

static_assert(CrossEntropy<10>::target({10}) == Shape{1} && CrossEntropy<10>::target({6, 4, 10}) == Shape{6, 4});
static_assert(SoftCrossEntropy<10>::target({6, 4, 10}) == Shape{6, 4, 10});
static_assert(!CrossEntropy<1>::diagnostic({1}).empty() && !WeightedCrossEntropy<1>::diagnostic({1}).empty() &&
              !SoftCrossEntropy<1>::diagnostic({4, 4, 1}).empty() &&
              WeightedBinaryCrossEntropy<1>::diagnostic({1}).empty());
static_assert(CrossEntropy<10>::diagnostic({6, 4, 10}).empty() && !CrossEntropy<10>::diagnostic({10, 4}).empty());
static_assert(!WeightedCrossEntropy<3>::diagnostic({4}).empty() && !SoftCrossEntropy<3>::diagnostic({4}).empty());
