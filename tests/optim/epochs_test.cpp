// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/epochs.hpp>

#include "../test.hpp"

#include "golden/golden.hpp"
#include "throws_with.hpp"

namespace {

constexpr std::int64_t images = 50'000, batch = 128;

}  // namespace

TEST_CASE("350 epochs of images seen are the tutorial's decay steps, by the number of replicas") {
    constexpr struct {
        int replicas;
        std::int64_t steps;
    } rows[] = {{1, 136'718}, {2, 68'359}, {3, 45'572}, {4, 34'179}, {8, 17'089}};
    for (const auto& row : rows) {
        const int replicas = row.replicas;
        const std::int64_t steps = row.steps;
        CAPTURE(replicas);
        CHECK(steps_in_epochs(350, images, batch * replicas) == steps);
        const Schedule seen = epochs_decay(0.1, images, batch * replicas);
        CHECK(seen(steps - 1) == 0.1);
        CHECK(seen(steps) == doctest::Approx(0.01).epsilon(1e-12));
        CHECK(seen(2 * steps) == doctest::Approx(0.001).epsilon(1e-12));
        const Schedule historic = historic_epochs_decay(0.1, images, batch, replicas);
        CHECK(historic(136'717) == 0.1);
        CHECK(historic(136'718) == doctest::Approx(0.01).epsilon(1e-12));
    }
}

TEST_CASE("a number of steps just below a whole number is rounded to it") {
    CHECK(steps_in_epochs(0.29, 50'000, 100) == 145);
    CHECK(steps_in_epochs(2.3, 100, 1) == 230);
    CHECK(steps_in_epochs(8.2, 45'000, 1) == 369'000);
    // Every number of epochs with two decimals, against whole numbers.
    for (std::int64_t hundredths = 1; hundredths <= 100'000; hundredths += 7) {
        const double epochs = static_cast<double>(hundredths) / 100;
        CAPTURE(epochs);
        REQUIRE(steps_in_epochs(epochs, 45'000, 1) == hundredths * 450);
        REQUIRE(steps_in_epochs(epochs, 50'000, 100) == hundredths * 5);
        REQUIRE(steps_in_epochs(epochs, 1'281'167, 96) == hundredths * 1'281'167 / 9600);
    }
    // A value that is further below is not rounded up.
    CHECK(steps_in_epochs(0.2899999999999, 50'000, 100) == 144);
    CHECK(steps_in_epochs(1 - 1e-15, 1'000'000, 1) == 999'999);
}

TEST_CASE("the rates are the golden ones of the tutorial") {
    std::size_t checked = 0;
    for (const golden::Case& golden : golden::cases("schedules")) {
        if (!golden.name().starts_with("tutorial,")) continue;
        CAPTURE(golden.name());
        const int replicas = golden.name()[10] - '0';
        const Schedule schedule = epochs_decay(0.1, images, batch * replicas);
        const auto steps = golden.list<std::int64_t>("steps");
        const auto rates = golden.list<double>("rates");
        for (std::size_t i = 0; i < steps.size(); ++i) {
            CHECK(schedule(steps[i]) == doctest::Approx(rates[i]).epsilon(1e-12));
        }
        ++checked;
    }
    CHECK(checked == 5);
}

TEST_CASE("ResNet's rates change after 82, 123 and 300 epochs of 351 steps") {
    const Schedule schedule = resnet_epochs(0.1, 128);
    CHECK(schedule(28'781) == 0.1);
    CHECK(schedule(28'782) == doctest::Approx(0.01));
    CHECK(schedule(43'172) == doctest::Approx(0.01));
    CHECK(schedule(43'173) == doctest::Approx(0.001));
    CHECK(schedule(105'299) == doctest::Approx(0.001));
    CHECK(schedule(105'300) == doctest::Approx(0.0002));
    CHECK(resnet_epochs(0.1, 256)(82 * 175) == doctest::Approx(0.01));  // twice the batch, half the steps
    CHECK(resnet_epochs(0.1, 256)(82 * 175 - 1) == 0.1);
}

TEST_CASE("the description states the length of an epoch and the batch that it counts") {
    CHECK(epochs_decay(0.1, images, 256).description() ==
          "0.1, times 0.1 every 68359 steps: 350 epochs of 50000 images seen, 256 per step");
    CHECK(
        historic_epochs_decay(0.1, images, batch, 2).description() ==
        "0.1, times 0.1 every 136718 steps: 350 epochs by one replica's batch of 128, which is 700 epochs of 50000 images seen by 2 "
        "replicas");
    CHECK(
        resnet_epochs(0.1, 128).description() ==
        "0.1, 0.01 from step 28782, 0.001 from step 43173, 0.0002 from step 105300: epochs of 351 steps, 45000 images, 128 per step");
}

TEST_CASE("epochs without steps are rejected") {
    CHECK(message_of<InvalidArgument>([] { return epochs_decay(0.1, 0, 128); }) ==
          "an epoch of 0 images in batches of 128 has no steps");
    CHECK(message_of<InvalidArgument>([] { return epochs_decay(0.1, 100, 1000, 1); }) ==
          "1 epochs of 100 images in batches of 1000 are 0.1 steps, and a schedule needs 1 or more");
    CHECK(message_of<InvalidArgument>([] { return epochs_decay(-0.1, 100, 10); }) ==
          "a learning rate must be at least 0, not -0.1");
    CHECK(message_of<InvalidArgument>([] { return historic_epochs_decay(0.1, 100, 10, 0); }) ==
          "a schedule must be for 1 or more replicas, not 0");
    CHECK(message_of<InvalidArgument>([] {
              return piecewise_epochs(100, 101, {1}, {1, 2});
          }) == "an epoch of 100 images in batches of 101 has no steps");
    CHECK(message_of<InvalidArgument>([] {
              return piecewise_epochs(100, 10, {2, 1}, {1, 2, 3});
          }) == "the boundaries of a piecewise schedule must increase; 10 follows 20");
    CHECK(message_of<InvalidArgument>([] {
              return piecewise_epochs(100, 10, {1, std::int64_t{1} << 62}, {1, 2, 3});
          }) ==
          "a schedule cannot change at epoch 4611686018427387904, of 10 steps each: that step has no place in 64 bits");
}
