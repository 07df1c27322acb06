// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/io/summary_sink.hpp, cupola/parallel/inspection.hpp, cupola/train/loss_averages.hpp
#include <cupola/train/summary_writer.hpp>

#include "../test.hpp"

#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/train/fit.hpp>

#include "throws_with.hpp"
#include "tutorial.hpp"

namespace {

// clang-format off
struct Small : Sequential<Input<4, 4, 3>,
    Named<"conv1", Conv2d<5, 3>>, ReLU, MaxPool2d<2, 2>, Flatten,
    Named<"local3", Linear<6>>, ReLU,
    Linear<2>> {};
// clang-format on

// clang-format off
struct Normalized : Sequential<Input<4, 4, 3>,
    Named<"conv1", Conv2d<4, 3>>, Named<"bn1", BatchNorm2d<>>, ReLU,
    Named<"layer1.0", Residual<Identity, Named<"conv1", Conv2d<4, 3>>>>, ReLU,
    Residual<Projection<ReLU>, Named<"conv2", Conv2d<4, 3>>>, Flatten, Linear<2>> {};
// clang-format on
/// A batch normalisation by another name.
struct OwnNorm : BatchNorm2d<> {};
struct OwnNormalized
    : Sequential<Input<4, 4, 3>, Named<"conv1", Conv2d<4, 3>>, Named<"own", OwnNorm>, Flatten, Linear<2>> {};
struct Plain : Sequential<Input<8>, Named<"hidden", Linear<4>>, ReLU, Linear<2>> {};

/// Keeps what it is given.
struct Kept : SummarySink {
    std::vector<std::string> order;
    std::map<std::int64_t, std::map<std::string, double>> scalars;
    std::map<std::int64_t, std::map<std::string, Histogram>> histograms;
    std::map<std::int64_t, std::map<std::string, PixelImage>> images;
    std::map<std::int64_t, std::map<std::string, std::string>> texts;
    void start(std::int64_t step) override { order.push_back(text("start ", step)); }
    void write(std::int64_t step, const StepSummary& summary) override {
        order.push_back(text("write ", step));
        for (const auto& [tag, value] : summary.scalars) scalars[step][tag] = value;
        for (const auto& [tag, value] : summary.histograms) histograms[step][tag] = value;
        for (const auto& [tag, value] : summary.images) images[step][tag] = value;
        for (const auto& [tag, value] : summary.texts) texts[step][tag] = value;
    }
};

/// What a training of `Net` with batches of 4 shows an inspector, with values of our own: the activations of row r are
/// r + 1.
template <class Net>
struct FakeInspection {
    std::int64_t at = 0;
    std::vector<float> parameter_arena = std::vector<float>(static_cast<std::size_t>(Net::parameter_elements), 0.0F);
    std::vector<float> gradient_arena = parameter_arena;
    std::vector<float> samples = std::vector<float>(static_cast<std::size_t>(Net::input_shape.size()) * 4, 0.0F);
    std::vector<std::vector<float>> activations{};

    FakeInspection() {
        for (const LayerInfo& layer : Net::layers) {
            activations.emplace_back(static_cast<std::size_t>(layer.output.size()) * 4,
                                     static_cast<float>(activations.size() + 1));
        }
    }
    [[nodiscard]] std::int64_t step() const { return at; }
    [[nodiscard]] std::span<const float> parameters() const { return parameter_arena; }
    [[nodiscard]] std::span<const float> averaged_gradient() const { return gradient_arena; }
    [[nodiscard]] BatchView batch() const { return {samples.data(), nullptr, 4, Net::input_shape}; }
    template <class Visit>
    void for_each_activation(Visit&& visit) const {
        for (std::size_t r = 0; r < activations.size(); ++r) visit(r, std::span<const float>(activations[r]));
    }
};

StepReport report_of(std::int64_t step, double cross_entropy, int replicas = 1) {
    StepReport report{.step = step,
                      .samples = 4 * replicas,
                      .weight = 4.0 * replicas,
                      .learning_rate = 0.1,
                      .loss = cross_entropy + 0.5,
                      .replicas = {},
                      .parts = {{"cross_entropy", cross_entropy}, {"weight_decay/local3", 0.5}}};
    for (int r = 0; r < replicas; ++r) {
        const double own = cross_entropy + r;  // so that the replicas differ
        report.replicas.push_back({.samples = 4,
                                   .weight = 4,
                                   .parts = {{"cross_entropy", own}, {"weight_decay/local3", 0.5}},
                                   .total = own + 0.5,
                                   .correct = 3,
                                   .predictions = 4});
    }
    return report;
}

template <class Map>
std::vector<std::string> tags(const Map& map) {
    std::vector<std::string> result;
    for (const auto& [tag, value] : map) result.push_back(tag);
    return result;
}

}  // namespace

TEST_CASE("a summary has the tutorial's tags, of the step that was inspected and reported, in one event") {
    Kept kept;
    SummaryWriter writer(
        kept, Small::layers,
        {.every = 100, .hyper_parameters = {{"seed", "1"}, {"a|b", "two\nlines"}}, .network = "conv1\n"});
    Run run{};
    writer.on_begin(run);
    FakeInspection<Small> inspection;
    inspection.at = 100;
    REQUIRE(writer.should_inspect(100));
    writer.inspect(inspection);
    writer.on_step(report_of(100, 2.0), run);
    CHECK(kept.order == std::vector<std::string>{"start 0", "write 0", "write 100"});
    CHECK(kept.texts[0] ==
          std::map<std::string, std::string>{
              {"hyper_parameters", "| name | value |\n|---|---|\n| seed | 1 |\n| a\\|b | two lines |\n"},
              {"network", "```\nconv1\n```\n"}});
    CHECK(tags(kept.scalars[100]) ==
          std::vector<std::string>{"Precision @ 1 (training batch)", "conv1/sparsity", "cross_entropy",
                                   "cross_entropy (raw)", "examples/sec", "learning_rate", "local3/sparsity",
                                   "local3/weight_loss", "local3/weight_loss (raw)", "total_loss", "total_loss (raw)"});
    CHECK(tags(kept.histograms[100]) ==
          std::vector<std::string>{"6/biases", "6/biases/gradients", "6/weights", "6/weights/gradients",
                                   "conv1/activations", "conv1/biases", "conv1/biases/gradients", "conv1/weights",
                                   "conv1/weights/gradients", "local3/activations", "local3/biases",
                                   "local3/biases/gradients", "local3/weights", "local3/weights/gradients"});
    CHECK(tags(kept.images[100]) ==
          std::vector<std::string>{"conv1/filters", "images/image/0", "images/image/1", "images/image/2"});
}

TEST_CASE("histograms are of each parameter without the arena's padding, and of the activation after its function") {
    Kept kept;
    SummaryWriter writer(kept, Small::layers);
    FakeInspection<Small> inspection;
    std::fill(inspection.parameter_arena.begin(), inspection.parameter_arena.end(), 9.0F);  // the padding too
    const auto fill = [](std::vector<float>& arena, const LayerInfo& layer, std::size_t p, float value) {
        std::fill_n(arena.begin() + layer.offsets[p], layer.parameters.list[p].shape.size(), value);
    };
    fill(inspection.parameter_arena, Small::layers[0], 0, 1.0F);
    fill(inspection.parameter_arena, Small::layers[0], 1, 2.0F);
    fill(inspection.gradient_arena, Small::layers[0], 1, -3.0F);
    inspection.activations[1][0] = 0.0F;  // conv1's ReLU
    writer.inspect(inspection);
    Run run{};
    writer.on_step(report_of(0, 2.0), run);
    auto& histograms = kept.histograms[0];
    CHECK(histograms["conv1/weights"].count == 5 * 3 * 3 * 3);
    CHECK(histograms["conv1/weights"].maximum == 1.0);
    CHECK(histograms["conv1/biases"].count == 5);
    CHECK(histograms["conv1/biases"].minimum == 2.0);
    CHECK(histograms["conv1/biases/gradients"].minimum == -3.0);
    CHECK(histograms["conv1/biases/gradients"].maximum == -3.0);
    CHECK(histograms["conv1/activations"].maximum == 2.0);  // the second row's value
    CHECK(histograms["conv1/activations"].count == 4 * 4 * 4 * 5);
    CHECK(histograms["local3/activations"].maximum == 6.0);
    CHECK(kept.scalars[0]["conv1/sparsity"] == doctest::Approx(1.0 / 320));
    CHECK(kept.scalars[0]["local3/sparsity"] == 0.0);
}

TEST_CASE("batch normalisation has TensorFlow's names, and layers inside a residual block are grouped by its name") {
    Kept kept;
    SummaryWriter writer(kept, Normalized::layers);
    writer.inspect(FakeInspection<Normalized>{});
    Run run{};
    writer.on_step(report_of(0, 1.0), run);
    auto& histograms = kept.histograms[0];
    for (const char* tag :
         {"conv1/weights", "bn1/gamma", "bn1/beta", "bn1/gamma/gradients", "layer1/0/conv1/weights"}) {
        CAPTURE(tag);
        CHECK(histograms.count(tag) == 1);
    }
    CHECK(histograms.count("bn1/weights") == 0);
    CHECK(histograms["conv1/activations"].maximum == 1.0);  // its own: batch normalisation reads it
    CHECK(histograms["bn1/activations"].maximum == 3.0);    // the ReLU's
    CHECK(histograms["layer1/0/conv1/activations"].maximum == 5.0);
    CHECK(histograms["conv2/activations"].maximum == 9.0);  // the ReLU after it is the shortcut's
}

TEST_CASE("the tags of a normalisation depend on its kind, not on its type's name") {
    Kept kept;
    SummaryWriter writer(kept, OwnNormalized::layers);
    writer.inspect(FakeInspection<OwnNormalized>{});
    Run run{};
    writer.on_step(report_of(0, 1.0), run);
    CHECK(kept.histograms[0].count("own/gamma") == 1);
    CHECK(kept.histograms[0].count("own/beta") == 1);
    CHECK(kept.histograms[0].count("own/weights") == 0);
}

TEST_CASE("values that are not finite are counted under a tag of their own") {
    Kept kept;
    SummaryWriter writer(kept, Small::layers);
    FakeInspection<Small> inspection;
    inspection.gradient_arena[0] = std::numeric_limits<float>::infinity();
    writer.inspect(inspection);
    Run run{};
    writer.on_step(report_of(0, 2.0), run);
    CHECK(kept.scalars[0]["conv1/weights/gradients/not_finite"] == 1.0);
    CHECK(kept.scalars[0].count("conv1/weights/not_finite") == 0);
}

TEST_CASE("the smoothed losses begin at the first ones, and later ones have the weights of Adam's corrected moments") {
    Kept kept;
    SummaryWriter writer(kept, Small::layers, {.every = 1});
    Run run{};
    double average = 0;
    for (int step = 0; step < 30; ++step) {
        writer.on_step(report_of(step, 1.0 + step), run);
        average = 0.9 * average + 0.1 * (1.5 + step);
        CHECK(kept.scalars[step]["total_loss"] == doctest::Approx(average / (1 - std::pow(0.9, step + 1))));
        CHECK(kept.scalars[step]["local3/weight_loss"] == doctest::Approx(0.5));
    }
    CHECK(kept.scalars[0]["total_loss"] == 1.5);
    CHECK(kept.scalars[0]["cross_entropy"] == 1.0);
}

TEST_CASE("each part of the loss is shown raw and smoothed over all steps, from zero as in the tutorial if requested") {
    Kept kept;
    SummaryWriter writer(kept, Small::layers, {.every = 2, .averages = {.from_zero = true}});
    Run run{};
    for (std::int64_t step = 0; step < 5; ++step) writer.on_step(report_of(step, 1.0 + static_cast<double>(step)), run);
    CHECK(kept.order == std::vector<std::string>{"write 0", "write 2", "write 4"});
    double average = 0;
    for (int step = 0; step < 5; ++step) {
        average = 0.9 * average + 0.1 * (1.0 + step);
        if (step % 2 != 0) continue;
        CHECK(kept.scalars[step]["cross_entropy"] == doctest::Approx(average));
        CHECK(kept.scalars[step]["cross_entropy (raw)"] == doctest::Approx(1.0 + step));
        CHECK(kept.scalars[step]["total_loss (raw)"] == doctest::Approx(1.5 + step));
    }
    CHECK(kept.scalars[0]["local3/weight_loss"] == doctest::Approx(0.05));
    CHECK(kept.scalars[0]["local3/weight_loss (raw)"] == 0.5);
    CHECK(kept.scalars[0]["learning_rate"] == 0.1);
    CHECK(kept.scalars[0]["Precision @ 1 (training batch)"] == 0.75);
}

TEST_CASE("with several replicas the parts are those of the step, and each one's total is shown") {
    Kept kept;
    SummaryWriter writer(kept, Small::layers);
    Run run{};
    StepReport report = report_of(0, 2.0, 2);
    report.parts[0].value = 2.75;
    writer.on_step(report, run);
    CHECK(kept.scalars[0]["cross_entropy (raw)"] == 2.75);
    CHECK(kept.scalars[0]["total_loss (raw)"] == 2.5);
    CHECK(kept.scalars[0]["total_loss (replica 0)"] == 2.5);
    CHECK(kept.scalars[0]["total_loss (replica 1)"] == 3.5);
}

TEST_CASE("the staleness of each replica is the mean and the largest of its exchanges since the last summary") {
    Kept kept;
    SummaryWriter writer(kept, Small::layers, {.every = 2});
    Run run{};
    const auto step = [&](std::int64_t number, int replica, std::int64_t first, std::int64_t second) {
        StepReport report = report_of(number, 2.0, 2);
        report.replicas[0].replica = 0;
        report.replicas[0].staleness = first;
        report.replicas[1].replica = replica;
        report.replicas[1].staleness = second;
        writer.on_step(report, run);
    };
    step(0, 1, 4, -1);
    step(1, 0, 1, 2);
    step(2, 1, 6, 5);
    CHECK(kept.scalars[0]["staleness (replica 0)"] == 4);
    CHECK(kept.scalars[0].count("staleness (replica 1)") == 0);
    CHECK(kept.scalars[2]["staleness (replica 0)"] == 3);
    CHECK(kept.scalars[2]["largest staleness (replica 0)"] == 6);
    CHECK(kept.scalars[2]["staleness (replica 1)"] == 5);
    writer.on_step(report_of(4, 2.0, 2), run);
    CHECK(kept.scalars[4].count("staleness (replica 0)") == 0);
}

TEST_CASE("a loss scale is a scalar, and a loss of a skipped step is not smoothed") {
    Kept kept;
    SummaryWriter writer(kept, Small::layers);
    Run run{};
    StepReport report = report_of(0, 2.0);
    writer.on_step(report, run);
    CHECK(kept.scalars[0].count("loss_scale") == 0);
    report = report_of(100, std::numeric_limits<double>::quiet_NaN());
    report.loss_scale = 32768;
    report.skipped = true;
    report.skipped_steps = 3;
    writer.on_step(report, run);
    CHECK(kept.scalars[100]["loss_scale"] == 32768);
    CHECK(kept.scalars[100]["skipped_steps"] == 3);
    CHECK(kept.scalars[100]["cross_entropy"] == kept.scalars[0]["cross_entropy"]);
}

TEST_CASE("the precision of a batch is that of its predictions, and none where the loss counts none") {
    Kept kept;
    SummaryWriter writer(kept, Small::layers);
    Run run{};
    StepReport report = report_of(0, 2.0, 2);
    report.replicas[1].predictions = 2;
    writer.on_step(report, run);
    CHECK(kept.scalars[0]["Precision @ 1 (training batch)"] == 1.0);
    for (ReplicaReport& replica : report.replicas) replica.correct = replica.predictions = 0;
    report.step = 100;
    writer.on_step(report, run);
    CHECK(kept.scalars[100].count("total_loss") == 1);
    CHECK(kept.scalars[100].count("Precision @ 1 (training batch)") == 0);
}

TEST_CASE("the smoothed losses of a checkpoint without the weight of its steps continue as those of many steps") {
    Kept kept;
    SummaryWriter writer(kept, Small::layers);
    const std::vector<LossPart> state{{"cross_entropy", 1.5}, {"local3/weight_loss", 0.5}, {"total_loss", 2}};
    writer.losses().restore(state);
    Run run{};
    writer.on_step(report_of(0, 2.5), run);
    CHECK(kept.scalars[0]["total_loss"] == doctest::Approx(0.9 * 2 + 0.1 * 3));
    CHECK(message_of<InvalidArgument>([&] {
              writer.losses().restore(std::vector<LossPart>{{"weight_of_steps", -1}});
          }) == "the sum of the weights of averaged losses is -1");
    writer.losses().restore({});
    writer.on_step(report_of(100, 2.5), run);
    CHECK(kept.scalars[100]["total_loss"] == 3);
}

TEST_CASE("the smoothed losses continue from a checkpoint as if the run had not stopped") {
    for (const bool from_zero : {false, true}) {
        CAPTURE(from_zero);
        Run run{};
        Kept whole, first, second;
        const SummaryOptions options{.every = 1, .averages = {.from_zero = from_zero}};
        SummaryWriter undisturbed(whole, Small::layers, options);
        for (std::int64_t step = 0; step < 6; ++step)
            undisturbed.on_step(report_of(step, 3.0 / (1 + static_cast<double>(step))), run);
        SummaryWriter before(first, Small::layers, options);
        for (std::int64_t step = 0; step < 3; ++step)
            before.on_step(report_of(step, 3.0 / (1 + static_cast<double>(step))), run);
        SummaryWriter after(second, Small::layers, options);
        after.losses().restore(before.losses().state());
        for (std::int64_t step = 3; step < 6; ++step)
            after.on_step(report_of(step, 3.0 / (1 + static_cast<double>(step))), run);
        for (const char* tag : {"cross_entropy", "total_loss", "local3/weight_loss"}) {
            CHECK(second.scalars[5][tag] == whole.scalars[5][tag]);
            CHECK(second.scalars[3][tag] == whole.scalars[3][tag]);
        }
    }
}

TEST_CASE("a resumed run records its first step") {
    Kept kept;
    SummaryWriter writer(kept, Small::layers);
    Run run{.first_step = 1000};
    writer.on_begin(run);
    CHECK(kept.order.front() == "start 1000");
}

TEST_CASE("summaries are written every N steps, or never") {
    Kept kept;
    const SummaryWriter every(kept, Small::layers, {.every = 100});
    CHECK(every.should_inspect(0));
    CHECK_FALSE(every.should_inspect(99));
    CHECK(every.should_inspect(100));
    SummaryWriter never(kept, Small::layers, {.every = 0});
    CHECK_FALSE(never.should_inspect(0));
    Run run{};
    never.on_begin(run);
    never.on_step(report_of(0, 1.0), run);
    CHECK(kept.order.empty());
    CHECK(message_of<InvalidArgument>([&] { SummaryWriter(kept, Small::layers, {.every = -1}); }) ==
          "a summary must be written every 0 (never) or more steps, not -1");
    CHECK(message_of<InvalidArgument>([&] { SummaryWriter(kept, Small::layers, {.images = -2}); }) ==
          "the number of images of a summary must be 0 or more, not -2");
    CHECK(message_of<InvalidArgument>([] { LossAverages averages({.decay = 1.0}); }) ==
          "the decay of the losses' averages must be at least 0 and less than 1, not 1");
}

TEST_CASE("images are scaled as by TensorFlow: zero is grey if a value is negative, black otherwise") {
    Kept kept;
    SummaryWriter writer(kept, Small::layers, {.images = 2});
    FakeInspection<Small> inspection;
    const auto sample = [&](std::size_t i) { return inspection.samples.begin() + static_cast<std::ptrdiff_t>(i * 48); };
    *sample(0) = -2.0F;
    *(sample(0) + 1) = 1.0F;
    *sample(1) = 4.0F;
    *(sample(1) + 1) = 2.0F;
    *(sample(1) + 3) = std::numeric_limits<float>::quiet_NaN();
    writer.inspect(inspection);
    Run run{};
    writer.on_step(report_of(0, 1.0), run);
    const auto& signed_image = kept.images[0]["images/image/0"];
    CHECK(signed_image.height == 4);
    CHECK(signed_image.width == 4);
    CHECK(signed_image.channels == 3);
    CHECK(std::vector(signed_image.pixels.begin(), signed_image.pixels.begin() + 3) ==
          std::vector<std::uint8_t>{1, 191, 128});
    const auto& image = kept.images[0]["images/image/1"];
    CHECK(std::vector(image.pixels.begin(), image.pixels.begin() + 6) ==
          std::vector<std::uint8_t>{255, 127, 0, 255, 0, 0});
    CHECK(kept.images[0].count("images/image/2") == 0);
}

TEST_CASE("the first convolution's filters are one square of tiles, each in its place") {
    Kept kept;
    SummaryWriter writer(kept, Small::layers);
    FakeInspection<Small> inspection;
    // Filter 3 is all ones in green, the others zero: 5 filters are in 3 columns and 2 rows.
    const LayerInfo& conv = Small::layers[0];
    for (std::int64_t i = 0; i < 9; ++i)
        inspection.parameter_arena[static_cast<std::size_t>(conv.offsets[0] + (3 * 9 + i) * 3 + 1)] = 1.0F;
    writer.inspect(inspection);
    Run run{};
    writer.on_step(report_of(0, 1.0), run);
    const auto& grid = kept.images[0]["conv1/filters"];
    const std::int64_t tile = 3 * (400 / 9) + 1;
    REQUIRE(grid.width == 3 * tile - 1);
    REQUIRE(grid.height == 2 * tile - 1);
    const auto pixel = [&](std::int64_t y, std::int64_t x) {
        const auto at = grid.pixels.begin() + (y * grid.width + x) * 3;
        return std::vector<std::uint8_t>(at, at + 3);
    };
    const std::vector<std::uint8_t> green{0, 255, 0}, black{0, 0, 0};
    CHECK(pixel(tile, 0) == green);
    CHECK(pixel(2 * tile - 2, tile - 2) == green);
    CHECK(pixel(tile - 1, 0) == black);
    CHECK(pixel(tile, tile - 1) == black);
    CHECK(pixel(tile, tile) == black);
    CHECK(pixel(0, tile) == black);
}

TEST_CASE("a network without image input has no images") {
    Kept kept;
    SummaryWriter writer(kept, Plain::layers);
    FakeInspection<Plain> inspection;
    std::fill(inspection.activations[1].begin(), inspection.activations[1].end(), 0.0F);
    writer.inspect(inspection);
    Run run{};
    writer.on_step(report_of(0, 1.0), run);
    CHECK(kept.images[0].empty());
    CHECK(kept.scalars[0]["hidden/sparsity"] == 1.0);
}

TEST_CASE("a run has the same bits with summaries and without") {
    std::vector<float> samples;
    std::vector<std::int32_t> labels;
    for (std::uint32_t i = 0; i < 64; ++i) {
        for (std::uint64_t k = 0; k < 48; ++k)
            samples.push_back(uniform(RandomStream(1, RngDomain::user, i, k).words(0)[0]) - 0.5F);
        labels.push_back(static_cast<std::int32_t>(i % 2));
    }
    const InMemory data(Small::input_shape, samples, labels, 2);
    using Loss = LossCollection<CrossEntropy<2>, WeightDecay<0.004, "local3">>;
    const auto trained = [&](auto&&... callbacks) {
        DataParallel<Small, Loss, Sgd, ConcatMean, Host> training({.replicas = 2,
                                                                   .devices = 2,
                                                                   .device = {.threads = 1},
                                                                   .batch_size = 4,
                                                                   .seed = 1,
                                                                   .optimizer = {.learning_rate = 0.1}});
        InMemoryBatches batches(data, {.batch_size = 4, .replicas = 2, .seed = 1});
        fit(training, batches, {.steps = 20}, callbacks...);
        return training.state().parameters;
    };
    Kept kept;
    SummaryWriter writer(kept, Small::layers, {.every = 3});
    CHECK(trained(writer) == trained());
    CHECK(kept.histograms.size() == 7);
    for (auto& entry : kept.histograms) {
        CAPTURE(entry.first);
        auto& histograms = entry.second;
        CHECK(histograms.size() == 14);
        // A layer's output after its ReLU, for one replica's batch; that it varies says that it was computed.
        CHECK(histograms["conv1/activations"].count == 4 * 4 * 4 * 5);
        CHECK(histograms["conv1/activations"].minimum == 0.0);
        CHECK(histograms["conv1/activations"].maximum > 0.0);
        CHECK(histograms["local3/weights/gradients"].maximum > histograms["local3/weights/gradients"].minimum);
    }
    CHECK(writer.seconds() > 0);
}

static_assert(Callback<SummaryWriter>);
