// SPDX-License-Identifier: Apache-2.0
//
// The end of a step under a loss scale that changes, against PyTorch's GradScaler written as a plain loop.
#include <cupola/ops/training_step.hpp>

#include "../test.hpp"

namespace {

/// PyTorch's _amp_update_scale_ on its three numbers.
struct GradScaler {
    float scale;
    int growth_tracker = 0;
    double growth, backoff;
    int interval;

    void update(bool found_inf) {
        if (found_inf) {
            scale = static_cast<float>(static_cast<double>(scale) * backoff);
            growth_tracker = 0;
            return;
        }
        const int successful = growth_tracker + 1;
        if (successful == interval) {
            const auto larger = static_cast<float>(static_cast<double>(scale) * growth);
            if (larger <= std::numeric_limits<float>::max()) scale = larger;
            growth_tracker = 0;
        } else {
            growth_tracker = successful;
        }
    }
};

struct Device {
    LossScaleState state{};
    std::int32_t healthy = 1, failed = 0;
    float divisor = 1;
    std::vector<LossReport> reports{impl::no_loss, impl::no_loss};
    std::vector<IdReport> ids{impl::no_bad_id};
    std::array<unsigned long long, 3> not_finite{};

    void end_step(const LossScale& rule, bool finite) {
        if (!finite) healthy = 0;
        ops::LossScaleUpdate{.rule = rule,
                             .state = &state,
                             .healthy = &healthy,
                             .failed = &failed,
                             .divisor = &divisor,
                             .reports = reports.data(),
                             .report_count = static_cast<std::int64_t>(reports.size()),
                             .ids = ids.data(),
                             .id_count = static_cast<std::int64_t>(ids.size()),
                             .not_finite = not_finite.data(),
                             .replicas = static_cast<int>(not_finite.size())}(0);
    }
};

/// The steps whose gradients are finite, by a fixed rule with runs of different lengths.
bool is_finite(int step) { return step % 37 != 11 && step % 41 != 12 && step % 83 > 2; }

}  // namespace

TEST_CASE("the scale is that of PyTorch's GradScaler") {
    for (const LossScale& rule : {LossScale{.initial = 0x1p40, .interval = 5},
                                  LossScale{.initial = 0x1p60, .growth = 3, .backoff = 0.3, .interval = 7},
                                  LossScale{.initial = 0x1p126, .interval = 1}}) {
        Device device{.state = {.scale = static_cast<float>(rule.initial)}};
        GradScaler expected{.scale = static_cast<float>(rule.initial),
                            .growth = rule.growth,
                            .backoff = rule.backoff,
                            .interval = rule.interval};
        std::int64_t skipped = 0;
        float largest = 0, smallest = std::numeric_limits<float>::max();
        for (int step = 0; step < 500; ++step) {
            const bool finite = is_finite(step);
            device.end_step(rule, finite);
            expected.update(!finite);
            if (!finite) ++skipped;
            REQUIRE(device.state == LossScaleState{expected.scale, expected.growth_tracker, skipped});
            REQUIRE(device.healthy == 1);
            REQUIRE(device.failed == 0);
            largest = std::max(largest, device.state.scale);
            smallest = std::min(smallest, device.state.scale);
        }
        CHECK(skipped > 30);
        CHECK(largest > smallest);
    }
}

TEST_CASE("a step that is skipped clears where the gradients were not finite, and others leave it") {
    Device device{.state = {.scale = 8}, .not_finite = {5, 0, 7}};
    device.end_step({.initial = 8}, true);
    CHECK(device.not_finite == std::array<unsigned long long, 3>{5, 0, 7});
    device.end_step({.initial = 8}, false);
    CHECK(device.not_finite == std::array<unsigned long long, 3>{});
    CHECK(device.state == LossScaleState{4, 0, 1});
}

TEST_CASE("a step fails that would make the scale less than its minimum, and nothing changes any more") {
    const LossScale rule{.initial = 8, .interval = 1, .minimum = 3};
    Device device{.state = {.scale = 8}};
    device.end_step(rule, false);
    CHECK(device.state == LossScaleState{4, 0, 1});
    device.not_finite[1] = 9;
    device.end_step(rule, false);
    for (int later = 0; later < 3; ++later) {
        CHECK(device.state == LossScaleState{4, 0, 1});
        CHECK(device.healthy == 0);
        CHECK(device.failed == 1);
        CHECK(device.not_finite[1] == 9);
        device.end_step(rule, later == 0);
    }
}

TEST_CASE("a gradient that is not finite because of the step's input fails the step at once") {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
    const auto failed = [](auto&& change) {
        Device device{.state = {.scale = 8, .good_steps = 3}};
        change(device);
        device.end_step({.initial = 8}, false);
        CHECK(device.state == (device.failed != 0 ? LossScaleState{8, 3, 0} : LossScaleState{4, 0, 1}));
        CHECK(device.healthy == 1 - device.failed);
        return device.failed != 0;
    };
    CHECK(!failed([](Device&) {}));
    CHECK(failed([](Device& device) { device.reports[1].bad_target = 0; }));
    CHECK(failed([](Device& device) { device.reports[0].weight = -1; }));
    CHECK(failed([](Device& device) { device.ids[0].place = 2; }));
    for (const float divisor : {0.0F, -1.0F, nan, infinite})
        CHECK(failed([&](Device& device) { device.divisor = divisor; }));
    CHECK(!failed([](Device& device) {
        device.reports[1].sum = static_cast<double>(nan);  // an overflow of the forward pass
        device.reports[1].weight = 3;
    }));
}
