// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/in_memory.hpp>
#include <cupola/data/mixup.hpp>
#include <cupola/data/prefetch.hpp>

#include "../test.hpp"

#include "support.hpp"

using cupola_tests::random_images;

namespace {

using Source = TrainingBatches<ImageSet, IdentityTransform>;

Source source(const ImageSet& set, std::int64_t batch_size = 5, int replicas = 2) {
    return {set, IdentityTransform{}, {.batch_size = batch_size, .replicas = replicas, .seed = 7}};
}

/// A label that is none of the classes, which was not checked before.
struct Unchecked {
    std::string_view name() const { return "unchecked"; }
    std::int64_t size() const { return 4; }
    Shape sample_shape() const { return {1}; }
    std::span<const float> sample(std::int64_t) const { return {&value, 1}; }
    std::int32_t label(std::int64_t i) const { return static_cast<std::int32_t>(i); }
    std::int64_t class_count() const { return 3; }
    float value = 1;
};

/// The samples and the targets of a whole batch.
template <class Batches>
std::pair<std::vector<float>, std::vector<float>> mixed(const Batches& batches, std::int64_t step, int replica) {
    const impl::BatchBuffer buffer(batches.batch_size(), batches.columns());
    batches.fill(step, replica, 0, batches.batch_size(), buffer.span());
    const auto values = static_cast<std::size_t>(batches.batch_size() * batches.columns()[0].shape.size());
    const auto targets = static_cast<std::size_t>(batches.batch_size() * batches.columns()[1].shape.size());
    const auto* const inputs = buffer.span().inputs();
    const auto* const soft = buffer.span().template data<float>("target");
    return {{inputs, inputs + values}, {soft, soft + targets}};
}

/// The same by loops over a batch that is not mixed, rolled by one sample.
std::pair<std::vector<float>, std::vector<float>> oracle(const ImageSet& set, const DrawnMix& mix, std::int64_t step,
                                                         int replica) {
    const Source plain = source(set);
    const impl::BatchBuffer buffer(5, plain.columns());
    plain.fill(step, replica, buffer.span());
    const Shape shape = set.sample_shape();
    std::vector<float> values, targets(5 * 10);
    for (std::int64_t i = 0; i < 5; ++i) {
        const std::int64_t other = (i + 4) % 5;
        for (std::int64_t k = 0; k < shape.size(); ++k) {
            const float x = buffer.span().inputs()[i * shape.size() + k];
            const float y = buffer.span().inputs()[other * shape.size() + k];
            const std::int64_t row = k / shape.channels() / shape.width(),
                               column = k / shape.channels() % shape.width();
            const bool inside =
                row >= mix.y && row < mix.y + mix.height && column >= mix.x && column < mix.x + mix.width;
            values.push_back(mix.cut ? (inside ? y : x) : x * mix.kept + y * (1 - mix.kept));
        }
        targets[static_cast<std::size_t>(i * 10 + buffer.span().labels()[i])] += mix.kept;
        targets[static_cast<std::size_t>(i * 10 + buffer.span().labels()[other])] += 1 - mix.kept;
    }
    return {values, targets};
}

static_assert(BatchSource<MixUp<ImageSet, IdentityTransform>>);

}  // namespace

TEST_CASE("samples and targets are mixed with those of the sample before, as by loops over the batch") {
    const ImageSet set = random_images(23, 6, 9);
    int cuts = 0, mixes = 0;
    for (const MixUpOptions& options : {MixUpOptions{.mixup_alpha = 0.4},
                                        {.mixup_alpha = 0, .cutmix_alpha = 1},
                                        {.mixup_alpha = 0.2, .cutmix_alpha = 1, .probability = 0.7}}) {
        const MixUp batches(source(set), options);
        CHECK(batches.columns() ==
              Columns{{"input", ElementType::float32, {6, 9, 3}}, {"target", ElementType::float32, {10}}});
        for (std::int64_t step = 0; step < 12; ++step) {
            for (const int replica : {0, 1}) {
                const DrawnMix mix = batches.draw(step, replica);
                (mix.cut ? cuts : mixes) += mix.kept < 1 ? 1 : 0;
                const auto [values, targets] = mixed(batches, step, replica);
                const auto [expected, soft] = oracle(set, mix, step, replica);
                for (std::size_t i = 0; i < values.size(); ++i) CHECK(std::abs(values[i] - expected[i]) < 1e-4F);
                CHECK(targets == soft);
                for (std::size_t i = 0; i < 5; ++i) {
                    const auto sum = std::accumulate(targets.begin() + static_cast<std::ptrdiff_t>(10 * i),
                                                     targets.begin() + static_cast<std::ptrdiff_t>(10 * i + 10), 0.0F);
                    CHECK(std::abs(sum - 1) < 1e-6F);
                }
            }
        }
    }
    CHECK((cuts > 24 && mixes > 24));  // some of the third kind of batches, too, are of each
}

TEST_CASE("a batch is the same for any number of workers, and each replica and step has a mix of its own") {
    const ImageSet set = random_images(40, 12, 12);
    const MixUp batches(source(set, 19), {.mixup_alpha = 1, .cutmix_alpha = 1});
    std::map<std::array<std::int64_t, 5>, int> mixes;
    for (const int workers : {0, 1, 3}) {
        Prefetch prefetched(MixUp(source(set, 19), {.mixup_alpha = 1, .cutmix_alpha = 1}), {.workers = workers});
        cupola_tests::SerialContext context;
        for (std::int64_t step = 0; step < 5; ++step) {
            for (const int replica : {0, 1}) {
                const auto [values, targets] = mixed(batches, step, replica);
                const BatchView view = prefetched(step, replica, context);
                CHECK(std::ranges::equal(values, std::span(view.inputs(), values.size())));
                CHECK(std::ranges::equal(targets, std::span(view.data<float>("target"), targets.size())));
                const DrawnMix mix = batches.draw(step, replica);
                ++mixes[{std::bit_cast<std::int32_t>(mix.kept), mix.y, mix.x, mix.height, mix.width}];
            }
        }
    }
    CHECK(mixes.size() == 10);
}

TEST_CASE("the part that is kept has the beta distribution") {
    const ImageSet set = random_images(4, 200, 300, 7, 1);
    constexpr int draws = 4000;
    for (const double alpha : {0.05, 0.2, 1.0, 8.0}) {
        CAPTURE(alpha);
        const MixUp batches(source(set, 4, 1), {.mixup_alpha = alpha});
        double mean = 0, square = 0;
        for (std::int64_t step = 0; step < draws; ++step) {
            const double kept = batches.draw(step, 0).kept;
            CHECK((kept >= 0 && kept <= 1));
            mean += kept / draws;
            square += (kept - 0.5) * (kept - 0.5) / draws;
        }
        const double variance = 1 / (4 * (2 * alpha + 1));              // of the beta distribution of (alpha, alpha)
        CHECK(std::abs(mean - 0.5) < 5 * std::sqrt(variance / draws));  // five deviations, here and below
        // Its kurtosis is 3 - 6 / (2 alpha + 3), so that (k - 1/2)^2 has the deviation variance * sqrt(kurtosis - 1).
        CHECK(std::abs(square / variance - 1) < 5 * std::sqrt(4 * alpha / (2 * alpha + 3) / draws));
    }
    // With alpha 1, 1 - k is uniform; the rectangle is cut at the edges of the image.
    const MixUp cuts(source(set, 4, 1), {.mixup_alpha = 0, .cutmix_alpha = 1});
    double y = 0, largest = 0;
    for (std::int64_t step = 0; step < draws; ++step) {
        const DrawnMix mix = cuts.draw(step, 0);
        CHECK((mix.cut && mix.y >= 0 && mix.x >= 0 && mix.y + mix.height <= 200 && mix.x + mix.width <= 300));
        CHECK(mix.kept == static_cast<float>(1 - static_cast<double>(mix.height * mix.width) / 60000));
        y += (static_cast<double>(mix.y) + static_cast<double>(mix.height) / 2) / draws;
        largest = std::max(largest, static_cast<double>(mix.height * mix.width) / 60000);
    }
    // The centre is uniform, or nearer to that of the image where the rectangle is cut off, to within half a pixel.
    CHECK(std::abs(y - 100) < 0.5 + 5 * 200 / std::sqrt(12.0 * draws));
    CHECK(largest > 0.8);
    int mixed_batches = 0;
    const MixUp some(source(set, 4, 1), {.probability = 0.25});
    for (std::int64_t step = 0; step < draws; ++step) mixed_batches += some.draw(step, 0).kept < 1 ? 1 : 0;
    CHECK(std::abs(mixed_batches - draws / 4) < 5 * std::sqrt(draws * 0.25 * 0.75));
}

TEST_CASE("options that are out of range and data that cannot be mixed are errors") {
    const ImageSet set = random_images(12, 3, 3);
    const double nan = impl::not_a_number<double>();
    const auto message = [&](const MixUpOptions& options) {
        return message_of<InvalidArgument>([&] { const MixUp batches(source(set), options); });
    };
    CHECK(message({.mixup_alpha = -1}) == "the option mixup_alpha of MixUp must be 0 (off) or 0.001 to 1000, not -1");
    CHECK(message({.cutmix_alpha = nan}).starts_with("the option cutmix_alpha of MixUp must be 0 (off) or 0.001 to"));
    CHECK(message({.mixup_alpha = 1e-5}).starts_with("the option mixup_alpha of MixUp must be 0 (off) or 0.001 to"));
    CHECK(message({.mixup_alpha = 0}) == "one of the options mixup_alpha and cutmix_alpha of MixUp must be above 0");
    CHECK(message({.probability = 1.5}) == "the probability of MixUp must be 0 to 1, not 1.5");
    CHECK(message({.probability = -0.5}) == "the probability of MixUp must be 0 to 1, not -0.5");
    CHECK(message({.probability = nan}).starts_with("the probability of MixUp must be 0 to 1, not"));
    CHECK(message_of<InvalidArgument>([&] { const MixUp batches(source(set, 1)); }) ==
          "MixUp needs batches of at least 2 samples, not 1");
    CHECK(message_of<InvalidArgument>([&] {
              const MixUp batches(TrainingBatches(set, AsStored{}, {.batch_size = 4, .seed = 1}));
          }) == "MixUp mixes samples of float32, not of uint8");
    const std::vector<float> samples(12), prices(6);
    const std::vector<std::int32_t> labels{0, 1, 2, 0, 1, 2};
    const InMemory classes({2}, samples, labels, 3), numbers({2}, samples, {1}, prices);
    const auto of = [](const InMemory& data) {
        return TrainingBatches(data, IdentityTransform{}, {.batch_size = 4, .seed = 1});
    };
    CHECK(message_of<InvalidArgument>([&] { const MixUp batches(of(numbers)); }) ==
          "MixUp needs class labels and the number of classes, and the data set in memory has the columns input, "
          "target and 0 classes");
    CHECK(message_of<InvalidArgument>([&] { const MixUp batches(of(classes), {.cutmix_alpha = 1}); }) ==
          "CutMix mixes images of height x width x channels, not 2");
    const Unchecked unchecked;
    const MixUp wrong(TrainingBatches(unchecked, IdentityTransform{}, {.batch_size = 4, .seed = 1}),
                      {.probability = 0});
    const impl::BatchBuffer buffer(4, wrong.columns());
    CHECK(message_of<DataError>([&] { wrong.fill(0, 0, 0, 4, buffer.span()); }) ==
          "sample 3 of the data set unchecked has the label 3; with 3 classes labels are 0 to 2");
    const MixUp rows(of(classes));
    CHECK(rows.columns()[1].shape == Shape{3});
    CHECK(rows.transform().description() == "MixUp, mixup_alpha 1, cutmix_alpha 0, probability 1; none");
    CHECK(MixUp(of(classes), {.mixup_alpha = 0.1234567}).transform().description() ==
          "MixUp, mixup_alpha 0.1234567, cutmix_alpha 0, probability 1; none");
}
