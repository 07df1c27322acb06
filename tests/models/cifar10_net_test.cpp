// SPDX-License-Identifier: Apache-2.0
//
// The tutorial's network: its extents, its size, its parameters' names and initial values, and what its loss regularises.
#include <cupola/models/cifar10_net.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

static_assert(Cifar10Net::input == Extents<24, 24, 3>{} && Cifar10Net::output == Extents<10>{});
static_assert(Cifar10Net::parameter_count == 1'068'298);
static_assert(Cifar10NetBf16::parameter_count == Cifar10Net::parameter_count);
static_assert(std::is_same_v<Cifar10NetBf16::Precision, MixedBFloat16>);

namespace {

struct Moments {
    double mean = 0, deviation = 0;
};

Moments moments_of(const std::vector<float>& arena, std::int64_t offset, std::int64_t size) {
    Moments result;
    for (std::int64_t i = 0; i < size; ++i)
        result.mean += static_cast<double>(arena[static_cast<std::size_t>(offset + i)]);
    result.mean /= static_cast<double>(size);
    for (std::int64_t i = 0; i < size; ++i) {
        const double away = static_cast<double>(arena[static_cast<std::size_t>(offset + i)]) - result.mean;
        result.deviation += away * away;
    }
    result.deviation = std::sqrt(result.deviation / static_cast<double>(size));
    return result;
}

}  // namespace

TEST_CASE(
    "weights are initialised from truncated normal numbers with the tutorial's deviations, biases with 0 or 0.1") {
    DataParallel<Cifar10Net, Cifar10Loss, Sgd, ConcatMean, Host> training({.batch_size = 1, .seed = 3});
    const std::vector<float> arena = training.parameters();
    struct Expected {
        const char* layer;
        double deviation, bias;
    };
    std::size_t found = 0;
    for (const Expected& expected :
         {Expected{"conv1", 0.05, 0}, Expected{"conv2", 0.05, 0.1}, Expected{"local3", 0.04, 0.1},
          Expected{"local4", 0.04, 0.1}, Expected{"softmax_linear", 1.0 / 192, 0}}) {
        for (const LayerInfo& layer : Cifar10Net::layers) {
            if (layer.name != expected.layer) continue;
            CAPTURE(layer.name);
            ++found;
            REQUIRE(layer.parameters.count == 2);
            // A normal distribution that is cut at twice its deviation has 0.880 of that deviation.
            const Moments weights = moments_of(arena, layer.offsets[0], layer.parameters.list[0].shape.size());
            CHECK(weights.deviation == doctest::Approx(0.880 * expected.deviation).epsilon(0.03));
            CHECK(std::abs(weights.mean) < 0.06 * expected.deviation);
            const Moments biases = moments_of(arena, layer.offsets[1], layer.parameters.list[1].shape.size());
            CHECK(biases.mean == doctest::Approx(expected.bias));
            CHECK(biases.deviation == doctest::Approx(0));
        }
    }
    CHECK(found == 5);
}

TEST_CASE("the loss regularises the weights of local3 and local4, and no others") {
    std::vector<std::string> names;
    for (const auto& parameter : Cifar10Loss::regularized(Cifar10Net::layers)) {
        CHECK(parameter.coefficient == 0.004);
        names.push_back(parameter.name);
    }
    CHECK(names == std::vector<std::string>{"weight_decay/local3", "weight_decay/local4"});
}
