// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/parallel/averaging.hpp, cupola/parallel/host/concat_mean.hpp, cupola/parallel/nccl_all_reduce.hpp
#include <cupola/parallel/host/concat_mean.hpp>

#include "../test.hpp"

#include <cupola/layers/initializer.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>

namespace {

struct Nameless {
    void average(HostContext&, const GradientRows&, std::span<float>) const {}
};
struct Lazy {
    static constexpr std::string_view name = "lazy";
};

}  // namespace

static_assert(AveragingPolicy<ConcatMean, Host>);
static_assert(!AveragingPolicy<Nameless, Host> && AveragesRows<Nameless, Host>);
static_assert(!AveragingPolicy<Lazy, Host> && HasPolicyName<Lazy>);
static_assert(!AveragingPolicy<NcclAllReduce, Host>);
static_assert(averaging_diagnostic<ConcatMean, Host>().empty());
static_assert(!averaging_diagnostic<Nameless, Host>().empty() && !averaging_diagnostic<Lazy, Host>().empty());
static_assert(!averaging_diagnostic<NcclAllReduce, Host>().empty());

TEST_CASE("the mean is weighted by samples and has the same bits for any number of threads") {
    constexpr std::size_t columns = 10'001;
    std::vector<std::vector<float>> gradients(3, std::vector<float>(columns));
    std::vector<const float*> rows;
    for (std::size_t r = 0; r < 3; ++r) {
        initialize(gradients[r], normal(1.0), 1, 1, 8, static_cast<std::uint32_t>(r));
        rows.push_back(gradients[r].data());
    }
    const std::int64_t samples[] = {128, 128, 40};
    const GradientRows stacked{.rows = rows, .samples = samples, .total_samples = 296, .columns = columns};
    std::vector<float> first;
    for (const int threads : {1, 2, 3}) {
        HostContext context(0, {.threads = threads});
        std::vector<float> mean(columns, -1.0F);
        ConcatMean{}.average(context, stacked, mean);
        if (threads == 1) {
            first = mean;
            for (std::size_t i = 0; i < columns; ++i) {
                const double exact =
                    (128.0 * static_cast<double>(gradients[0][i]) + 128.0 * static_cast<double>(gradients[1][i]) +
                     40.0 * static_cast<double>(gradients[2][i])) /
                    296.0;
                REQUIRE(static_cast<double>(mean[i]) == doctest::Approx(exact).epsilon(1e-5).scale(1.0));
            }
        }
        CHECK(mean == first);
    }
}
