// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/loss/cross_entropy.hpp, cupola/loss/weight_decay.hpp
#include <cupola/loss/loss_collection.hpp>

#include "../test.hpp"

#include <cupola/models/tutorial_augmentation.hpp>

#include "tutorial.hpp"

static_assert(DataLoss<CrossEntropy<10>, Host> && !DataLoss<int, Host>);
static_assert(Regularizer<WeightDecay<0.1, "a">> && !Regularizer<CrossEntropy<10>>);
static_assert(std::same_as<CollectionOf<CrossEntropy<10>>, LossCollection<CrossEntropy<10>>>);
static_assert(tutorial::Loss::diagnostic_on<Host>(tutorial::Net::layers).empty());
static_assert(!LossCollection<CrossEntropy<11>>::diagnostic_on<Host>(tutorial::Net::layers).empty());
static_assert(!tutorial::Loss::diagnostic_on<Host>(tutorial::SmallNet::layers).empty());
static_assert(!tutorial::Loss::weighted && tutorial::Loss::loss_count == 1);
static_assert(tutorial::Loss::losses[0].name == "cross_entropy" && tutorial::Loss::losses[0].output.empty());

TEST_CASE("on real images the first loss is ln 10 and the decay of the tutorial's initial weights") {
    const auto& images = tutorial::sample().train;
    Prefetch source(TrainingBatches(images, TutorialAugmentation{}, {.batch_size = 128, .replicas = 2, .seed = 1}));
    tutorial::Training<> training({.replicas = 2, .batch_size = 128, .seed = 1});
    const StepReport& report = training.step(source);
    CHECK(report.loss == doctest::Approx(4.68).epsilon(0.03 / 4.68));
    for (const ReplicaReport& replica : report.replicas) {
        REQUIRE(replica.parts.size() == 3);
        CHECK(replica.parts[0].name == "cross_entropy");
        CHECK(replica.parts[1].name == "weight_decay/local3");
        CHECK(replica.parts[2].name == "weight_decay/local4");
        CHECK(replica.parts[1].value + replica.parts[2].value == doctest::Approx(2.373).epsilon(0.02 / 2.373));
        CHECK(replica.parts[0].value + replica.parts[1].value + replica.parts[2].value ==
              doctest::Approx(replica.total));
    }
    CHECK(report.loss == doctest::Approx((report.replicas[0].total + report.replicas[1].total) / 2));
}

TEST_CASE("label smoothing outside [0, 1) is rejected") {
    CrossEntropy<10> loss{.label_smoothing = 1.0F};
    CHECK_THROWS_WITH_AS((void)loss.operation<Host>(), "label smoothing must be in [0, 1), not 1", InvalidArgument);
}
