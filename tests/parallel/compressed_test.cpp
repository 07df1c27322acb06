// SPDX-License-Identifier: Apache-2.0
//
// Compressed within one process, on each device: what it rounds and what it leaves, against plain loops in double.
//
// Covers: cupola/parallel/compressed.hpp
#include <cupola/parallel/compressed.hpp>

#include "../test.hpp"

#include <cupola/layers/initializer.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/optim/sgd.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/parallel/data_parallel.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "../devices.hpp"
#include "../ops/operation_run.hpp"
#include "../reference/compare.hpp"

namespace {

struct ScaledForCompressed : Float32 {
    static constexpr float loss_scale = 64;
};
struct CompressedNet : InPrecision<ScaledForCompressed,
                                   Sequential<Input<12>, Named<"hidden", Linear<40>>, ReLU, Named<"out", Linear<3>>>> {
};

template <class D, class A>
using CompressedTraining = DataParallel<CompressedNet, CrossEntropy<3>, Sgd, A, D>;

/// A policy of a user's own: the row of the replica with the highest number.
struct LastRow {
    static constexpr std::string_view name = "LastRow";
    struct Copy {
        CUPOLA_HOST_DEVICE void operator()(float& to, float from) const { to = from; }
    };
    template <class Context>
    void average(Context& context, const GradientRows& gradients, std::span<float> mean) const {
        for_each_element(context, gradients.columns, Copy{}, mean.data(), gradients.rows.back());
    }
};

/// The nearest number with 8 bits of significand and a float's exponents, ties to the even one.
double rounded_in_double(double x) {
    if (x == 0 || !std::isfinite(x)) return x;
    const double unit = std::ldexp(1.0, std::max(std::ilogb(x), -126) - 7);
    const double result = std::nearbyint(x / unit) * unit;
    return std::abs(result) < 0x1p128 ? result : std::copysign(std::numeric_limits<double>::infinity(), x);
}

template <class D>
class CompressedBatches {
public:
    using Context = typename D::Kernels::Context;

    CompressedBatches() : context_(0, device_options<typename D::Kernels>(1)) {
        std::vector<float> inputs(count * 12);
        initialize(inputs, normal(1.0), 1, 1, 3, 0);
        std::vector<std::int32_t> labels;
        for (std::size_t n = 0; n < count; ++n) {
            const float* const x = inputs.data() + 12 * n;
            labels.push_back(x[0] + x[1] > 0.5F ? 0 : (x[2] * x[3] > 0 ? 1 : 2));
        }
        inputs_ = copied(inputs);
        labels_ = copied(labels);
    }
    BatchView operator()(std::int64_t step, int replica, Context&) const {
        constexpr std::int64_t sizes[] = {8, 8, 3, 0};
        const std::int64_t first = (8 * step + 16 * replica) % static_cast<std::int64_t>(count - 8);
        const std::int64_t size = unequal ? sizes[static_cast<std::size_t>(step + replica) % 4] : 8;
        if (size == 0) return {};
        return {reinterpret_cast<const float*>(inputs_.data()) + 12 * first,
                reinterpret_cast<const std::int32_t*>(labels_.data()) + first, size, CompressedNet::input_shape};
    }
    void set_input(std::size_t element, float value) {
        D::Kernels::copy_from_host(context_, inputs_.data() + element * sizeof(float),
                                   reinterpret_cast<const std::byte*>(&value), sizeof value);
    }
    bool unequal = true;

private:
    static constexpr std::size_t count = 256;
    template <class V>
    [[nodiscard]] typename D::Kernels::Arena copied(const std::vector<V>& values) {
        typename D::Kernels::Arena arena(values.size() * sizeof(V), "a test");
        D::Kernels::copy_from_host(context_, arena.data(), reinterpret_cast<const std::byte*>(values.data()),
                                   values.size() * sizeof(V));
        return arena;
    }
    Context context_;
    mutable typename D::Kernels::Arena inputs_, labels_;
};

template <class D, class A>
CompressedTraining<D, A> compressed_training(int replicas, int accumulation = 1) {
    typename CompressedTraining<D, A>::Options options;
    options.replicas = replicas;
    options.batch_size = 8;
    options.other_batch_sizes = {3};
    options.gradient_accumulation_steps = accumulation;
    options.seed = 3;
    options.device = device_options<D>(1);
    options.optimizer = {.learning_rate = 0.2, .momentum = 0.5};
    return CompressedTraining<D, A>(options);
}

/// The sum of weight * row in double, each row and the sum rounded.
std::vector<double> compressed_mean(const std::vector<std::vector<float>>& rows, const std::vector<double>& samples) {
    double total = 0;
    for (const double n : samples) total += n;
    std::vector<double> mean(rows[0].size());
    for (std::size_t i = 0; i < mean.size(); ++i) {
        for (std::size_t r = 0; r < rows.size(); ++r)
            mean[i] += samples[r] / total * rounded_in_double(static_cast<double>(rows[r][i]));
        mean[i] = rounded_in_double(mean[i]);
    }
    return mean;
}

/// The largest difference relative to the mean; a sum in float may round to a neighbour of the sum in double.
double compressed_error(const std::vector<float>& mean, const std::vector<double>& expected) {
    double largest = 0;
    for (std::size_t i = 0; i < mean.size(); ++i)
        largest =
            std::max(largest, std::abs(static_cast<double>(mean[i]) - expected[i]) / (std::abs(expected[i]) + 1e-6));
    return largest;
}

bool is_bfloat16(const std::vector<float>& values) {
    for (const float each : values) {
        if ((std::bit_cast<std::uint32_t>(each) & 0xFFFFU) != 0) return false;
    }
    return true;
}

}  // namespace

TYPED_TEST_CASE("rows and their mean are rounded to nearest, ties to even", D, Devices) {
    for (const int threads : thread_counts<D>()) {
        typename D::Context context(0, device_options<D>(threads));
        for (const std::size_t columns : {std::size_t{1}, std::size_t{37}, std::size_t{9001}}) {
            CAPTURE(columns);
            std::vector<std::vector<float>> rows(3, std::vector<float>(columns));
            std::vector<operation_run::Guarded<D>> places;
            std::vector<const float*> addresses;
            const Compressed<ConcatMean> policy{};
            for (std::size_t r = 0; r < rows.size(); ++r) {
                initialize(rows[r], normal(1.0), 1, 1, 8, static_cast<std::uint32_t>(r));
                const float ties[] = {std::bit_cast<float>(0x3F80'8000U), std::bit_cast<float>(0x3F81'8000U),
                                      std::bit_cast<float>(0x3F81'8001U), std::bit_cast<float>(0x0001'8000U), -0.0F};
                for (std::size_t i = 0; i < std::size(ties) && 3 * i + r < columns; ++i) rows[r][3 * i + r] = ties[i];
                places.emplace_back(context, rows[r]);
                policy.prepare(context, std::span<float>(places[r].data(), columns));
                const auto prepared = places[r].read();
                for (std::size_t i = 0; i < columns; ++i) {
                    const auto expected = static_cast<float>(rounded_in_double(static_cast<double>(rows[r][i])));
                    REQUIRE(std::bit_cast<std::uint32_t>(prepared[i]) == std::bit_cast<std::uint32_t>(expected));
                }
                addresses.push_back(places[r].data());
            }
            const std::int64_t samples[] = {128, 100, 40};
            const GradientRows gradients{.rows = addresses,
                                         .samples = samples,
                                         .total_samples = 268,
                                         .columns = static_cast<std::int64_t>(columns)};
            operation_run::Guarded<D> to(context, columns * sizeof(float)), plain(context, columns * sizeof(float));
            policy.average(context, gradients, std::span<float>(to.data(), columns));
            ConcatMean{}.average(context, gradients, std::span<float>(plain.data(), columns));
            const auto mean = to.read(), unrounded = plain.read();
            for (std::size_t i = 0; i < columns; ++i)
                REQUIRE(mean[i] == static_cast<float>(rounded_in_double(static_cast<double>(unrounded[i]))));
            CHECK(compressed_error({mean.begin(), mean.end()}, compressed_mean(rows, {128, 100, 40})) < 0x1p-7);
        }
    }
}

TYPED_TEST_CASE("what is not finite stays so, and a number beyond bfloat16's becomes infinite", D, Devices) {
    typename D::Context context(0, device_options<D>(1));
    constexpr float infinity = std::numeric_limits<float>::infinity();
    // The middle between the largest number and the next, and the float below it.
    const float middle = std::bit_cast<float>(0x7F7F'8000U), below = std::bit_cast<float>(0x7F7F'7FFFU);
    const std::vector<float> values{std::numeric_limits<float>::quiet_NaN(),
                                    -std::numeric_limits<float>::quiet_NaN(),
                                    std::bit_cast<float>(0x7F80'0001U),
                                    infinity,
                                    -infinity,
                                    std::numeric_limits<float>::max(),
                                    -middle,
                                    below};
    operation_run::Guarded<D> row(context, values);
    Compressed<ConcatMean>{}.prepare(context, std::span<float>(row.data(), values.size()));
    const auto found = row.read();
    for (std::size_t i = 0; i < 3; ++i) CHECK(std::isnan(found[i]));
    CHECK(found[3] == infinity);
    CHECK(found[4] == -infinity);
    CHECK(found[5] == infinity);
    CHECK(found[6] == -infinity);
    CHECK(found[7] == std::bit_cast<float>(0x7F7F'0000U));
}

TYPED_TEST_CASE("a step averages the rounded rows, of unequal batches, none and accumulated ones", D, Devices) {
    const CompressedBatches<D> batches;
    for (const int accumulation : {1, 2}) {
        CAPTURE(accumulation);
        auto exact = compressed_training<D, ConcatMean>(4, accumulation);
        auto compressed = compressed_training<D, Compressed<ConcatMean>>(4, accumulation);
        auto last = compressed_training<D, Compressed<LastRow>>(4, accumulation);
        for (int step = 0; step < 3; ++step) {
            CAPTURE(step);
            const StepReport report = exact.step(batches);
            CHECK(compressed.step(batches).loss == report.loss);
            last.step(batches);
            std::vector<std::vector<float>> rows;
            std::vector<double> samples;
            for (int r = 0; r < 4; ++r) {
                const auto count = report.replicas[static_cast<std::size_t>(r)].samples;
                if (count == 0) continue;
                rows.push_back(exact.gradient(r));
                samples.push_back(static_cast<double>(count));
                const std::vector<float> row = compressed.gradient(r);
                for (std::size_t i = 0; i < row.size(); ++i)
                    REQUIRE(static_cast<double>(row[i]) == rounded_in_double(static_cast<double>(rows.back()[i])));
            }
            REQUIRE(rows.size() >= 3);
            // Rows and mean are shown divided by the loss scale, a power of two.
            const std::vector<float> mean = compressed.averaged_gradient();
            CHECK(is_bfloat16(mean));
            CHECK(compressed_error(mean, compressed_mean(rows, samples)) < 0x1p-7);
            const std::vector<float> of_last = last.averaged_gradient();
            for (std::size_t i = 0; i < of_last.size(); ++i)
                REQUIRE(static_cast<double>(of_last[i]) == rounded_in_double(static_cast<double>(rows.back()[i])));
            // The next step begins with the same parameters.
            TrainingState state = exact.state();
            compressed.restore(state);
            last.restore(state);
        }
    }
}

TYPED_TEST_CASE("a single replica has nothing to average, and nothing is rounded", D, Devices) {
    CompressedBatches<D> batches;
    batches.unequal = false;
    auto exact = compressed_training<D, ConcatMean>(1);
    auto compressed = compressed_training<D, Compressed<ConcatMean>>(1);
    for (int step = 0; step < 3; ++step) {
        exact.step(batches);
        compressed.step(batches);
    }
    CHECK_FALSE(is_bfloat16(compressed.averaged_gradient()));
    CHECK(exact.parameters() == compressed.parameters());
}

TYPED_TEST_CASE("a compressed training converges as the other one", D, Devices) {
    CompressedBatches<D> batches;
    batches.unequal = false;
    auto exact = compressed_training<D, ConcatMean>(4);
    auto compressed = compressed_training<D, Compressed<ConcatMean>>(4);
    double first = 0, last_exact = 0, last_compressed = 0;
    for (int step = 0; step < 120; ++step) {
        const double one = exact.step(batches).loss, other = compressed.step(batches).loss;
        if (step == 0) first = one;
        if (step >= 100) {
            last_exact += one / 20;
            last_compressed += other / 20;
        }
    }
    CAPTURES(first, last_exact, last_compressed);
    CHECK(last_exact < 0.5 * first);
    // Two roundings of at most 2^-8 each per step.
    CHECK(std::abs(last_compressed - last_exact) < 0.02 * first);
    CHECK(compressed.parameters() != exact.parameters());
}

TYPED_TEST_CASE("a gradient that is not finite is reported as without compression", D, Devices) {
    CompressedBatches<D> batches;
    batches.unequal = false;
    batches.set_input(12 * 16 + 5, std::numeric_limits<float>::quiet_NaN());  // the first batch of replica 1
    const auto error_of = [&](auto training) {
        try {
            training.step(batches);
        } catch (const DivergedError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const std::string expected = error_of(compressed_training<D, ConcatMean>(4));
    CHECK(expected.find("replica 1") != std::string::npos);
    CHECK(error_of(compressed_training<D, Compressed<ConcatMean>>(4)) == expected);
}
