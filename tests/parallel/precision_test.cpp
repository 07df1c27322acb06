// SPDX-License-Identifier: Apache-2.0
//
// A network under MixedBFloat16 trains as it does in float, to that type's rounding, and keeps every promise about
// bits.
#include <cupola/core/element_type.hpp>

#include "../test.hpp"

#include <cupola/models/resnet.hpp>
#include <cupola/models/tutorial_augmentation.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/parallel/synchronized.hpp>

#include "throws_with.hpp"
#include "tutorial.hpp"

namespace {

struct Narrow : InPrecision<MixedBFloat16, tutorial::AnyNet> {};
struct NarrowTutorial : InPrecision<MixedBFloat16, tutorial::Net> {};
static_assert(Network<Narrow> && Narrow::parameter_count == tutorial::AnyNet::parameter_count);
static_assert(10 * activation_bytes<NarrowTutorial>(128) < 6 * activation_bytes<tutorial::Net>(128));
static_assert(10 * activation_bytes<NarrowTutorial>(128, false) < 6 * activation_bytes<tutorial::Net>(128, false));

using Loss = std::conditional_t<sanitized, tutorial::SmallLoss, tutorial::Loss>;
template <class Net, class Statistics = FirstReplica>
using Training = DataParallel<Net, Loss, Sgd, ConcatMean, Host, Statistics>;

constexpr std::int64_t batch_size = 16, steps = sanitized ? 5 : 30;

bool has_bfloat16() {
    const std::string isa = Host::library_isa();
    return contains(isa, "bf16") || contains(isa, "amx");
}

auto batches_of(int replicas) {
    return Prefetch(TrainingBatches(tutorial::sample().train, TutorialAugmentation{},
                                    {.batch_size = batch_size, .replicas = replicas, .seed = 2}),
                    {});
}

template <class T>
typename T::Options options(int replicas, int devices) {
    return {.replicas = replicas,
            .devices = devices,
            .batch_size = batch_size,
            .seed = 2,
            .optimizer = {.learning_rate = 0.05, .momentum = 0.9},
            .moving_average = {.decay = 0.99}};
}

template <class T>
TrainingState trained(int replicas, int devices, std::vector<double>* losses = nullptr) {
    T training(options<T>(replicas, devices));
    auto batches = batches_of(replicas);
    for (std::int64_t i = 0; i < steps; ++i) {
        const double loss = training.step(batches).loss;
        if (losses != nullptr) losses->push_back(loss);
    }
    return training.state();
}

}  // namespace

TEST_CASE("the summary has the bytes of bfloat16") {
    CHECK(contains(summary<tutorial::Net>(128), "18.9 MB"));
    CHECK(contains(summary<NarrowTutorial>(128), "9.4 MB"));
    CHECK(!contains(summary<NarrowTutorial>(128), "18.9 MB"));
}

TEST_CASE("a step in bfloat16 has the loss and the gradient of float to bfloat16's rounding") {
    if (!has_bfloat16()) return;
    Training<Narrow> narrow(options<Training<Narrow>>(1, 1));
    Training<tutorial::AnyNet> wide(options<Training<tutorial::AnyNet>>(1, 1));
    auto batches = batches_of(1), again = batches_of(1);
    const double loss = narrow.step(batches).loss, expected = wide.step(again).loss;
    CHECK(loss == doctest::Approx(expected).epsilon(5e-3));
    CHECK(loss != expected);
    CHECK(tutorial::difference(narrow.gradient(0), wide.gradient(0)) < 3e-2);
    CHECK(tutorial::difference(narrow.parameters(), wide.parameters()) < 1e-3);
}

TEST_CASE("the losses of a training in bfloat16 are close to those in float") {
    if (!has_bfloat16()) return;
    std::vector<double> narrow, wide;
    (void)trained<Training<Narrow>>(1, 1, &narrow);
    (void)trained<Training<tutorial::AnyNet>>(1, 1, &wide);
    for (std::size_t i = 0; i < narrow.size(); ++i) {
        CAPTURE(i);
        CHECK(narrow[i] == doctest::Approx(wide[i]).epsilon(2e-2));
    }
}

TEST_CASE("in bfloat16 too, the number of devices changes no bit, and a restored training continues") {
    if (!has_bfloat16()) return;
    using T = Training<Narrow>;
    const TrainingState one = trained<T>(4, 1), two = trained<T>(4, 2);
    CHECK(one.parameters == two.parameters);
    CHECK(one.averages == two.averages);

    T first(options<T>(2, 1)), second(options<T>(2, 2));
    auto batches = batches_of(2), others = batches_of(2);
    for (int i = 0; i < 3; ++i) first.step(batches);
    second.restore(first.state());
    for (int i = 0; i < 3; ++i) {
        first.step(batches);
        second.step(others);
    }
    CHECK(first.parameters() == second.parameters());
}

TEST_CASE("evaluation, prediction and inspection give floats") {
    if (!has_bfloat16()) return;
    using T = Training<Narrow>;
    T narrow(options<T>(1, 1));
    Training<tutorial::AnyNet> wide(options<Training<tutorial::AnyNet>>(1, 1));
    auto batches = batches_of(1);
    std::vector<float> logits;
    HostContext context(0, {});
    const BatchView batch = batches(0, 0, context);
    const std::vector<float> images(batch.inputs(), batch.inputs() + batch_size * Narrow::input_shape.size());
    const std::vector<float> narrow_logits = narrow.predict({images.data(), batch_size}),
                             wide_logits = wide.predict({images.data(), batch_size});
    CHECK(tutorial::difference(narrow_logits, wide_logits) < 3e-2);
    narrow.step(batches, [&](const Inspection<Host>& inspection) {
        inspection.for_each_activation([&](std::size_t layer, std::span<const float> values) {
            CHECK(values.size() == static_cast<std::size_t>(batch_size * Narrow::layers[layer].output.size()));
            for (const float v : values)
                CHECK_MESSAGE(static_cast<float>(BFloat16(v)) == v, "an activation is no bfloat16");
            logits.assign(values.begin(), values.end());
        });
    });
    CHECK(logits.size() == static_cast<std::size_t>(batch_size * 10));
}

TEST_CASE("a loss that diverges in bfloat16 names the layer") {
    if (!has_bfloat16()) return;
    using T = Training<Narrow>;
    T training(options<T>(1, 1));
    std::vector<float> parameters = training.parameters();
    for (const LayerInfo& layer : Narrow::layers) {
        // Finite in float, and infinite once it is rounded to bfloat16.
        if (layer.name == "conv2")
            parameters[static_cast<std::size_t>(layer.offsets[1])] = std::numeric_limits<float>::max();
    }
    training.set_parameters(parameters);
    auto batches = batches_of(1);
    CHECK(contains(message_of<DivergedError>([&] { training.step(batches); }), "(conv2, Conv2d<"));
}

TEST_CASE("replicas that share their statistics do so in bfloat16 too") {
    if (!has_bfloat16()) return;
    struct NarrowResNet : InPrecision<MixedBFloat16, ResNet<8>> {};
    using ResNetLoss = LossCollection<CrossEntropy<11>, WeightDecayAll<2e-4>>;
    const auto run = [](auto network, int replicas, int devices, std::int64_t size) {
        using Net = decltype(network);
        DataParallel<Net, ResNetLoss, Sgd, ConcatMean, Host, Synchronized> training(
            {.replicas = replicas,
             .devices = devices,
             .batch_size = size,
             .seed = 3,
             .optimizer = {.learning_rate = 0.01}});
        std::vector<float> images(static_cast<std::size_t>(8 * Net::input_shape.size()), 0.0F);
        initialize(images, normal(1.0), 1, 1, 9, 0);
        const std::vector<std::int32_t> labels{0, 1, 2, 3, 4, 5, 6, 7};
        training.step([&](std::int64_t, int replica, HostContext&) {
            return BatchView{images.data() + replica * size * Net::input_shape.size(), labels.data() + replica * size,
                             size, Net::input_shape};
        });
        return std::pair(training.averaged_gradient(), training.state().buffers);
    };
    const auto [gradient, statistics] = run(NarrowResNet{}, 2, 1, 4);
    const auto [on_two, statistics_on_two] = run(NarrowResNet{}, 2, 2, 4);
    CHECK(gradient == on_two);
    CHECK(statistics == statistics_on_two);
    const auto [whole, statistics_of_whole] = run(ResNet<8>{}, 1, 1, 8);
    CHECK(tutorial::difference(statistics, statistics_of_whole) < 1e-2);
    CHECK(tutorial::difference(gradient, whole) < 2e-1);  // eight samples: normalising amplifies the rounding
}

TEST_CASE("evaluation fits the arena if folding a normalisation needs more memory than a step") {
    if (!has_bfloat16()) return;
    struct Wide : Sequential<Input<1, 1, 64>, Conv2d<256, 1>, BatchNorm2d<>, Conv2d<256, 1>, BatchNorm2d<>,
                             Conv2d<256, 1>, BatchNorm2d<>, Flatten, Linear<10>> {};
    struct WideNarrow : InPrecision<MixedBFloat16, Wide> {};
    DataParallel<WideNarrow, CrossEntropy<10>, Sgd, ConcatMean, Host> training({.batch_size = 2, .seed = 3});
    std::vector<float> samples(128, 0.5F);
    samples[0] = 1.0F;
    const std::vector<std::int32_t> labels{3, 4};
    const auto batches = [&](std::int64_t, int, HostContext&) {
        return BatchView{samples.data(), labels.data(), 2, Shape{1, 1, 64}};
    };
    training.step(batches);
    const Evaluation evaluation = training.evaluate(batches, 1);
    CHECK(evaluation.samples == 2);
    CHECK(std::isfinite(evaluation.loss));
}
