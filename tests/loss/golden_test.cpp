// SPDX-License-Identifier: Apache-2.0
//
// Every loss against PyTorch's figures: its value and its gradient.
#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <cupola/losses.hpp>

#include "../devices.hpp"
#include "../golden/losses.hpp"
#include "loss_run.hpp"

using namespace cupola;
using loss_run::Floats;

namespace {

constexpr std::int64_t classes = 5;

std::array<float, 5> weights_of(const golden::LossCase& c) {
    std::array<float, 5> weights{1, 1, 1, 1, 1};
    if (!c.weights.empty()) std::copy(c.weights.begin(), c.weights.end(), weights.begin());
    return weights;
}

template <class D, class Loss>
void check(const golden::LossCase& c, const Loss& loss) {
    const auto extent = [](std::size_t size) { return static_cast<std::int64_t>(size); };
    const Shape output = c.height * c.width == 1 ? Shape{extent(c.channels)}
                                                 : Shape{extent(c.height), extent(c.width), extent(c.channels)};
    std::vector<typename Loss::Target> targets;
    if constexpr (std::same_as<typename Loss::Target, float>) {
        targets.assign(c.targets.begin(), c.targets.end());
    } else {
        targets.assign(c.labels.begin(), c.labels.end());
    }
    for (const int threads : thread_counts<D>()) {
        const auto outcome =
            loss_run::run<D>(loss, output, Floats(c.outputs.begin(), c.outputs.end()), targets, threads);
        CHECK(outcome.result.sum / outcome.result.weight == doctest::Approx(c.loss).epsilon(reference::tolerance));
        // A loss writes the gradient of the sum over the number of samples.
        Floats gradient = outcome.gradient;
        const auto per_weight = static_cast<float>(static_cast<double>(c.batch) / outcome.result.weight);
        for (float& value : gradient) value *= per_weight;
        CHECK(reference::distance(gradient, Floats(c.gradient.begin(), c.gradient.end())) < reference::tolerance);
    }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("losses give PyTorch's values and gradients", D, golden_losses) {
    for (const golden::LossCase& c : golden::losses_cases) {
        INFO(std::string(c.name));
        std::optional<std::int32_t> ignored;
        if (c.ignores) ignored = c.ignored_label;
        if (c.kind == MeanSquaredError::name) {
            check<D>(c, MeanSquaredError{});
        } else if (c.kind == MeanAbsoluteError::name) {
            check<D>(c, MeanAbsoluteError{});
        } else if (c.kind == "huber_1") {
            check<D>(c, Huber<>{});
        } else if (c.kind == "huber_2.5") {
            check<D>(c, Huber<2.5>{});
        } else if (c.kind == BinaryCrossEntropy::name) {
            check<D>(c, BinaryCrossEntropy{c.weights[0]});
        } else if (c.kind == WeightedBinaryCrossEntropy<classes>::name) {
            check<D>(c, WeightedBinaryCrossEntropy<classes>{weights_of(c)});
        } else if (c.kind == CrossEntropy<classes>::name) {
            check<D>(c, CrossEntropy<classes>{c.label_smoothing});
        } else if (c.kind == WeightedCrossEntropy<classes>::name) {
            check<D>(c, WeightedCrossEntropy<classes>{c.label_smoothing, weights_of(c), ignored});
        } else {
            REQUIRE(c.kind == SoftCrossEntropy<classes>::name);
            check<D>(c, SoftCrossEntropy<classes>{c.label_smoothing, weights_of(c)});
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(golden_losses, Devices);
