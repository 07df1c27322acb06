// SPDX-License-Identifier: Apache-2.0
//
// Softmax cross-entropy against plain loops in double, and its edges: labels that do not exist, logits that are large
// or no numbers.
#include "../test.hpp"

#include <cupola/ops/softmax_cross_entropy.hpp>

#include "../devices.hpp"
#include "../reference/softmax_cross_entropy.hpp"
#include "../throws_with.hpp"
#include "operation_run.hpp"

using operation_run::Guarded;
using reference::Floats;

namespace {

using Labels = std::vector<std::int32_t>;

struct Outcome {
    LossResult result;
    Floats gradient;
};

template <Device D>
Outcome run(const Floats& logits, const Labels& labels, std::int64_t classes, float smoothing, int threads = 1,
            bool with_gradient = true) {
    const CaseContext<D> of_case(threads);
    typename D::Context& context = of_case.get();
    Guarded<D> z(context, logits), gradient(context, logits.size() * sizeof(float));
    typename D::Arena label_memory(labels.size() * sizeof(std::int32_t), "a test");
    D::copy_from_host(context, label_memory.data(), reinterpret_cast<const std::byte*>(labels.data()),
                      labels.size() * sizeof(std::int32_t));
    const ops::SoftmaxCrossEntropy<D, float> loss(classes, smoothing);
    Outcome outcome;
    outcome.result = loss.forward(context, z.data(), reinterpret_cast<const std::int32_t*>(label_memory.data()),
                                  static_cast<std::int64_t>(labels.size()), with_gradient ? gradient.data() : nullptr);
    outcome.gradient = gradient.read();
    CHECK_MESSAGE(reference::same_bits(z.read(), logits), "the loss changed its logits");
    CHECK_MESSAGE(z.guards_intact(), "the loss wrote outside its logits");
    CHECK_MESSAGE(gradient.guards_intact(), "the loss wrote outside its gradient");
    return outcome;
}

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();

}  // namespace

TYPED_TEST_CASE("softmax cross-entropy, its gradient and its count agree with plain loops", D, Devices) {
    for (const std::int32_t classes : {1, 2, 3, 10, 100, 1000}) {
        for (const std::int64_t batch : {1, 3, 128, 513, 1025}) {
            for (const float smoothing : {0.0F, 0.1F}) {
                for (const int threads : thread_counts<D>()) {
                    const std::uint64_t seed = reference::fresh_seed();
                    INFO(classes, " classes, batch ", batch, ", smoothing ", smoothing, ", threads ", threads,
                         ", seed ", seed);
                    reference::Random random(seed);
                    const Floats z = random.normal(batch * classes, 3.0);
                    const Labels labels = random.labels(batch, classes);
                    const reference::SoftmaxCrossEntropy r{static_cast<std::size_t>(classes),
                                                           static_cast<double>(smoothing)};
                    const Outcome outcome = run<D>(z, labels, classes, smoothing, threads);
                    const double expected = r.loss_sum(z, labels);
                    CHECK(std::abs(outcome.result.sum - expected) <= reference::tolerance * std::abs(expected) + 1e-12);
                    CHECK(outcome.result.correct == r.correct(z, labels));
                    // With two classes, both differences from the targets are small at the same time.
                    const reference::Doubles gradient = r.gradient(z, labels);
                    const auto terms = [&] {
                        reference::Doubles sums = gradient;
                        for (std::size_t i = 0; i < sums.size(); ++i)
                            sums[i] += 2 * r.target(i % r.classes, labels[i / r.classes]) / static_cast<double>(batch);
                        return sums;
                    };
                    CHECK(reference::distance_of_sums_at(gradient, outcome.gradient, gradient, terms) <
                          reference::tolerance);
                }
            }
        }
    }
}

TYPED_TEST_CASE("softmax cross-entropy gives the same bits for any number of threads, with and without gradient", D,
                Devices) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    reference::Random random(seed);
    const Floats z = random.normal(1025 * 10, 3.0);
    const Labels labels = random.labels(1025, 10);
    const Outcome one = run<D>(z, labels, 10, 0.1F, 1);
    for (const int threads : {1, 2, 3}) {
        const Outcome other = run<D>(z, labels, 10, 0.1F, threads);
        CHECK(other.result.sum == one.result.sum);
        CHECK(reference::same_bits(other.gradient, one.gradient));
    }
    const Outcome without = run<D>(z, labels, 10, 0.1F, 2, false);
    CHECK(without.result.sum == one.result.sum);
    CHECK(without.result.correct == one.result.correct);
    for (const float value : without.gradient) CHECK(std::isnan(value));
}

TYPED_TEST_CASE("more samples than a device has blocks for at the same time are each counted once", D, Devices) {
    // On Cuda a block of few samples, of which there are at most 682, takes a second part.
    constexpr std::int32_t classes = 65;
    constexpr std::int64_t batch = 2 * 682 * 8 + 3;
    reference::Random random(7);
    const Floats z = random.normal(batch * classes, 3.0);
    const Labels labels = random.labels(batch, classes);
    const reference::SoftmaxCrossEntropy r{classes, 0.1};
    const Outcome outcome = run<D>(z, labels, classes, 0.1F);
    CHECK(outcome.result.sum == doctest::Approx(r.loss_sum(z, labels)).epsilon(reference::tolerance));
    CHECK(outcome.result.correct == r.correct(z, labels));
    CHECK(reference::distance(outcome.gradient, r.gradient(z, labels)) < reference::tolerance);
}

TYPED_TEST_CASE("equal logits have a loss of log(classes), and the first class is the prediction", D, Devices) {
    const Outcome outcome = run<D>(Floats(30, 0.7F), {0, 0, 9}, 10, 0.0F);
    CHECK(outcome.result.sum == doctest::Approx(3 * std::log(10.0)).epsilon(1e-12));
    CHECK(outcome.result.correct == 2);
}

TYPED_TEST_CASE("logits of any size have the loss of plain loops in double", D, Devices) {
    for (const std::size_t classes : {2U, 10U, 1000U}) {
        for (const float size : {0.0F, 1e3F, -1e8F, 1e15F, -1e16F, 1e20F, -1e30F, 3e38F}) {
            for (const float smoothing : {0.0F, 0.1F}) {
                CAPTURES(classes, size, smoothing);
                const reference::SoftmaxCrossEntropy r{classes, static_cast<double>(smoothing)};
                const Labels labels{0, 1};
                Floats z(2 * classes, size);
                const Outcome equal = run<D>(z, labels, static_cast<std::int64_t>(classes), smoothing);
                CHECK(equal.result.sum == doctest::Approx(2 * std::log(static_cast<double>(classes))).epsilon(1e-12));
                CHECK(reference::distance(equal.gradient, r.gradient(z, labels)) < reference::tolerance);
                CHECK(equal.result.correct == 1);
                z[classes] = std::nextafter(size, -inf);
                const Outcome unequal = run<D>(z, labels, static_cast<std::int64_t>(classes), smoothing);
                CHECK(unequal.result.sum == doctest::Approx(r.loss_sum(z, labels)).epsilon(1e-9));
                CHECK(reference::distance(unequal.gradient, r.gradient(z, labels)) < reference::tolerance);
            }
        }
    }
}

TYPED_TEST_CASE("large logits neither overflow nor lose the loss", D, Devices) {
    const Floats z{1000.0F, 0.0F, -1000.0F, 3e38F, -3e38F, 0.0F, -1e4F, -1e4F, -1e4F};
    const Outcome outcome = run<D>(z, {2, 0, 1}, 3, 0.0F);
    CHECK(outcome.result.sum == doctest::Approx(2000.0 + 0.0 + std::log(3.0)));
    CHECK(outcome.result.correct == 1);
    const Floats expected{1.0F / 3, 0, -1.0F / 3, 0, 0, 0, 1.0F / 9, -2.0F / 9, 1.0F / 9};
    CHECK(reference::distance(outcome.gradient, expected) < 1e-6);

    const Outcome worst = run<D>({3e38F, -3e38F}, {1}, 2, 0.0F);
    CHECK(std::isfinite(worst.result.sum));
    CHECK(worst.result.sum == doctest::Approx(6e38));
}

TYPED_TEST_CASE("a NaN logit gives a NaN loss and counts as wrong", D, Devices) {
    for (const std::size_t at : {0U, 1U, 2U}) {
        for (const std::int32_t label : {0, 1, 2}) {
            for (const float smoothing : {0.0F, 0.1F}) {
                CAPTURES(at, label, smoothing);
                Floats z{0.1F, 0.2F, 0.3F};
                z[at] = not_a_number;
                const Outcome outcome = run<D>(z, {label}, 3, smoothing);
                CHECK(std::isnan(outcome.result.sum));
                CHECK(outcome.result.correct == 0);
                for (const float value : outcome.gradient) CHECK(std::isnan(value));
            }
        }
    }
    CHECK(run<D>({not_a_number, not_a_number, not_a_number}, {0}, 3, 0.0F).result.correct == 0);
}

TYPED_TEST_CASE("an infinite logit gives a loss that is not finite", D, Devices) {
    CHECK_FALSE(std::isfinite(run<D>({inf, 0.0F, 0.0F}, {0}, 3, 0.0F).result.sum));
    CHECK_FALSE(std::isfinite(run<D>({-inf, 0.0F, 0.0F}, {0}, 3, 0.0F).result.sum));
    CHECK_FALSE(std::isfinite(run<D>({-inf, -inf, -inf}, {0}, 3, 0.0F).result.sum));
}

TYPED_TEST_CASE("a label that is not a class is rejected with the sample and the classes", D, Devices) {
    const auto message = [](const Labels& labels) {
        return message_of<InvalidArgument>([&] { run<D>(Floats(labels.size() * 10, 0.0F), labels, 10, 0.0F); });
    };
    CHECK(message({0, 9, 10}) == "sample 2 of the batch has label 10, but the loss has classes 0 to 9");
    CHECK(message({-1}) == "sample 0 of the batch has label -1, but the loss has classes 0 to 9");
}

TYPED_TEST_CASE("the gradient of a batch sums to zero over each sample's classes", D, Devices) {
    reference::Random random(reference::fresh_seed());
    const Outcome outcome = run<D>(random.normal(50), random.labels(5, 10), 10, 0.1F);
    for (std::size_t n = 0; n < 5; ++n) {
        double sum = 0;
        for (std::size_t c = 0; c < 10; ++c) sum += static_cast<double>(outcome.gradient[n * 10 + c]);
        CHECK(std::abs(sum) < 1e-7);
    }
}
