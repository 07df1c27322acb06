// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/parallel/memory_report.hpp, cupola/parallel/training_options.hpp
#include <cupola/parallel/data_parallel.hpp>

#include "../test.hpp"

#include <cupola/data/augmentation.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "throws_with.hpp"
#include "tutorial.hpp"

using Training = tutorial::SmallTraining<>;

namespace {

struct Images {
    std::vector<float> pixels = std::vector<float>(8 * 24 * 24 * 3);
    std::vector<std::int32_t> labels{0, 1, 2, 3, 4, 5, 6, 7};
    [[gnu::noinline]] Images() { initialize(pixels, normal(1.0), 1, 1, 3, 0); }
    [[nodiscard]] BatchView view(std::int64_t first, std::int64_t size) const {
        return {pixels.data() + first * 24 * 24 * 3, labels.data() + first, size, Shape{24, 24, 3}};
    }
};

/// Wrong on one device from one step on, as a broken processor would be.
struct Faulty : Sgd {
    void update(const Update<Host>& u) const {
        update_parameters(static_cast<const Sgd&>(*this), u);
        if (u.context.ordinal() == 1 && u.step == 4) u.parameters[7] += 1e-7F;
    }
};

/// Makes a parameter infinite in step 0: the bias of local3.
struct Ruining : Sgd {
    void update(const Update<Host>& u) const {
        update_parameters(static_cast<const Sgd&>(*this), u);
        if (u.step == 0)
            u.parameters[tutorial::SmallNet::layers[9].offsets[1]] = std::numeric_limits<float>::infinity();
    }
};

/// Fails on one device in step 1, when another may have made its update.
struct BreakingOff : Sgd {
    void update(const Update<Host>& u) const {
        if (u.context.ordinal() == 1 && u.step == 1) throw DeviceError("device 1 is gone");
        update_parameters(static_cast<const Sgd&>(*this), u);
    }
};

}  // namespace

TEST_CASE("invalid training options are rejected with their numbers") {
    const auto message = [](const Training::Options& options) {
        return message_of<InvalidArgument>([&] { Training training(options); });
    };
    CHECK(message({.replicas = 0}) == "a training must have 1 to 1048576 replicas, not 0");
    CHECK(message({.replicas = -1}) == "a training must have 1 to 1048576 replicas, not -1");
    CHECK(message({.replicas = 2, .devices = 3}) == "a training of 2 replicas must have 1 to 2 devices, not 3");
    CHECK(message({.batch_size = 0}) == "a batch must have at least 1 sample, not 0");
    CHECK(message({.batch_size = std::numeric_limits<std::int64_t>::max()}) ==
          "a batch can have at most 68719476736 samples, not 9223372036854775807");
    CHECK(message({.batch_size = 8, .evaluation_batch_size = 1LL << 40}) ==
          "a batch can have at most 68719476736 samples, not 1099511627776");
    CHECK(message({.batch_size = 8, .other_batch_sizes = {9}}) ==
          "the other batch sizes must be 1 to batch_size, 8, not 9");
    CHECK(message({.device = {.threads = 0}}) == "a host device must have 1 to 4096 threads, not 0");
    CHECK(message({.initializers = {{"conv9.weight", constant(0)}}}) ==
          "there is an initialiser for conv9.weight, which the network does not have");
    CHECK(message({.initializers = {{"conv1.weight", normal(-1)}}}) ==
          "the parameter conv1.weight has an initialiser with a deviation or a limit below 0");
    CHECK(message({.initializers = {{"conv1.bias", constant(NAN)}}}) ==
          "the parameter conv1.bias has an initialiser with a value that is not a finite float");
    CHECK(message({.initializers = {{"conv1.bias", constant(1)}, {"conv1.bias", constant(2)}}}) ==
          "there are two initialisers for conv1.bias");
}

TEST_CASE("more replicas than fit in memory are rejected before any allocation, with the needed memory") {
    const std::string message = message_of<OutOfMemory>([] { tutorial::Training<> training({.replicas = 1 << 20}); });
    CHECK(contains(message, "1048576 replicas on 1 device do not fit"));
    CHECK(contains(message, "gradients of 1048576 replicas"));
    CHECK(contains(message_of<OutOfMemory>([] { Training training({.batch_size = std::int64_t{1} << 36}); }),
                   "activations"));
}

TEST_CASE("a NaN in a batch and a non-finite loss are reported with step and replica, and no parameter has changed") {
    const Images images;
    Images bad;
    bad.pixels[5] = std::numeric_limits<float>::quiet_NaN();
    for (const int devices : {1, 2}) {
        Training training({.replicas = 2, .devices = devices, .batch_size = 4});
        const BatchView good_batches[] = {images.view(0, 4), images.view(4, 4)};
        const BatchView bad_batches[] = {images.view(0, 4), bad.view(0, 4)};
        training.step(good_batches);
        const std::vector<float> before = training.parameters();
        try {
            training.step(bad_batches);
            FAIL("the step was made");
        } catch (const DivergedError& error) {
            CHECK(error.step == 1);
            CHECK(error.replica == 1);
            CHECK(contains(error.what(), "the gradient of replica 1 is not finite at step 1"));
        }
        CHECK(training.parameters() == before);
        CHECK(training.step() == 1);
        CHECK(training.step(good_batches).step == 1);  // the training can go on

        std::vector<float> broken = training.parameters();
        broken.back() = std::numeric_limits<float>::infinity();  // padding: belongs to no parameter
        training.set_parameters(broken);
        CHECK(training.step(good_batches).step == 2);

        tutorial::SmallTraining<ConcatMean, Ruining> ruined({.replicas = 2, .devices = devices, .batch_size = 4});
        CHECK(ruined.step(good_batches).step == 0);
        const std::string message = message_of<DivergedError>([&] { ruined.step(good_batches); });
        CHECK(contains(message, "the loss of replica 0 is nan at step 1"));
    }
}

TEST_CASE("devices whose parameters differ are found, and reported with the step") {
    const Images images;
    const BatchView batches[] = {images.view(0, 4), images.view(4, 4)};
    tutorial::SmallTraining<ConcatMean, Faulty> training(
        {.replicas = 2, .devices = 2, .batch_size = 4, .check_every = 5});
    for (int i = 0; i < 4; ++i) training.step(batches);
    try {
        training.step(batches);
        FAIL("the difference was not found");
    } catch (const ReplicasDiffer& error) {
        CHECK(error.step == 4);
        CHECK(error.device == 1);
        CHECK(contains(error.what(), "after step 4 the parameters of device 1 differ from those of device 0"));
    }
}

TEST_CASE("an error on one device's thread reaches the caller and stops no other device") {
    const Images images;
    Training training({.replicas = 2, .devices = 2, .batch_size = 4});
    const auto failing = [&](std::int64_t, int replica, HostContext&) -> BatchView {
        if (replica == 1) throw DataError("no images today");
        return images.view(0, 4);
    };
    CHECK_THROWS_WITH_AS(training.step(failing), "no images today", DataError);
    const BatchView batches[] = {images.view(0, 4), images.view(4, 4)};
    CHECK(training.step(batches).samples == 8);
}

TEST_CASE("a training whose update was aborted on one device is not healthy until it is restored") {
    const Images images;
    const BatchView batches[] = {images.view(0, 4), images.view(4, 4)};
    tutorial::SmallTraining<ConcatMean, BreakingOff> training({.replicas = 2, .devices = 2, .batch_size = 4});
    training.step(batches);
    CHECK(training.healthy());
    const TrainingState state = training.state();
    CHECK_THROWS_WITH_AS(training.step(batches), "device 1 is gone", DeviceError);
    CHECK_FALSE(training.healthy());
    training.restore(state);
    CHECK(training.healthy());
    CHECK(training.parameters(1) == state.parameters);
}

TEST_CASE("a learning rate that is no rate, and a schedule that throws, end no training: the step is not made") {
    struct Line : Sequential<Input<2>, Named<"out", Linear<2>>> {};
    using LineTraining = DataParallel<Line, CrossEntropy<2>, Sgd, ConcatMean, Host>;
    const std::vector<float> inputs{1, 2, -1, 0.5F, 3, -2, 0, 1};
    const std::vector<std::int32_t> labels{0, 1, 1, 0};
    const BatchView batches[] = {{inputs.data(), labels.data(), 2, {2}},
                                 {inputs.data() + 4, labels.data() + 2, 2, {2}}};
    double rate = 0.1;
    bool throws = false;
    const auto function = [&](std::int64_t) {
        require<DataError>(!throws, "the file of rates ends");
        return rate;
    };
    const auto options = [](const Schedule& schedule) {
        return LineTraining::Options{
            .replicas = 2, .devices = 2, .batch_size = 2, .optimizer = {.learning_rate = schedule, .momentum = 0.9}};
    };
    LineTraining undisturbed(options(0.1)), training(options(Schedule(function, "from a file")));
    for (int s = 0; s < 2; ++s) {
        undisturbed.step(batches);
        training.step(batches);
    }
    const std::vector<float> before = training.parameters();
    constexpr double largest = std::numeric_limits<float>::max();
    for (const auto& [bad, words] : {std::pair{std::numeric_limits<double>::quiet_NaN(), "nan"},
                                     std::pair{std::numeric_limits<double>::infinity(), "inf"},
                                     std::pair{-0.001, "-0.001"}, std::pair{2 * largest, "6.80565e+38"}}) {
        rate = bad;
        CHECK(
            message_of<InvalidArgument>([&] { training.step(batches); }) ==
            text(
                "the learning rate of step 2 is ", words,
                ", from the schedule 'from a file'; it must be at least 0 and finite as a float; the step is not made"));
        CHECK(training.healthy());
        CHECK(training.step() == 2);
        CHECK(training.parameters() == before);
    }
    rate = 0.1;
    throws = true;
    CHECK(message_of<DataError>([&] { training.step(batches); }) == "the file of rates ends");
    CHECK(training.healthy());
    throws = false;
    CHECK(training.step(batches).loss == undisturbed.step(batches).loss);
    CHECK(training.parameters() == undisturbed.parameters());
}

TEST_CASE("an inspector's exception that another error of its step has hidden is not thrown after a later step") {
    const Images images;
    tutorial::SmallTraining<ConcatMean, BreakingOff> training({.replicas = 2, .devices = 2, .batch_size = 4});
    const auto batches = [&](std::int64_t, int replica, HostContext&) { return images.view(4 * replica, 4); };
    training.step(batches);
    TrainingState state = training.state();
    bool inspected = false;
    const auto inspector = [&](const Inspection<Host>&) {
        inspected = true;
        throw DataError("no disk");
    };
    CHECK_THROWS_WITH_AS(training.step(batches, inspector), "device 1 is gone", DeviceError);
    CHECK(inspected);
    state.step = 2;  // after the step that breaks off
    training.restore(state);
    CHECK(training.step(batches).step == 2);
    CHECK(training.step(batches, [](const Inspection<Host>&) {}).step == 3);
    CHECK_THROWS_WITH_AS(training.step(batches, inspector), "no disk", DataError);
}

TEST_CASE("a batch size without a plan, and a label that is not a class, are rejected with their numbers") {
    Images images;
    Training training({.replicas = 1, .batch_size = 4});
    const BatchView odd[] = {images.view(0, 3)};
    CHECK(message_of<InvalidArgument>([&] { training.step(odd); }) ==
          "a batch has 3 samples, and plans were made for batch_size 4 and other_batch_sizes only");
    images.labels[2] = 10;
    const BatchView wrong[] = {images.view(0, 4)};
    CHECK(message_of<InvalidArgument>([&] { training.step(wrong); }) ==
          "sample 2 of the batch has label 10, but the loss has classes 0 to 9");
    CHECK(message_of<InvalidArgument>([&] { training.step(std::span<const BatchView>{}); }) ==
          "a step of 1 replica needs one batch per replica, not 0");
}

TEST_CASE("initial values follow the type, the seed, and the names given at construction") {
    Training a({.seed = 1}), b({.seed = 1}), c({.seed = 2});
    CHECK(a.parameters() == b.parameters());
    CHECK(a.parameters() != c.parameters());
    Training named({.seed = 1, .initializers = {{"conv2.bias", constant(0.5)}}});
    const auto offset = static_cast<std::size_t>(tutorial::SmallNet::layers[4].offsets[1]);
    CHECK(a.parameters()[offset] == 0.0F);
    CHECK(named.parameters()[offset] == 0.5F);
    CHECK(named.parameters()[0] == a.parameters()[0]);
}

TEST_CASE(
    "evaluation counts each sample once, with the remainder, on any number of devices, and changes no parameter") {
    const auto& test = tutorial::sample().test;
    Evaluation first;
    for (const int devices : {1, 2}) {
        Training training({.replicas = 2, .devices = devices, .batch_size = 128, .seed = 1});
        const std::vector<float> before = training.parameters();
        const EvaluationBatches batches(test, CenterCrop{}, 128, devices);
        const Evaluation result = evaluate(training, batches);
        CHECK(result.samples == 1000);
        CHECK(result.accuracy() == static_cast<double>(result.correct) / 1000);
        CHECK(training.parameters() == before);
        if (devices == 1) first = result;
        CHECK(result.correct == first.correct);
        CHECK(result.loss == first.loss);
    }
}

TEST_CASE("training continues with the same bits after an evaluation and after predictions in between") {
    const Images images;
    const BatchView batches[] = {images.view(0, 4), images.view(4, 4)};
    Training plain({.replicas = 2, .batch_size = 4}), disturbed({.replicas = 2, .batch_size = 4});
    for (int i = 0; i < 3; ++i) {
        plain.step(batches);
        disturbed.step(batches);
        const std::span<const float> pixels(images.pixels);
        const auto three = disturbed.predict(TensorView<const float, Extents<24, 24, 3>>(pixels.data(), 3));
        const auto two = disturbed.predict(TensorView<const float, Extents<24, 24, 3>>(pixels.data(), 2));
        REQUIRE(three.size() == 30);
        // Without AVX-512, oneDNN adds up a product of two samples in another order than one of three.
        if (Host::library_isa().starts_with("avx512")) CHECK(std::equal(two.begin(), two.end(), three.begin()));
        CHECK(tutorial::difference(two, std::span(three).first(20)) < 1e-6);
    }
    CHECK(plain.parameters() == disturbed.parameters());
}

TEST_CASE("the memory report adds up and is printed in one line") {
    tutorial::Training<> training({.replicas = 4, .devices = 2, .optimizer = {.learning_rate = 0.1, .momentum = 0.9}});
    const MemoryReport& memory = training.memory();
    CHECK(memory.parameters == 1'068'304 * 4);
    CHECK(memory.optimizer_state == memory.parameters);
    CHECK(memory.gradients == 4 * memory.parameters);
    CHECK(memory.average == memory.parameters);
    CHECK(memory.plan.activations == activation_bytes<tutorial::Net>(128));
    CHECK(memory.total() == 2 * (2 * memory.parameters + memory.plan.total()) + 5 * memory.parameters);
    const std::string line = to_string(memory);
    CHECK(contains(line, "23.6 MB activations"));
    CHECK(line.find('\n') == std::string::npos);
}
