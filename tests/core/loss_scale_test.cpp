// SPDX-License-Identifier: Apache-2.0
//
// The settings of a loss scale. What a scale does to its state is tested in tests/ops/loss_scale_test.cpp, and what it does to
// a training in tests/parallel/dynamic_loss_scale_test.cpp.
#include <cupola/core/loss_scale.hpp>

#include "../test.hpp"

#include <cupola/core/element_type.hpp>

namespace {

struct Constant {
    static constexpr float loss_scale = 512;
};
struct Changing {
    static constexpr LossScale loss_scale{.initial = 8};
};

static_assert(loss_scale_of<Float32>() == LossScale::constant(1) &&
              loss_scale_of<MixedBFloat16>() == LossScale::constant(1));
static_assert(loss_scale_of<Constant>() == LossScale::constant(512) && !loss_scale_of<Constant>().dynamic);
static_assert(loss_scale_of<Changing>().initial == 8 && loss_scale_of<Changing>().dynamic);
// PyTorch's GradScaler.
static_assert(loss_scale_of<MixedFloat16>() ==
              LossScale{
                  .initial = 65536, .dynamic = true, .growth = 2, .backoff = 0.5, .interval = 2000, .minimum = 1});

constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();

bool refused(const LossScale& scale, std::string_view part) {
    const char* const problem = scale.problem();
    return problem != nullptr && std::string_view(problem).find(part) != std::string_view::npos;
}

}  // namespace

TEST_CASE("values that make no loss scale are refused") {
    CHECK(LossScale{}.problem() == nullptr);
    CHECK(LossScale::constant(1024).problem() == nullptr);
    CHECK(LossScale{.initial = 0x1p127, .growth = 1.5, .backoff = 0.9, .interval = 1, .minimum = 0x1p127}.problem() ==
          nullptr);
    for (const double initial : {0.0, -1.0, 0x1p-127, 0x1p128, infinite, nan}) {
        CAPTURE(initial);
        CHECK(refused({.initial = initial}, "from 2^-126 to 2^127"));
        CHECK(refused(LossScale::constant(initial), "from 2^-126 to 2^127"));
    }
    for (const double growth : {1.0, 0.5, infinite, nan}) CHECK(refused({.growth = growth}, "growth"));
    for (const double backoff : {1.0, 2.0, 0.0, -0.5, nan}) CHECK(refused({.backoff = backoff}, "backoff"));
    for (const int interval : {0, -2000}) CHECK(refused({.interval = interval}, "1 or more steps"));
    for (const double minimum : {0.0, -1.0, 65537.0, nan}) CHECK(refused({.minimum = minimum}, "minimum"));
    // The other values of a constant scale are not used.
    CHECK(LossScale{.dynamic = false, .growth = 0, .interval = 0}.problem() == nullptr);
}

TEST_CASE("a description has every value that counts") {
    CHECK(description_of(LossScale{}) ==
          "dynamic, from 65536, at least 1, times 2 after 2000 steps and times 0.5 after a skipped one");
    CHECK(description_of(LossScale{.initial = 3.5, .growth = 1.25, .backoff = 0.75, .interval = 1, .minimum = 0.5}) ==
          "dynamic, from 3.5, at least 0.5, times 1.25 after 1 step and times 0.75 after a skipped one");
    CHECK(description_of(LossScale::constant(1024)) == "constant, 1024");
}
