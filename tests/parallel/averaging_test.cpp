// SPDX-License-Identifier: Apache-2.0
//
// A policy that is a function of a block of columns averages on every device.
#include <cupola/parallel/averaging.hpp>
#include "../devices.hpp"
#include "../ops/operation_run.hpp"
#include "../reference/compare.hpp"
#include "../test.hpp"

using operation_run::Guarded;
using reference::Floats;

namespace {

/// The middle of three rows.
struct MedianOfThree {
    static constexpr std::string_view name = "median of three";

    template <class Context>
        requires AveragesColumns<Context>
    void average(Context& context, const GradientRows& gradients, std::span<float> mean) const {
        average_columns(context, name, gradients, mean,
                        [](const GradientRows& rows, float* to, std::int64_t begin, std::int64_t end) {
                            for (std::int64_t i = begin; i < end; ++i) {
                                const float a = rows.rows[0][i], b = rows.rows[1][i], c = rows.rows[2][i];
                                to[i] = std::max(std::min(a, b), std::min(std::max(a, b), c));
                            }
                        });
    }
};

struct NoContext {};
static_assert(!AveragesColumns<NoContext>);

}  // namespace

TYPED_TEST_CASE("a function of a block of columns is a policy of every device", D, Devices) {
    static_assert(AveragingPolicy<MedianOfThree, D>);
    for (const std::int64_t columns : {1, 4096, 10'001}) {
        for (const int threads : thread_counts<D>()) {
            CAPTURES(columns, threads);
            const CaseContext<D> of_case(threads);
            typename D::Context& context = of_case.get();
            reference::Random random(7);
            const std::vector<Floats> values{random.normal(columns), random.normal(columns), random.normal(columns)};
            Guarded<D> first(context, values[0]), second(context, values[1]), third(context, values[2]),
                mean(context, values[0].size() * sizeof(float));
            const float* const rows[] = {first.data(), second.data(), third.data()};
            const std::int64_t samples[] = {4, 4, 4};
            MedianOfThree{}.average(context,
                                    {.rows = rows, .samples = samples, .total_samples = 12, .columns = columns},
                                    {mean.data(), values[0].size()});
            const Floats result = mean.read();
            CHECK(mean.guards_intact());
            for (std::size_t i = 0; i < result.size(); ++i) {
                Floats sorted{values[0][i], values[1][i], values[2][i]};
                std::sort(sorted.begin(), sorted.end());
                REQUIRE(result[i] == sorted[1]);
            }
        }
    }
}
