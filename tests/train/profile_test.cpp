// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/cuda/peak_rates.hpp, cupola/ops/peak_rates.hpp, cupola/ops/host/peak_rates.hpp
// Covers: cupola/train/step_profile.hpp
//
// A profile names every part of a step once, its times add up to the step, its work is what the layers say, and the
// training that is profiled is the same training.
#include <cupola/train/profile.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/net/recompute.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>
#include <cupola/parallel/synchronized.hpp>

#include "throws_with.hpp"

namespace {

constexpr std::int64_t pixels = 8 * 8 * 3, batch = 6;

struct Small : Sequential<Input<8, 8, 3>, Named<"conv1", Conv2d<4, 3>>, ReLU, MaxPool2d<2, 2>,
                          Named<"conv2", Conv2d<6, 3>>, Flatten, Named<"fc", Linear<10>>> {};
struct Normed : Sequential<Input<8, 8, 3>, Named<"conv1", Conv2d<4, 3>>, Named<"bn1", BatchNorm2d<>>, ReLU, Flatten,
                           Named<"fc", Linear<10>>> {};
using SmallLoss = LossCollection<CrossEntropy<10>, WeightDecay<0.004, "fc">>;

/// Its batches are those of Numbers: convolutions by Winograd's algorithm read and write 16 channels.
template <class... Layers>
using Wide =
    Sequential<Input<8, 8, 3>, Named<"conv1", Conv2d<16, 3>>, ReLU, Layers..., Flatten, Named<"fc", Linear<10>>>;
struct Tiled : Wide<Named<"block.conv2", Conv2d<32, 3>>, ReLU, Named<"block.conv3", Conv2d<16, 3>>> {};
struct Responses : Wide<Named<"lrn", LocalResponseNorm<4>>> {};

template <class Net, class Statistics = FirstReplica>
using TrainingOf = DataParallel<Net, SmallLoss, Sgd, ConcatMean, Host, Statistics>;
using Training = TrainingOf<Small>;

struct Numbers {
    std::vector<float> values;
    std::vector<std::int32_t> labels;
    std::int64_t broken = -1;

    Numbers() {
        for (std::uint64_t i = 0; i < 4 * batch * pixels; ++i)
            values.push_back(uniform(RandomStream(1, RngDomain::user, 0, i).words(0)[0]) - 0.5F);
        for (std::int32_t i = 0; i < 4 * batch; ++i) labels.push_back(i % 10);
    }
    BatchView operator()(std::int64_t step, int replica, HostContext&) {
        if (step == broken) values.assign(values.size(), std::numeric_limits<float>::quiet_NaN());
        const auto at = (static_cast<std::size_t>(step + replica) % 4) * batch;
        return {values.data() + at * pixels, labels.data() + at, batch, Small::input_shape};
    }
};

std::vector<std::string> titles(const StepProfile& profile) {
    std::vector<std::string> result;
    for (const ProfiledPart& part : profile.parts) {
        result.push_back(part.name + (part.name.empty() ? "" : ": ") + part.what + (part.pass.empty() ? "" : ", ") +
                         std::string(part.pass));
    }
    return result;
}

const ProfiledPart& part_of(const StepProfile& profile, const std::string& what, const std::string& pass) {
    const auto found = std::find_if(profile.parts.begin(), profile.parts.end(), [&](const ProfiledPart& part) {
        return (part.name == what || part.what == what) && part.pass == pass;
    });
    REQUIRE(found != profile.parts.end());
    return *found;
}

}  // namespace

TEST_CASE("a profile has every part of a step in the order of the step, and their times add up to it") {
    Numbers numbers;
    Training training({.device = {.threads = 2}, .batch_size = batch, .moving_average = {.decay = 0.99}});
    const StepProfile one = profile(training, numbers, {.steps = 1, .warm_up = 2});
    CHECK(titles(one) == std::vector<std::string>{"data", "packing of weights", "conv1: Conv2d<4, 3> + ReLU, forward",
                                                  "MaxPool2d<2, 2>, forward", "conv2: Conv2d<6, 3>, forward",
                                                  "fc: Linear<10>, forward", "loss", "fc: Linear<10>, backward",
                                                  "conv2: Conv2d<6, 3>, backward", "MaxPool2d<2, 2>, backward",
                                                  "conv1: Conv2d<4, 3> + ReLU, backward", "check of the gradient",
                                                  "regularisers' losses", "optimiser", "moving average"});
    CHECK(training.step() == 3);
    CHECK(one.steps == 1);
    CHECK(one.samples_per_step == batch);
    double sum = one.rest;
    for (const ProfiledPart& part : one.parts) {
        CAPTURE(part.what);
        CHECK(part.seconds > 0);
        sum += part.seconds;
    }
    CHECK(one.rest > 0);
    CHECK(sum == doctest::Approx(one.seconds).epsilon(1e-9));
    CHECK(one.rates.operations > 1e8);
    CHECK(one.rates.bytes > 1e8);
    CHECK((std::isfinite(one.rates.operations) && std::isfinite(one.rates.bytes)));
    CHECK(one.rates.vector_operations > 1e8);
    CHECK(one.rates.reads_before_writing);
    CHECK(one.rates.caches[0].size >= 1024);
    CHECK(one.rates.caches[0].bytes >= one.rates.caches[1].bytes);
    CHECK(one.rates.caches[1].bytes >= one.rates.bytes);
}

TEST_CASE("of the bytes of a call, those that fit a cache move at its rate, and the others at that of the next level") {
    PeakRates rates{.operations = 1, .bytes = 1};
    const auto seconds = [&](double bytes, double calls = 1) {
        return ProfiledPart{.name = {}, .what = {}, .bytes = bytes, .calls = calls}.roofline(rates);
    };
    CHECK(seconds(1200) == 1200);
    rates.caches[0] = {.size = 100, .bytes = 10};
    rates.caches[1] = {.size = 1000, .bytes = 5};
    CHECK(seconds(0) == 0);
    CHECK(seconds(50) == 5);
    CHECK(seconds(100) == 10);
    CHECK(seconds(150) == 10 + 10);
    CHECK(seconds(1000) == 10 + 180);
    CHECK(seconds(1200) == 10 + 180 + 200);
    CHECK(seconds(300, 3) == 3 * 10);  // each call finds its own there
    // A level that is not known, or holds less than the one before it, is none.
    rates.caches[1].size = 0;
    CHECK(seconds(150) == 10 + 50);
    rates.caches[1].size = 100;
    CHECK(seconds(150) == 10 + 50);
    rates.caches[0].size = 0;
    rates.caches[1].size = 1000;
    CHECK(seconds(150) == 30);
}

TEST_CASE("a write of what was not read counts twice where memory is read before it is written") {
    PeakRates rates{.operations = 1, .bytes = 2, .reads_before_writing = true};
    const auto seconds = [&](double bytes, double written) {
        return ProfiledPart{.name = {}, .what = {}, .bytes = bytes, .written = written}.roofline(rates);
    };
    CHECK(seconds(60, 30) == 30);  // a copy, at the rate of copies
    CHECK(seconds(60, 0) == 20);   // a sum, or an update in place
    CHECK(seconds(60, 60) == 40);
    rates.caches[0] = {.size = 30, .bytes = 20};
    CHECK(seconds(60, 30) == 1.5 + 15);
    rates.reads_before_writing = false;
    CHECK(seconds(60, 60) == 1.5 + 15);
}

TEST_CASE("the work of an algorithm takes the place of the formula's multiply-adds") {
    ProfiledPart part{.name = {}, .what = {}, .operations = 100, .work = {.operations = 60, .cached_bytes = 8}};
    PeakRates rates{.operations = 10, .bytes = 1, .vector_operations = 3};
    CHECK(part.roofline(rates) == 20);
    rates.vector_operations = 0;
    CHECK(part.roofline(rates) == 8);  // by its cached bytes
    rates.caches[1] = {.size = 100, .bytes = 4};
    CHECK(part.roofline(rates) == 6);
    part.work = {};
    CHECK(part.roofline(rates) == 10);
}

TEST_CASE("a profile has the best cuts of the measured times, which have the time of all operations") {
    Numbers numbers;
    Training training({.device = {.threads = 1}, .batch_size = batch});
    const StepProfile one = profile(training, numbers, {.steps = 1, .warm_up = 0});
    REQUIRE(one.splits.size() == 2);  // it can be cut before conv2 and before fc
    CHECK(one.splits[1].names == std::vector<std::string>{"conv2", "fc"});
    const auto seconds = [&](std::initializer_list<const char*> names) {
        double sum = 0;
        for (const ProfiledPart& part : one.parts) {
            for (const char* const name : names) sum += part.name == name || part.what == name ? part.seconds : 0;
        }
        return sum;
    };
    const std::vector<double> parts{seconds({"data", "conv1", "MaxPool2d<2, 2>"}), seconds({"conv2"}),
                                    seconds({"fc", "loss"})};
    for (std::size_t k = 0; k < parts.size(); ++k)
        CHECK(one.splits[1].seconds[k] == doctest::Approx(parts[k]).epsilon(1e-3));
    const bool early = std::max(parts[0], parts[1] + parts[2]) <= std::max(parts[0] + parts[1], parts[2]);
    CHECK(one.splits[0].names == std::vector<std::string>{early ? "conv2" : "fc"});
}

TEST_CASE("the work of a part is what its layer computes, reads and writes") {
    Numbers numbers;
    Training training({.device = {.threads = 1}, .batch_size = batch});
    const StepProfile found = profile(training, numbers, {.steps = 3, .warm_up = 0});
    const auto layers = Small::layers;
    const auto adds = [&](std::size_t layer) { return 2.0 * static_cast<double>(batch * layers[layer].multiply_adds); };
    // The first convolution has no gradient of its input to find, the others have.
    CHECK(part_of(found, "conv1", "forward").operations == adds(0));
    CHECK(part_of(found, "conv1", "backward").operations == adds(0));
    CHECK(part_of(found, "conv2", "forward").operations == adds(3));
    CHECK(part_of(found, "conv2", "backward").operations == 2 * adds(3));
    CHECK(part_of(found, "fc", "backward").operations == 2 * adds(5));
    const double in = 4.0 * batch * 4 * 4 * 6, out = 4.0 * batch * 10, weights = 4.0 * (96 * 10 + 10);
    CHECK(part_of(found, "fc", "forward").bytes == in + out + weights);
    // The output's gradient and the input are read, the weights' gradient and the input's are written, which reads the
    // weights.
    CHECK(part_of(found, "fc", "backward").bytes == out + in + weights + in + weights);
    const double parameters = 4.0 * static_cast<double>(Small::parameter_count);
    CHECK(part_of(found, "optimiser", "").bytes == 3 * parameters);
    CHECK(part_of(found, "check of the gradient", "").bytes == parameters);
    CHECK(part_of(found, "regularisers' losses", "").bytes == 4.0 * 96 * 10);
    CHECK(part_of(found, "fc", "forward").written == out);
    CHECK(part_of(found, "fc", "backward").written == weights + in);
    CHECK(part_of(found, "conv1", "backward").written == 4.0 * (4 * 9 * 3 + 4));
    CHECK(part_of(found, "optimiser", "").written == 0);
    CHECK(part_of(found, "fc", "forward").calls == 1);
    const ProfiledPart part{.name = {}, .what = {}, .seconds = 1, .operations = 20, .bytes = 30};
    CHECK(part.roofline({.operations = 10, .bytes = 10}) == 3.0);
    CHECK(part.roofline({.operations = 5, .bytes = 10}) == 4.0);
}

TEST_CASE("the backward pass of an operation that runs forward again has the work of both passes") {
    struct Again : Recompute<Small, "conv2"> {};
    Numbers numbers;
    Training plain({.device = {.threads = 1}, .batch_size = batch});
    TrainingOf<Again> again({.device = {.threads = 1}, .batch_size = batch});
    const StepProfile before = profile(plain, numbers, {.steps = 1, .warm_up = 0}),
                      found = profile(again, numbers, {.steps = 1, .warm_up = 0});
    CHECK(titles(found) == titles(before));
    const auto bytes = [](const StepProfile& of, const char* what, const char* pass) {
        return part_of(of, what, pass).bytes;
    };
    CHECK(bytes(found, "MaxPool2d<2, 2>", "backward") ==
          bytes(before, "MaxPool2d<2, 2>", "backward") + bytes(before, "MaxPool2d<2, 2>", "forward"));
    for (const char* pass : {"forward", "backward"}) {
        CHECK(bytes(found, "conv2", pass) == bytes(before, "conv2", pass));
        CHECK(part_of(found, "conv2", pass).operations == part_of(before, "conv2", pass).operations);
    }
    CHECK(bytes(found, "MaxPool2d<2, 2>", "forward") == bytes(before, "MaxPool2d<2, 2>", "forward"));
}

TEST_CASE("the work of Winograd's convolution is that of its tiles, also where it runs forward again") {
    struct Again : Recompute<Tiled, "block"> {};
    Numbers numbers;
    const HostOptions host{.threads = 1, .convolution = &winograd};
    TrainingOf<Tiled> plain({.device = host, .batch_size = batch});
    TrainingOf<Again> again({.device = host, .batch_size = batch});
    const StepProfile found = profile(plain, numbers, {.steps = 2, .warm_up = 0}),
                      twice = profile(again, numbers, {.steps = 1, .warm_up = 0});
    const double points = 4 * 36 * batch;  // four tiles of 4 x 4 outputs per image
    const ProfiledPart &forward = part_of(found, "block.conv2", "forward"),
                       &backward = part_of(found, "block.conv2", "backward");
    CHECK(forward.work.operations == doctest::Approx(2 * points * 16 * 32).epsilon(1e-12));
    CHECK(forward.work.cached_bytes == doctest::Approx(2 * points * 4 * (16 + 32)).epsilon(1e-12));
    CHECK(backward.work.operations == doctest::Approx(2 * forward.work.operations).epsilon(1e-12));
    CHECK(forward.operations == 2.0 * static_cast<double>(batch * Tiled::layers[2].multiply_adds));
    CHECK(forward.written == 4.0 * batch * 8 * 8 * 32);
    CHECK(part_of(found, "conv1", "forward").work.operations == 0);
    const double seconds = forward.work.operations / found.rates.vector_operations;
    CHECK(forward.roofline(found.rates) >= doctest::Approx(seconds));
    CHECK(part_of(twice, "block.conv2", "backward").work.operations ==
          doctest::Approx(backward.work.operations + forward.work.operations).epsilon(1e-12));
    CHECK(part_of(twice, "block.conv2", "backward").written == forward.written + backward.written);
}

TEST_CASE("the power of a local response normalisation is work, also in one operation with a pooling") {
    struct Pooled : Wide<Named<"lrn", LocalResponseNorm<4>>, MaxPool2d<2, 2>> {};
    struct AfterPool : Wide<MaxPool2d<2, 2>, Named<"lrn", LocalResponseNorm<4>>> {};
    Numbers numbers;
    const auto operations = [&]<class Net>(const char* pass) {
        TrainingOf<Net> training({.device = {.threads = 1}, .batch_size = batch});
        const StepProfile found = profile(training, numbers, {.steps = 1, .warm_up = 0});
        double sum = 0;
        for (const ProfiledPart& part : found.parts) sum += part.pass == pass ? part.work.operations : 0;
        return sum;
    };
    for (const char* const pass : {"forward", "backward"}) {
        const double alone = operations.operator()<Responses>(pass), elements = batch * 8 * 8 * 16;
        CHECK(alone >= 20 * elements);
        CHECK(alone <= 60 * elements);
        CHECK(operations.operator()<Pooled>(pass) == doctest::Approx(alone));
        CHECK(operations.operator()<AfterPool>(pass) == doctest::Approx(alone / 4));
    }
}

TEST_CASE("the replicas of the first device are profiled, and its wait for the others") {
    Numbers numbers;
    Training training(
        {.replicas = 4, .devices = 2, .device = {.threads = 1}, .batch_size = batch, .gradient_accumulation_steps = 2});
    const StepProfile found = profile(training, numbers, {.steps = 3, .warm_up = 1});
    CHECK(found.samples_per_step == 4 * 2 * batch);
    CHECK(part_of(found, "conv1", "forward").operations ==
          2.0 * 2 * 2 * static_cast<double>(batch * Small::layers[0].multiply_adds));
    CHECK(part_of(found, "averaging", "").bytes == 6.0 / 2 * 4 * static_cast<double>(Small::parameter_count));
    CHECK(part_of(found, "averaging", "").written == 1.0 / 2 * 4 * static_cast<double>(Small::parameter_count));
    CHECK(part_of(found, "conv1", "forward").calls == 2 * 2);
    CHECK(part_of(found, "waiting for other devices", "").seconds > 0);
}

TEST_CASE("running statistics and synchronised normalisations are parts too") {
    Numbers numbers;
    TrainingOf<Normed> own({.replicas = 2, .device = {.threads = 1}, .batch_size = batch});
    CHECK(part_of(profile(own, numbers, {.steps = 2, .warm_up = 0}), "running statistics", "").seconds > 0);
    TrainingOf<Normed, Synchronized> shared(
        {.replicas = 2, .devices = 2, .device = {.threads = 1}, .batch_size = batch});
    const StepProfile found = profile(shared, numbers, {.steps = 2, .warm_up = 0});
    for (const char* const pass : {"forward", "backward"}) CHECK(part_of(found, "bn1", pass).seconds > 0);
}

TEST_CASE("a training that is profiled is the same training, bit for bit") {
    Numbers numbers;
    Training plain({.replicas = 2, .devices = 2, .device = {.threads = 1}, .batch_size = batch, .seed = 3});
    Training profiled({.replicas = 2, .devices = 2, .device = {.threads = 1}, .batch_size = batch, .seed = 3});
    for (int i = 0; i < 9; ++i) plain.step(numbers);
    static_cast<void>(profile(profiled, numbers, {.steps = 4, .warm_up = 2}));
    for (int i = 0; i < 3; ++i) profiled.step(numbers);
    CHECK(profiled.step() == plain.step());
    CHECK(profiled.parameters() == plain.parameters());
}

TEST_CASE("an exception of a step is thrown by the profile, and the training can continue") {
    Numbers numbers;
    numbers.broken = 3;
    Training training({.device = {.threads = 1}, .batch_size = batch});
    CHECK_THROWS_AS(static_cast<void>(profile(training, numbers, {.steps = 4, .warm_up = 2})), DivergedError);
    CHECK(training.step() == 3);
    Numbers healthy;
    CHECK_NOTHROW(training.step(healthy));
}

TEST_CASE("a profile of no steps is rejected") {
    Numbers numbers;
    Training training({.device = {.threads = 1}, .batch_size = batch});
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(profile(training, numbers, {.steps = 0})); }) ==
          "a profile must have 1 to 100000 steps, not 0");
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(profile(training, numbers, {.warm_up = -1})); }) ==
          "a profile must have 0 or more steps before it, not -1");
    CHECK(training.step() == 0);
}

TEST_CASE("the table has milliseconds, fractions, rates and bounds, and empty cells where they have no meaning") {
    const StepProfile profile{.steps = 20,
                              .samples_per_step = 128,
                              .seconds = 0.01,
                              .rest = 0.0005,
                              .rates = {.operations = 100e9, .bytes = 10e9},
                              .parts = {{.name = "conv1",
                                         .what = "Conv2d<4, 3> + ReLU",
                                         .pass = "forward",
                                         .seconds = 0.008,
                                         .operations = 4e8,
                                         .bytes = 1e6},
                                        {.name = {}, .what = "loss", .seconds = 0.0005},
                                        {.name = {}, .what = "optimiser", .seconds = 0.001, .bytes = 5e6}},
                              .splits = {{.names = {"conv2", "fc"}, .seconds = {0.002, 0.006, 0.001}}}};
    CHECK(to_string(profile) ==
          "name   part                 pass         ms    share  GFLOP/s  GB/s  bound ms  of bound\n"
          "conv1  Conv2d<4, 3> + ReLU  forward   8.000   80.0 %     50.0   0.1     4.000      0.50\n"
          "       loss                           0.500    5.0 %\n"
          "       optimiser                      1.000   10.0 %            5.0     0.500      0.50\n"
          "       the rest                       0.500    5.0 %\n"
          "total                                10.000  100.0 %     40.0           4.500      0.45\n"
          "step: 10.000 ms, 12800.0 samples/s; medians of 20 steps on the first device\n"
          "peak: 100.0 GFLOP/s of a large matrix product, 10.0 GB/s of a large copy\n"
          "cut: SplitAt<Net, \"conv2\", \"fc\"> is the best of 3 parts: the longest has 2.00 of the mean time\n");
}

TEST_CASE("the table ends with the rates that were measured") {
    const StepProfile profile{.steps = 1,
                              .seconds = 1,
                              .rates = {.operations = 100e9,
                                        .bytes = 10e9,
                                        .vector_operations = 80e9,
                                        .caches = {{}, {.size = 32 * 1024 * 1024, .bytes = 50e9}}},
                              .parts = {}};
    const std::string table = to_string(profile);
    CHECK(
        table.substr(table.rfind("peak")) ==
        "peak: 100.0 GFLOP/s of a large matrix product, 80.0 of vectors, 10.0 GB/s of a large copy, 50.0 in caches of "
        "32.0 MiB\n");
}
