// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/data/cuda_batches.hpp, cupola/data/pinned_uploader.hpp
//
// Compares batches for `Cuda`, made by its kernels or uploaded, with those of the host: on the emulator, where the work of a
// stream runs later, and compiled by nvcc for a GPU.
#include "../test.hpp"

#include <cupola/data/batches.hpp>
#include <cupola/data/cuda_batches.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/evaluation.hpp>
#include <cupola/data/generator.hpp>
#include <cupola/data/in_memory.hpp>
#include <cupola/data/pinned_uploader.hpp>
#include <cupola/data/prefetch.hpp>
#include <cupola/data/random_crop_flip.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/models/tutorial_augmentation.hpp>

#include "../data/labelled.hpp"
#include "../data/support.hpp"
#include "../reference/compare.hpp"
#include "../throws_with.hpp"
#ifndef __CUDACC__
#include "emulator/control.hpp"
#endif

using cupola_tests::random_images;

namespace {

struct Batch {
    std::vector<float> samples;
    std::vector<std::int32_t> labels;
};

/// The batch in the device's memory after all queued work is complete.
Batch on_host(CudaContext& context, const BatchView& view, const Shape& shape) {
    CHECK(input_shape_of(view.columns()) == shape);
    Batch batch{std::vector<float>(static_cast<std::size_t>(view.size * shape.size())),
                std::vector<std::int32_t>(static_cast<std::size_t>(view.size))};
    Cuda::copy_to_host(context, reinterpret_cast<std::byte*>(batch.samples.data()),
                       reinterpret_cast<const std::byte*>(view.inputs()), batch.samples.size() * sizeof(float));
    Cuda::copy_to_host(context, reinterpret_cast<std::byte*>(batch.labels.data()),
                       reinterpret_cast<const std::byte*>(view.labels()), batch.labels.size() * sizeof(std::int32_t));
    return batch;
}

template <class Transform>
void check_samples(const Batch& made, const std::vector<float>& samples, const std::vector<std::int32_t>& labels) {
    CHECK(made.labels == labels);
    // A wrong position, flip or factor of one sample in a thousand would give 1e-3 or more.
    if constexpr (impl::Draws<Transform, impl::DrawnPiece>)
        CHECK(reference::same_bits(made.samples, samples));
    else
        CHECK(reference::distance(made.samples, samples) < 1e-6);
}

/// Compares `steps` steps of all replicas with those of TrainingBatches.
template <class Transform>
void check_training(const ImageSet& images, const Transform& transform, const BatchOptions& options, std::int64_t first,
                    std::int64_t steps) {
    CAPTURES(to_string(images.sample_shape()), options.batch_size, options.replicas);
    CudaContext context(0, {});
    const TrainingBatches expected(images, transform, options);
    CudaBatches<Transform> batches(images, transform, options);
    CHECK(batches.sample_shape() == expected.sample_shape());
    CHECK(batches.class_count() == 10);
    std::vector<float> samples(static_cast<std::size_t>(options.batch_size * expected.sample_shape().size()));
    std::vector<std::int32_t> labels(static_cast<std::size_t>(options.batch_size));
    for (std::int64_t step = first; step < first + steps; ++step) {
        CAPTURE(step);
        std::vector<BatchView> views;
        for (int replica = 0; replica < options.replicas; ++replica) views.push_back(batches(step, replica, context));
        for (int replica = 0; replica < options.replicas; ++replica) {
            CAPTURE(replica);
            const BatchView& view = views[static_cast<std::size_t>(replica)];
            REQUIRE(view.size == options.batch_size);
            expected.fill(step, replica, labelled(expected, samples.data(), labels.data()));
            check_samples<Transform>(on_host(context, view, expected.sample_shape()), samples, labels);
        }
    }
}

template <class Transform>
void check_evaluation(const ImageSet& images, const Transform& transform, std::int64_t batch_size) {
    CAPTURES(to_string(images.sample_shape()), batch_size);
    CudaContext context(0, {});
    EvaluationBatches expected(images, transform, batch_size);
    CudaEvaluationBatches<Transform> batches(images, transform, batch_size);
    batches.provide_slots(3);
    REQUIRE(batches.count() == expected.count());
    cupola_tests::SerialContext serial;
    for (std::int64_t index = 0; index < batches.count(); ++index) {
        CAPTURE(index);
        const BatchView host = expected(index, 0, serial), view = batches(index, static_cast<int>(index % 3), context);
        REQUIRE(view.size == host.size);
        CHECK(batches.size_of(index) == host.size);
        const auto size = static_cast<std::size_t>(host.size);
        const std::size_t values = size * static_cast<std::size_t>(expected.sample_shape().size());
        check_samples<Transform>(on_host(context, view, batches.sample_shape()),
                                 {host.inputs(), host.inputs() + values}, {host.labels(), host.labels() + size});
    }
}

/// Images whose bytes are all `value`.
ImageSet flat_images(std::int64_t count, std::int64_t height, std::int64_t width, std::uint8_t value) {
    return {"flat images",
            {height, width, 3},
            std::vector<std::uint8_t>(static_cast<std::size_t>(count * height * width * 3), value),
            std::vector<std::int32_t>(static_cast<std::size_t>(count), 9),
            {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}};
}

}  // namespace

namespace a_users {
struct Own {
    [[nodiscard]] Shape output(const Shape& input) const { return input; }
    void operator()(std::span<const std::uint8_t>, const Shape&, const RandomStream&, float*) const {}
};
/// Returns samples of other extents than it announces.
struct WrongSource {
    std::vector<float> samples = std::vector<float>(2);
    std::vector<std::int32_t> labels = std::vector<std::int32_t>(1);
    [[nodiscard]] std::int64_t batch_size() const { return 1; }
    [[nodiscard]] int replicas() const { return 1; }
    [[nodiscard]] Columns columns() const {
        return {{"input", ElementType::float32, {2, 2}}, {"target", ElementType::int32, {1}}};
    }
    template <class Context>
    BatchView operator()(std::int64_t, int, Context&) {
        return {samples.data(), labels.data(), 1, Shape{2, 1}};
    }
};
}  // namespace a_users

TEST_CASE("a GPU's training samples are the host's, over epochs' edges, for each replica, in colour and in grey") {
    for (const std::int64_t channels : {3, 1}) {
        const ImageSet images = random_images(37, 12, 14, 7, channels);
        for (const BatchOptions& options :
             {BatchOptions{.batch_size = 5, .replicas = 3, .seed = 8},
              BatchOptions{.batch_size = 37, .replicas = 1, .seed = 1},
              BatchOptions{.batch_size = 1, .replicas = 2, .seed = std::uint64_t{5} << 40}}) {
            check_training(images, TutorialAugmentation{.height = 9, .width = 8}, options, 0, 9);
            check_training(images, RandomCropFlip{.padding = 2}, options, 0, 9);
            check_training(images, CenterCrop{.height = 9, .width = 8}, options, 1'000'000, 4);
            check_training(images, ScaledPixels{}, options, 3, 3);
        }
    }
}

TEST_CASE("each augmentation can be switched off on a GPU too") {
    const ImageSet images = random_images(20, 12, 14);
    const BatchOptions options{.batch_size = 20};
    const TutorialAugmentation all{.height = 9, .width = 8};
    for (int off = 0; off < 32; ++off) {
        TutorialAugmentation some = all;
        some.crop = (off & 1) == 0;
        some.flip = (off & 2) == 0;
        some.brightness = (off & 4) == 0;
        some.contrast = (off & 8) == 0;
        some.standardize = (off & 16) == 0;
        check_training(images, some, options, 0, 2);
    }
    for (int off = 0; off < 4; ++off)
        check_training(images, RandomCropFlip{.padding = 3, .crop = (off & 1) == 0, .flip = (off & 2) == 0}, options, 0,
                       3);
    check_training(images, CenterCrop{.height = 12, .width = 14, .standardize = false}, options, 0, 2);
}

TEST_CASE("a GPU's samples are right for one pixel, for rows longer and shorter than a block, and for flat images") {
    const BatchOptions options{.batch_size = 6, .replicas = 1, .seed = 4};
    for (const Shape& shape :
         {Shape{1, 1, 3}, Shape{1, 64, 3}, Shape{3, 65, 3}, Shape{300, 2, 3}, Shape{2, 600, 3}, Shape{32, 32, 3},
          Shape{1, 64, 1}, Shape{3, 193, 1}, Shape{300, 2, 1}, Shape{2, 600, 1}, Shape{32, 32, 1}}) {
        const std::int64_t height = shape.height(), width = shape.width();
        const ImageSet images = random_images(6, height, width, 7, shape.channels());
        check_training(images, TutorialAugmentation{.height = height, .width = width}, options, 0, 2);
        check_training(images, TutorialAugmentation{.height = 1, .width = 1, .standardize = false}, options, 0, 2);
        check_training(images, TutorialAugmentation{.height = (height + 1) / 2, .width = (width + 1) / 2}, options, 0,
                       4);
        for (const std::int64_t padding : {0, 1, 4, 70})
            check_training(images, RandomCropFlip{.padding = padding}, options, 0, 4);
    }
    for (const std::uint8_t value : std::initializer_list<std::uint8_t>{0, 1, 255}) {
        check_training(flat_images(6, 16, 16, value),
                       TutorialAugmentation{.height = 12, .width = 12, .standardize = false}, options, 0, 1);
        check_training(flat_images(6, 16, 16, value), TutorialAugmentation{.height = 12, .width = 12}, options, 0, 1);
    }
    check_training(random_images(3, 700, 900), TutorialAugmentation{.height = 690, .width = 890}, {.batch_size = 3}, 0,
                   1);
}

TEST_CASE("a batch with more samples than a launch can carry is made by several launches") {
    const ImageSet images = random_images(2000, 4, 5);
    for (const std::int64_t size : {895, 896, 897, 1793}) {
        check_training(images, TutorialAugmentation{.height = 3, .width = 3},
                       {.batch_size = size, .replicas = 1, .seed = 2}, 0, 3);
    }
}

TEST_CASE("a GPU's batch does not depend on earlier requests") {
    const ImageSet images = random_images(50, 8, 8);
    const TutorialAugmentation augment{.height = 6, .width = 6};
    const BatchOptions options{.batch_size = 8, .replicas = 2, .seed = 3};
    CudaContext context(0, {});
    CudaBatches<TutorialAugmentation> batches(images, augment, options);
    std::vector<Batch> seen;
    for (const std::int64_t step : {7, 0, 900, 7, 0, 900})
        seen.push_back(on_host(context, batches(step, 1, context), batches.sample_shape()));
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(reference::same_bits(seen[i].samples, seen[i + 3].samples));
        CHECK(seen[i].labels == seen[i + 3].labels);
    }
}

TEST_CASE("a GPU's evaluation uses each sample once, in order, with a smaller last batch") {
    const ImageSet images = random_images(23, 12, 11);
    for (const std::int64_t size : {1, 5, 23, 100}) {
        check_evaluation(images, CenterCrop{.height = 8, .width = 6}, size);
        check_evaluation(images, ScaledPixels{}, size);
    }
    check_evaluation(random_images(2000, 3, 3), CenterCrop{.height = 3, .width = 3}, 1000);
}

TEST_CASE("images and options that GPU batches do not support are rejected") {
    const ImageSet images = random_images(10, 8, 8);
    const TutorialAugmentation augment{.height = 6, .width = 6};
    const auto refusal = [&](BatchOptions options) {
        return message_of<Error>([&] { CudaBatches<TutorialAugmentation>(images, augment, options); });
    };
    CHECK(refusal({.batch_size = 0}) == "a batch must have at least 1 sample, not 0");
    CHECK(refusal({.batch_size = 11}) ==
          "the global batch (1 replica of 11 samples) is larger than the data set random images, which has 10 samples");
    CHECK(message_of<InvalidArgument>([&] {
              CudaBatches<TutorialAugmentation>(images, {.height = 9, .width = 6}, {.batch_size = 5});
          }) == "a crop of 9 x 6 cannot be cut out of images of 8 x 8");
    CudaContext context(0, {});
    CudaBatches<TutorialAugmentation> batches(images, augment, {.batch_size = 5, .replicas = 2});
    CHECK(message_of<InvalidArgument>([&] { [[maybe_unused]] const BatchView view = batches(0, 2, context); }) ==
          "replica 2 is out of range: the number of replicas is 2");
    CHECK(message_of<InvalidArgument>([&] { [[maybe_unused]] const BatchView view = batches(-1, 0, context); }) ==
          "step -1 is out of range for batches of 10 samples");
    CudaEvaluationBatches<CenterCrop> evaluation(images, {.height = 6, .width = 6}, 4);
    CHECK(message_of<InvalidArgument>([&] { [[maybe_unused]] const BatchView view = evaluation(3, 0, context); }) ==
          "batch 3 is out of range: the number of batches is 3");
    CHECK(message_of<InvalidArgument>([&] { [[maybe_unused]] const BatchView view = evaluation(0, 1, context); }) ==
          "slot 1 is out of range: the number of slots is 1");
    CHECK(message_of<InvalidArgument>([&] {
              CudaEvaluationBatches<CenterCrop>(images, {.height = 6, .width = 6}, 0);
          }) == "a batch must have at least 1 sample, not 0");
    constexpr CompileTimeMessage message = impl::cuda_transform_diagnostic<a_users::Own>();
    CHECK(std::string_view(message.characters, message.size)
              .ends_with(
                  "Own cannot run on a GPU, but TutorialAugmentation, RandomCropFlip, CenterCrop and ScaledPixels can; "
                  "for any other transform use PinnedUploader with Prefetch"));
    static_assert(impl::cuda_transform_diagnostic<RandomCropFlip>().empty());
}

namespace {

/// Queues `steps` steps of all replicas without a wait, with a copy of each batch, and compares the copies with `expected`.
template <class Source, class Expected>
void check_uploader(Source& source, const Expected& expected, const PinnedUploaderOptions& options, std::int64_t first,
                    std::int64_t steps) {
    CAPTURE(options.ahead);
    CudaContext context(0, {});
    PinnedUploader<Source> batches(source, options);
    CHECK(batches.batch_size() == expected.batch_size());
    CHECK(batches.sample_shape() == expected.sample_shape());
    const auto values = static_cast<std::size_t>(expected.batch_size() * expected.sample_shape().size());
    const auto size = static_cast<std::size_t>(expected.batch_size()),
               count = static_cast<std::size_t>(steps * batches.replicas());
    CudaArena samples(count * values * sizeof(float), "the batches of a test"),
        labels(count * size * sizeof(std::int32_t), "their labels");
    auto* const samples_at = reinterpret_cast<float*>(samples.data());
    auto* const labels_at = reinterpret_cast<std::int32_t*>(labels.data());
    std::size_t place = 0;
    for (std::int64_t step = first; step < first + steps; ++step) {
        for (int replica = 0; replica < batches.replicas(); ++replica, ++place) {
            const BatchView view = batches(step, replica, context);
            REQUIRE(view.size == batches.batch_size());
            context.queue_copy(samples_at + place * values, view.inputs(), values * sizeof(float));
            context.queue_copy(labels_at + place * size, view.labels(), size * sizeof(std::int32_t));
        }
    }
    const Batch all =
        on_host(context, {samples_at, labels_at, static_cast<std::int64_t>(count * size), expected.sample_shape()},
                expected.sample_shape());
    std::vector<float> wanted(values);
    std::vector<std::int32_t> wanted_labels(size);
    place = 0;
    for (std::int64_t step = first; step < first + steps; ++step) {
        for (int replica = 0; replica < batches.replicas(); ++replica, ++place) {
            CAPTURES(step, replica);
            expected.fill(step, replica, labelled(expected, wanted.data(), wanted_labels.data()));
            CHECK(reference::same_bits(std::span(all.samples).subspan(place * values, values), wanted));
            CHECK(std::equal(wanted_labels.begin(), wanted_labels.end(),
                             all.labels.begin() + static_cast<std::ptrdiff_t>(place * size)));
        }
    }
}

}  // namespace

TEST_CASE("batches of workers, or of the calling thread, are copied to a GPU unchanged") {
    const ImageSet images = random_images(60, 8, 8);
    const TutorialAugmentation augment{.height = 6, .width = 6};
    const BatchOptions options{.batch_size = 7, .replicas = 2, .seed = 3};
    const TrainingBatches expected(images, augment, options);
    for (const int ahead : {1, 3, 5}) {
        for (const int workers : {0, 2}) {
            Prefetch prefetch(TrainingBatches(images, augment, options), {.workers = workers});
            check_uploader(prefetch, expected, {.ahead = ahead}, 4, 12);
        }
        TrainingBatches source(images, augment, options);
        check_uploader(source, expected, {.ahead = ahead}, 0, 12);
    }
}

TEST_CASE("samples in host memory are copied to a GPU") {
    std::vector<float> samples(30 * 5);
    std::vector<std::int32_t> labels(30);
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<float>(i) / 7;
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i);
    const InMemory data(Shape{5}, samples, labels, 30);
    const BatchOptions options{.batch_size = 4, .replicas = 2, .seed = 5};
    InMemoryBatches batches(data, options);
    check_uploader(batches, TrainingBatches(data, IdentityTransform{}, options), {}, 0, 10);
}

namespace {

/// Writes three random numbers as the input; four numbers, the index and three bytes as other columns.
struct Indexed {
    void operator()(std::int64_t index, const RandomStream& random, const BatchSpan& sample) const {
        const RandomWords<4> words = random.words(0);
        for (std::size_t i = 0; i < 3; ++i) sample.inputs()[i] = uniform(words[i]);
        for (std::size_t i = 0; i < 4; ++i) sample.data<float>("box")[i] = uniform(words[i]);
        *sample.data<std::int32_t>("index") = static_cast<std::int32_t>(index);
        for (std::size_t i = 0; i < 3; ++i)
            sample.data<std::uint8_t>("pixels")[i] = static_cast<std::uint8_t>(words[i]);
    }
};

}  // namespace

TEST_CASE("every column of what a function makes is copied to a GPU") {
    const Columns columns{{"index", ElementType::int32, {1}},
                          {"input", ElementType::float32, {3}},
                          {"box", ElementType::float32, {4}},
                          {"pixels", ElementType::uint8, {3}}};
    const BatchOptions options{.batch_size = 5, .replicas = 2, .seed = 3};
    const Generator<Indexed> source(columns, Indexed{}, options, 23);
    CudaContext context(0, {});
    for (const int workers : {0, 2}) {
        Prefetch prefetch(Generator<Indexed>(columns, Indexed{}, options, 23), {.workers = workers});
        PinnedUploader<decltype(prefetch)> batches(prefetch, {});
        CHECK(batches.samples_per_epoch() == 23);
        for (std::int64_t step = 2; step < 9; ++step) {
            for (int replica = 0; replica < 2; ++replica) {
                CAPTURES(step, replica);
                const BatchView view = batches(step, replica, context);
                REQUIRE(view.columns() == columns);
                std::vector<std::byte> wanted[4], copied[4];
                BatchSpan span(columns);
                for (std::size_t c = 0; c < 4; ++c) {
                    wanted[c].resize(5 * columns[c].bytes());
                    copied[c].resize(wanted[c].size());
                    span.set_data(c, wanted[c].data());
                    Cuda::copy_to_host(context, copied[c].data(), static_cast<const std::byte*>(view.data(c)),
                                       copied[c].size());
                }
                source.fill(step, replica, 0, 5, span);
                for (std::size_t c = 0; c < 4; ++c) CHECK(copied[c] == wanted[c]);
            }
        }
    }
}

TEST_CASE("batches that cannot be copied are rejected") {
    const ImageSet images = random_images(60, 8, 8);
    TrainingBatches source(images, CenterCrop{.height = 6, .width = 6}, {.batch_size = 7});
    using Batches = PinnedUploader<decltype(source)>;
    CHECK(message_of<InvalidArgument>([&] { Batches(source, {.ahead = 0}); }) ==
          "PinnedUploader's ahead must be 1 to 64 batches, not 0");
    CudaContext context(0, {});
    Batches batches(source);
    CHECK(message_of<InvalidArgument>([&] { [[maybe_unused]] const BatchView view = batches(0, 1, context); }) ==
          "replica 1 is out of range: the number of replicas is 1");
    a_users::WrongSource wrong_source;
    PinnedUploader<a_users::WrongSource> other(wrong_source);
    CHECK(message_of<InvalidArgument>([&] { [[maybe_unused]] const BatchView view = other(0, 0, context); }) ==
          "a batch has samples of 2 x 1, and their source takes 2 x 2");
#ifndef __CUDACC__
    // A GPU that makes no progress.
    Batches waiting(source, {.ahead = 2, .timeout_seconds = 0.01});
    emulator::set_pace(0);
    emulator::set_eager(false);
    CHECK(waiting(0, 0, context).size == 7);
    CHECK(waiting(1, 0, context).size == 7);
    CHECK(
        message_of<DeviceError>([&] { [[maybe_unused]] const BatchView view = waiting(2, 0, context); }) ==
        "the batch of step 2 and replica 0 has waited 0.01 s for the GPU to copy one that was queued 2 batches earlier");
    emulator::set_pace(3);
    emulator::set_eager(true);
    context.synchronize();
#endif
}

#ifndef __CUDACC__
TEST_CASE("each GPU has the images once, and batches stay within its memory") {
    const int before = emulator::overruns();
    {
        const ImageSet images = random_images(40, 8, 8);
        const RandomCropFlip augment{.padding = 1};
        const BatchOptions options{.batch_size = 5, .replicas = 4, .seed = 3};
        CudaBatches<RandomCropFlip> batches(images, augment, options);
        const TrainingBatches expected(images, augment, options);
        std::vector<float> samples(5 * 192);
        std::vector<std::int32_t> labels(5);
        for (const int device : {2, 0}) {
            CudaContext context(device, {});
            const auto scope = context.team();
            for (const int replica : {device, device + 1}) {
                const Batch made = on_host(context, batches(6, replica, context), batches.sample_shape());
                expected.fill(6, replica, labelled(expected, samples.data(), labels.data()));
                CHECK(reference::same_bits(made.samples, samples));
                CHECK(made.labels == labels);
            }
            const std::int64_t waits = emulator::waits();
            for (std::int64_t step = 0; step < 20; ++step) CHECK(batches(step, device, context).size == 5);
            CHECK(emulator::waits() == waits);
            context.synchronize();
        }
    }
    CHECK(emulator::overruns() == before);
}
#endif
