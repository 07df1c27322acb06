// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/moving_average.hpp>

#include "../test.hpp"

#include <cupola/ops/host/element_update.hpp>

#include "golden/golden.hpp"
#include "stepping.hpp"
#include "throws_with.hpp"

TEST_CASE("the decay grows as the tutorial's, min(0.9999, (1 + n) / (10 + n))") {
    const MovingAverage average{.decay = 0.9999};
    CHECK(average.decay_at(0) == 0.1);
    CHECK(average.decay_at(1) == doctest::Approx(0.1818).epsilon(1e-4 / 0.1818));
    CHECK(average.decay_at(10) == 0.55);
    CHECK(average.decay_at(100) == doctest::Approx(0.9182).epsilon(1e-4));
    CHECK(average.decay_at(1'000) == doctest::Approx(0.99109).epsilon(1e-5));
    CHECK(average.decay_at(10'000) == doctest::Approx(0.99910).epsilon(1e-5));
    CHECK(average.decay_at(89'989) < 0.9999);
    CHECK(average.decay_at(89'990) == 0.9999);
    CHECK(average.decay_at(100'000'000'000) == 0.9999);
    CHECK(MovingAverage{.decay = 0.9999, .warm_up = false}.decay_at(1) == 0.9999);
}

TEST_CASE("twenty updates are TensorFlow's") {
    HostContext context(0, {.threads = 1});
    REQUIRE(golden::cases("moving_average").size() == 2);
    for (const golden::Case& golden : golden::cases("moving_average")) {
        CAPTURE(golden.name());
        const MovingAverage rule{.decay = golden.number<double>("decay")};
        const auto initial = golden.list("initial"), values = golden.list("values"), trace = golden.list("trace");
        std::vector<float> average(initial.begin(), initial.end());
        REQUIRE(values.size() == 20 * average.size());
        for (std::size_t place = 0; place < values.size(); place += average.size()) {
            CAPTURE(place);
            rule.update<Host>(context, average.data(), values.data() + place, std::ssize(average),
                              static_cast<std::int64_t>(place / average.size()) + 1);
            CHECK(stepping::difference(average, trace.subspan(place, average.size())) < 1e-6);
        }
    }
}

TEST_CASE("spans of any size are averaged exactly to their end, with the same bits for any team") {
    for (const std::int64_t size : {1, 17, 4095, 4096, 9001}) {
        CAPTURE(size);
        std::vector<float> results[2];
        for (const int threads : {1, 2}) {
            HostContext context(0, {.threads = threads});
            auto& average = results[threads - 1] = std::vector<float>(static_cast<std::size_t>(size) + 1, 1.0F);
            const std::vector<float> w(static_cast<std::size_t>(size) + 1, 3.0F);
            MovingAverage{.decay = 0.75, .warm_up = false}.update<Host>(context, average.data(), w.data(), size, 1);
            for (std::int64_t i = 0; i < size; ++i) CHECK(average[static_cast<std::size_t>(i)] == 1.5F);
            CHECK(average.back() == 1.0F);
        }
        CHECK(results[0] == results[1]);
    }
}

TEST_CASE("averages are off by default, are described, and reject an invalid decay") {
    CHECK_FALSE(MovingAverage{}.on());
    CHECK(MovingAverage{.decay = 0.9}.on());
    CHECK(MovingAverage{}.description() == "no moving averages");
    CHECK(MovingAverage{.decay = 0.9999}.description() == "moving averages, decay 0.9999 after a warm-up");
    CHECK(MovingAverage{.decay = 0.99, .warm_up = false}.description() == "moving averages, decay 0.99");
    const auto refusal = [](double decay) {
        return message_of<InvalidArgument>([&] { MovingAverage{.decay = decay}.check(); });
    };
    CHECK(refusal(1) == "the decay of the moving averages must be at least 0 and less than 1, not 1");
    CHECK(refusal(-0.5) == "the decay of the moving averages must be at least 0 and less than 1, not -0.5");
    CHECK(refusal(std::numeric_limits<double>::quiet_NaN()) ==
          "the decay of the moving averages must be at least 0 and less than 1, not nan");
    CHECK(refusal(0.9999) == "(no exception)");
}
