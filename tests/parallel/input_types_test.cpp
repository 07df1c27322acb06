// SPDX-License-Identifier: Apache-2.0
//
// Trainings of a network that reads ids and bytes, on each device: they learn, replicas with unequal batches equal one, and an
// id that is out of range is an error that changes nothing.
#include "../test.hpp"

#include <cupola/layers/embedding.hpp>
#include <cupola/layers/from_bytes.hpp>
#include <cupola/layers/global_avg_pool2d.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/optim/sgd.hpp>
#include <cupola/parallel/data_parallel.hpp>

#include "../devices.hpp"
#include "../instructions.hpp"
#include "../throws_with.hpp"

namespace {

constexpr std::int64_t word_count = 12, words_per_sample = 6, pixels_per_sample = 5, kinds = 3;

/// Word 0 is a padding. The bytes of a sample are not a multiple of 4.
struct TextAndPixels
    : Sequential<Input<1, words_per_sample>, Named<"table", Embedding<word_count, 8, padding_id(0)>>, GlobalAvgPool2d,
                 Keep<"words">, FromInput<"pixels", pixels_per_sample>, FromBytes<means(128), deviations(64)>,
                 ConcatWith<"words">, Named<"out", Linear<kinds>>> {};
struct NarrowTextAndPixels : InPrecision<MixedBFloat16, TextAndPixels> {};

/// The kind of a sample is that of its words: words 1 to 4 are mostly of kind 0, and so on. The last pixel tells too.
struct TypedSamples {
    std::int64_t count;
    std::vector<std::int32_t> words, targets;
    std::vector<std::uint8_t> pixels;

    TypedSamples(std::int64_t samples, std::uint64_t seed) : count(samples) {
        for (std::int64_t i = 0; i < samples; ++i) {
            const auto draw = [&, at = 0U]() mutable {
                return RandomStream(seed, RngDomain::user, at++, static_cast<std::uint64_t>(i)).words(0)[0];
            };
            auto next = draw;
            const auto kind = static_cast<std::int32_t>(uniform_below(next(), kinds));
            targets.push_back(kind);
            for (std::int64_t k = 0; k < words_per_sample; ++k) {
                const bool any = uniform_below(next(), 4) == 0;
                words.push_back(any ? static_cast<std::int32_t>(uniform_below(next(), word_count))
                                    : std::min(static_cast<std::int32_t>(word_count - 1),
                                               kind * 4 + static_cast<std::int32_t>(uniform_below(next(), 4))));
            }
            for (std::int64_t k = 0; k < pixels_per_sample; ++k)
                pixels.push_back(static_cast<std::uint8_t>(uniform_below(next(), 256)));
        }
    }
};

/// The samples in the memory of a device.
template <class D>
class TypedBatches {
public:
    using Context = typename D::Kernels::Context;

    explicit TypedBatches(const TypedSamples& samples)
        : context_(0, device_options<typename D::Kernels>(1)),
          words_(copied(samples.words)),
          targets_(copied(samples.targets)),
          pixels_(copied(samples.pixels)) {}

    [[nodiscard]] BatchView view(std::int64_t begin, std::int64_t size) const {
        return {size,
                {{{"pixels", ElementType::uint8, {pixels_per_sample}}, pixels_.data() + begin * pixels_per_sample},
                 {{"target", ElementType::int32, {1}}, ints(targets_) + begin},
                 {{"input", ElementType::int32, {1, words_per_sample}}, ints(words_) + begin * words_per_sample}}};
    }

private:
    using Arena = typename D::Kernels::Arena;

    template <class V>
    [[nodiscard]] Arena copied(const std::vector<V>& values) {
        Arena arena(values.size() * sizeof(V), "a test");
        D::Kernels::copy_from_host(context_, arena.data(), reinterpret_cast<const std::byte*>(values.data()),
                                   values.size() * sizeof(V));
        return arena;
    }
    [[nodiscard]] static const std::int32_t* ints(const Arena& arena) {
        return reinterpret_cast<const std::int32_t*>(const_cast<Arena&>(arena).data());
    }

    Context context_;
    mutable Arena words_, targets_, pixels_;
};

template <class Net, class D>
using TypedTraining = DataParallel<Net, CrossEntropy<kinds>, Sgd, ConcatMean, D>;

template <class Net, class D>
[[nodiscard]] typename TypedTraining<Net, D>::Options typed_options(int replicas, std::int64_t batch_size) {
    typename TypedTraining<Net, D>::Options options;
    options.replicas = replicas;
    options.batch_size = batch_size;
    options.evaluation_batch_size = 64;
    options.seed = 3;
    options.optimizer = {.learning_rate = 0.5};
    return options;
}

/// The accuracy on other samples after a training.
template <class Net, class D>
[[nodiscard]] double trained_accuracy() {
    const TypedSamples samples(256, 1), others(64, 2);
    const TypedBatches<D> batches(samples), test(others);
    TypedTraining<Net, D> training(typed_options<Net, D>(2, 16));
    const auto source = [&](std::int64_t step, int replica, typename D::Kernels::Context&) {
        return batches.view((step * 2 + replica) * 16 % 256, 16);
    };
    const double first = training.step(source).loss;
    for (int step = 1; step < 40; ++step) (void)training.step(source);
    CHECK(training.step(source).loss < 0.5 * first);
    CHECK(training.not_captured() == "");
    const Evaluation evaluation =
        training.evaluate([&](std::int64_t, int, typename D::Kernels::Context&) { return test.view(0, 64); }, 1);
    const BatchView host(64, {{{"input", ElementType::int32, {1, words_per_sample}}, others.words.data()},
                              {{"pixels", ElementType::uint8, {pixels_per_sample}}, others.pixels.data()}});
    const std::vector<float> logits = training.predict(host);
    std::int64_t correct = 0;
    for (std::size_t i = 0; i < 64; ++i) {
        const float* const of_sample = logits.data() + i * kinds;
        correct += std::max_element(of_sample, of_sample + kinds) - of_sample == others.targets[i] ? 1 : 0;
    }
    CHECK(correct == evaluation.correct);
    return static_cast<double>(evaluation.correct) / 64;
}

}  // namespace

TYPED_TEST_CASE("a network of ids and bytes learns kinds of samples, in float and bfloat16", D, Devices) {
    CHECK(trained_accuracy<TextAndPixels, D>() >= 0.9);
    if (!D::host_memory || computes_bfloat16()) CHECK(trained_accuracy<NarrowTextAndPixels, D>() >= 0.9);
}

TYPED_TEST_CASE("replicas with unequal batches of ids and bytes equal one replica", D, Devices) {
    const TypedSamples samples(24, 5);
    const TypedBatches<D> batches(samples);
    auto several = typed_options<TextAndPixels, D>(3, 5);
    const std::vector<std::int64_t> sizes{2, 1}, begins{0, 5, 7}, counts{5, 2, 1};
    several.other_batch_sizes = sizes;
    TypedTraining<TextAndPixels, D> three(several), one(typed_options<TextAndPixels, D>(1, 8));
    for (std::int64_t step = 0; step < 3; ++step) {
        const double loss_of_three = three
                                         .step([&](std::int64_t, int replica, typename D::Kernels::Context&) {
                                             const auto r = static_cast<std::size_t>(replica);
                                             return batches.view(step * 8 + begins[r], counts[r]);
                                         })
                                         .loss;
        const double loss =
            one.step([&](std::int64_t, int, typename D::Kernels::Context&) { return batches.view(step * 8, 8); }).loss;
        CHECK(std::abs(loss_of_three - loss) < 1e-5);
    }
    const std::vector<float> of_three = three.parameters(), of_one = one.parameters();
    double largest = 0;
    for (std::size_t i = 0; i < of_one.size(); ++i)
        largest = std::max(largest, std::abs(static_cast<double>(of_three[i]) - static_cast<double>(of_one[i])));
    CHECK(largest < 1e-5);
}

TYPED_TEST_CASE("an id that is out of range is an error of the step, and changes nothing", D, Devices) {
    const TypedSamples good(16, 7);
    TypedSamples bad = good;
    bad.words[9 * words_per_sample + 4] = word_count;
    bad.words[11 * words_per_sample] = -3;
    const TypedBatches<D> batches(good), with_bad_ones(bad);
    TypedTraining<TextAndPixels, D> training(typed_options<TextAndPixels, D>(2, 8));
    using Context = typename D::Kernels::Context;
    const auto of = [](const TypedBatches<D>& from) {
        return [&from](std::int64_t, int replica, Context&) { return from.view(replica * 8, 8); };
    };
    for (int step = 0; step < 4; ++step) (void)training.step(of(batches));
    const std::vector<float> before = training.parameters();
    CHECK(contains(message_of<InvalidArgument>([&] { (void)training.step(of(with_bad_ones)); }),
                   "in the batch of replica 1 in step 4 sample 1 has the id 12 at [0, 4], and ids are 0 to 11"));
    CHECK(training.parameters() == before);
    CHECK(contains(message_of<InvalidArgument>([&] { (void)training.evaluate(of(with_bad_ones), 1); }),
                   "(no exception)"));  // the first batch has good ids alone
    CHECK(contains(message_of<InvalidArgument>([&] {
                       (void)training.evaluate([&](std::int64_t, int, Context&) { return with_bad_ones.view(10, 4); },
                                               1);
                   }),
                   "in batch 0 sample 1 has the id -3 at [0, 0], and ids are 0 to 11"));
    const BatchView host(
        1, {{{"input", ElementType::int32, {1, words_per_sample}}, bad.words.data() + 11 * words_per_sample},
            {{"pixels", ElementType::uint8, {pixels_per_sample}}, bad.pixels.data()}});
    CHECK(contains(message_of<InvalidArgument>([&] { (void)training.predict(host); }),
                   "sample 0 has the id -3 at [0, 0], and ids are 0 to 11"));
    (void)training.step(of(batches));  // it goes on
    CHECK(training.parameters() != before);
}
