// SPDX-License-Identifier: Apache-2.0
//
// The computations of a training step beside the network and the optimiser, against plain loops.
//
// Covers: cupola/ops/training_step.hpp, cupola/ops/host/training_step.hpp, cupola/loss/queue_loss.hpp
#include <cupola/ops/training_step.hpp>

#include "../test.hpp"

#include <cupola/host.hpp>
#include <cupola/layers/initializer.hpp>
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/loss/queue_loss.hpp>

using Step = ops::TrainingStep<Host>;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::vector<float> numbers(std::size_t count, std::uint64_t seed) {
    std::vector<float> values(count);
    initialize(values, normal(1.0), 1, 1, seed, 0);
    return values;
}

/// A loss of the user's own has `forward` alone.
struct OwnLoss {
    LossResult forward(HostContext&, const float*, const std::int32_t*, std::int64_t batch, float*) const {
        return {.sum = 2.5, .correct = batch};
    }
};

}  // namespace

TEST_CASE("a weighted sum and a mean are those of plain loops") {
    HostContext context(0, {.threads = 2});
    const std::vector<float> a = numbers(9000, 1), b = numbers(9000, 2);
    const std::vector<const float*> rows{a.data(), b.data()};
    const std::vector<float> weights{3, 5};
    std::vector<float> sum(9000, not_a_number);
    Step::weighted_sum(context, rows, weights, sum);
    for (std::size_t i = 0; i < sum.size(); ++i) {
        CHECK(static_cast<double>(sum[i]) ==
              doctest::Approx(3.0 * static_cast<double>(a[i]) + 5.0 * static_cast<double>(b[i])).epsilon(1e-6));
    }
    std::int32_t healthy = 1;
    const float divisor = 8;
    std::vector<float> mean(sum.size());
    Step::mean(context, sum, &divisor, mean, &healthy);
    CHECK(healthy == 1);
    for (std::size_t i = 0; i < sum.size(); ++i) CHECK(mean[i] == sum[i] / 8);
    Step::weighted_sum(context, {}, {}, sum);
    CHECK(sum == std::vector<float>(sum.size(), 0.0F));
}

TEST_CASE("a mean that is not finite, or whose divisor is not, clears the healthy flag for good") {
    HostContext context(0, {});
    std::vector<float> values(100, 1);
    const float one = 1, none = not_a_number;
    std::int32_t healthy = 1;
    Step::mean(context, values, &one, values, &healthy);
    CHECK(healthy == 1);
    Step::mean(context, values, &none, values, &healthy);
    CHECK(healthy == 0);
    values.assign(values.size(), 1);
    Step::mean(context, values, &one, values, &healthy);
    CHECK(healthy == 0);
    // By infinity the mean itself is finite.
    const float infinite = std::numeric_limits<float>::infinity();
    std::vector<float> zeros(values.size());
    healthy = 1;
    Step::mean(context, values, &infinite, zeros, &healthy);
    CHECK(healthy == 0);
    healthy = 1;
    values[77] = std::numeric_limits<float>::infinity();
    Step::mean(context, values, &one, values, &healthy);
    CHECK(healthy == 0);
}

TEST_CASE("a mean that is not finite names the last such element of each row that it comes from") {
    HostContext context(0, {});
    const float infinite = std::numeric_limits<float>::infinity(), one = 1;
    std::vector<float> rows(3 * 8, 1);  // of which the mean is made of elements 2 to 5
    rows[3] = rows[4] = infinite;
    rows[8 + 7] = infinite;  // outside
    rows[16 + 5] = not_a_number;
    std::vector<float> mean{1, infinite, 1, not_a_number};  // element 4 of the first row is finite in the mean
    unsigned long long ends[3] = {0, 0, 0};
    std::int32_t healthy = 1;
    const ops::RowsOfMean origin{.rows = rows.data() + 2, .stride = 8, .count = 3, .first_column = 2, .ends = ends};
    Step::mean(context, mean, &one, mean, &healthy, origin);
    CHECK(healthy == 0);
    CHECK(std::vector(ends, ends + 3) == std::vector<unsigned long long>{4, 0, 6});
    mean = {1, infinite, 1, 1};
    Step::mean(context, mean, &one, mean, &healthy, origin);
    CHECK(std::vector(ends, ends + 3) == std::vector<unsigned long long>{4, 0, 6});
    mean.assign(4, 1);  // nothing is looked for
    rows[5] = infinite;
    Step::mean(context, mean, &one, mean, &healthy, origin);
    CHECK(ends[0] == 4);
}

TEST_CASE("a loss that is not finite poisons the gradient, and a finite one does not") {
    HostContext context(0, {});
    float gradient = 2;
    double loss = 1e300;
    Step::poison(context, &loss, &gradient);
    CHECK(gradient == 2);
    for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
        gradient = 2;
        loss = bad;
        Step::poison(context, &loss, &gradient);
        CHECK(std::isnan(gradient));
    }
}

TEST_CASE("sums of squares, hashes and finiteness are those of the algorithms") {
    HostContext context(0, {});
    std::vector<float> values = numbers(5000, 3);
    double squares = 0;
    std::uint64_t hash = 0;
    std::int32_t finite = 0;
    Step::sum_of_squares(context, values, &squares);
    Step::hash(context, values, &hash);
    Step::all_finite(context, values, &finite);
    CHECK(squares == sum_of_squares(context, values));
    CHECK(hash == hash_of(context, values));
    CHECK(finite == 1);
    values[4999] = not_a_number;
    Step::all_finite(context, values, &finite);
    CHECK(finite == 0);
}

TEST_CASE("a queued loss writes its result, or the label that is not a class, to the report") {
    HostContext context(0, {});
    const std::vector<float> logits = numbers(12, 4);
    std::vector<std::int32_t> labels{0, 2, 1};
    const auto operation = CrossEntropy<4>{}.operation<Host>();
    std::vector<float> gradient(12), expected(12);
    const LossResult result = operation.forward(context, logits.data(), labels.data(), 3, expected.data());
    LossReport report{};
    impl::queue_loss(operation, context, logits.data(), labels.data(), 3, gradient.data(), &report);
    CHECK(impl::result_of_loss(operation, report).sum == result.sum);
    CHECK(report.correct == result.correct);
    CHECK(report.bad_target == -1);
    CHECK(gradient == expected);
    labels[1] = 4;
    impl::queue_loss(operation, context, logits.data(), labels.data(), 3, gradient.data(), &report);
    CHECK(report.bad_target == 1);
    CHECK(report.bad_value == 4);
    CHECK(std::isnan(report.sum));
    CHECK_THROWS_AS((void)impl::result_of_loss(operation, report), InvalidArgument);
    impl::queue_loss(OwnLoss{}, context, logits.data(), labels.data(), 3, gradient.data(), &report);
    CHECK(impl::result_of_loss(OwnLoss{}, report).sum == 2.5);
    CHECK(report.correct == 3);
    CHECK(report.bad_target == -1);
}
