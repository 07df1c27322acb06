// SPDX-License-Identifier: Apache-2.0
//
// Every loss against PyTorch's figures: its value and its gradient.
#include "../test.hpp"

#include <cupola/losses.hpp>

#include "../devices.hpp"
#include "../golden/golden.hpp"
#include "loss_run.hpp"

using loss_run::Floats;

namespace {

constexpr std::int64_t classes = 5;

Floats list(std::span<const float> values) { return {values.begin(), values.end()}; }

std::array<float, 5> weights_of(const golden::Case& c) {
    std::array<float, 5> weights{1, 1, 1, 1, 1};
    if (c.has("weights")) std::ranges::copy(c.list("weights"), weights.begin());
    return weights;
}

template <class D, class Loss>
void check(const golden::Case& c, const Loss& loss) {
    const std::vector<std::int64_t> extents = c.extents("outputs");
    const Shape output = extents[1] * extents[2] == 1 ? Shape{extents[3]} : Shape{extents[1], extents[2], extents[3]};
    std::vector<typename Loss::Target> targets;
    if constexpr (std::same_as<typename Loss::Target, float>) {
        targets = list(c.list("targets"));
    } else {
        const auto labels = c.list<std::int32_t>("labels");
        targets.assign(labels.begin(), labels.end());
    }
    for (const int threads : thread_counts<D>()) {
        const auto outcome = loss_run::run<D>(loss, output, list(c.list("outputs")), targets, threads);
        CHECK(outcome.result.sum / outcome.result.weight ==
              doctest::Approx(c.number<double>("loss")).epsilon(reference::tolerance));
        // A loss writes the gradient of the sum over the number of samples.
        Floats gradient = outcome.gradient;
        const auto per_weight = static_cast<float>(static_cast<double>(extents[0]) / outcome.result.weight);
        for (float& value : gradient) value *= per_weight;
        CHECK(reference::distance(gradient, list(c.list("gradient"))) < reference::tolerance);
    }
}

}  // namespace

TYPED_TEST_CASE("losses give PyTorch's values and gradients", D, Devices) {
    for (const golden::Case& c : golden::cases("losses")) {
        INFO(c.name());
        const std::string_view kind = c.text("kind");
        const float label_smoothing = c.number("label_smoothing");
        std::optional<std::int32_t> ignored;
        if (c.has("ignored")) ignored = static_cast<std::int32_t>(c.number<std::int64_t>("ignored"));
        if (kind == MeanSquaredError::name) {
            check<D>(c, MeanSquaredError{});
        } else if (kind == MeanAbsoluteError::name) {
            check<D>(c, MeanAbsoluteError{});
        } else if (kind == "huber_1") {
            check<D>(c, Huber<>{});
        } else if (kind == "huber_2.5") {
            check<D>(c, Huber<2.5>{});
        } else if (kind == BinaryCrossEntropy::name) {
            check<D>(c, BinaryCrossEntropy{c.list("weights")[0]});
        } else if (kind == WeightedBinaryCrossEntropy<classes>::name) {
            check<D>(c, WeightedBinaryCrossEntropy<classes>{weights_of(c)});
        } else if (kind == CrossEntropy<classes>::name) {
            check<D>(c, CrossEntropy<classes>{label_smoothing});
        } else if (kind == WeightedCrossEntropy<classes>::name) {
            check<D>(c, WeightedCrossEntropy<classes>{label_smoothing, weights_of(c), ignored});
        } else {
            REQUIRE(kind == SoftCrossEntropy<classes>::name);
            check<D>(c, SoftCrossEntropy<classes>{label_smoothing, weights_of(c)});
        }
    }
}
