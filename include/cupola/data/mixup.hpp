// SPDX-License-Identifier: Apache-2.0
//
// Batches whose samples are mixed in pairs, with targets to match, as `MixUp` and `CutMix` of torchvision:
//
//   MixUp      x = k * x + (1 - k) * other                      Zhang et al. 2017, "mixup: beyond empirical risk
//              target = k * target + (1 - k) * other target     minimization"
//   CutMix     a rectangle of x is that of the other            Yun et al. 2019
//
//   Prefetch batches(MixUp(TrainingBatches(data, transform, {.batch_size = 32, .seed = 1}), {.mixup_alpha = 0.2}));
//   DataParallel<Net, SoftCrossEntropy<10>, Sgd, ConcatMean, Host> training({.batch_size = 32, .seed = 1});
//
// The other sample is the one before it in the batch; that of the first is the last. One k per batch is drawn from the
// beta distribution of (alpha, alpha). CutMix has a rectangle of the image's proportions and 1 - k of its area around a
// uniform point; what lies outside of the image is left out, and k of the targets is 1 - the area that remains.
//
// A target is one float per class, for SoftCrossEntropy, whose label smoothing is separate; the evaluation has
// OneHotTargets (data/one_hot_targets.hpp). A batch is a pure function of the seed, the step and the replica. Threads
// that fill parts of a batch make one sample more per part.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/philox.hpp>
#include <cupola/data/batches.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/impl/scratch.hpp>
#include <cupola/data/shuffle.hpp>
#include <cupola/data/transform_description.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct MixUpOptions {
    /// The parameters of the beta distributions; 0 is off. With both, half of the batches are mixed by each.
    double mixup_alpha = 1, cutmix_alpha = 0;
    /// The part of the batches that is mixed.
    double probability = 1;
};

/// How the samples of a batch are mixed: the part of each that it keeps in its target, and, by CutMix, the rectangle
/// of the other sample. Without a mix `kept` is 1.
struct DrawnMix {
    float kept = 1;
    bool cut = false;
    std::int64_t y = 0, x = 0, height = 0, width = 0;
};

namespace impl {

/// The logarithm of a number of the gamma distribution of shape `alpha`, from the blocks from `block` on. Marsaglia,
/// Tsang 2000, "A simple method for generating gamma variables"; below 1, that of alpha + 1 times u^(1 / alpha).
[[nodiscard]] inline double log_gamma_number(double alpha, const RandomStream& random, std::uint32_t block) {
    const auto above_zero = [](std::uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; };
    const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    const double factor = alpha < 1 ? std::log(above_zero(random.words(block)[0])) / alpha : 0;
    while (true) {
        const RandomWords<4> words = random.words(++block);
        const double normal = standard_normal(words[0], words[1]), root = 1 + c * normal;
        if (root <= 0) continue;
        const double v = root * root * root;
        if (std::log(above_zero(words[2])) < normal * normal / 2 + d * (1 - v + std::log(v)))
            return std::log(d * v) + factor;
    }
}

/// A number of the beta distribution of (alpha, alpha). The logarithms keep its precision where alpha is small, and
/// both numbers of the gamma distribution are too.
[[nodiscard]] inline double beta_number(double alpha, const RandomStream& random) {
    constexpr std::uint32_t first = 1, second = 1U << 16;
    return 1 / (1 + std::exp(log_gamma_number(alpha, random, second) - log_gamma_number(alpha, random, first)));
}

/// The transform of a source and the options by which its samples are mixed, for the description of a run.
template <class Transform>
struct MixedTransform {
    const Transform& transform;
    MixUpOptions options;

    [[nodiscard, gnu::cold]] std::string description() const {
        return text("MixUp, mixup_alpha ", exact_text(options.mixup_alpha), ", cutmix_alpha ",
                    exact_text(options.cutmix_alpha), ", probability ", exact_text(options.probability), "; ",
                    description_of_transform(transform));
    }
};

}  // namespace impl

/// The batches of a TrainingBatches with samples of floats and class labels.
template <Dataset Data, SampleTransform<Data> Transform, SampleOrder Order = ShuffledOrder>
class MixUp {
public:
    /// Throws InvalidArgument for options that are out of range, a batch of one sample, samples that are not floats, or
    /// not images where they are cut, and data without the number of its classes.
    explicit MixUp(TrainingBatches<Data, Transform, Order> source, MixUpOptions options = {})
        : source_(std::move(source)), options_(options) {
        for (const auto& [name, alpha] :
             {std::pair{"mixup_alpha", options.mixup_alpha}, std::pair{"cutmix_alpha", options.cutmix_alpha}}) {
            require(impl::is_finite(alpha) && (alpha == 0 || (alpha >= min_alpha && alpha <= max_alpha)), "the option ",
                    name, " of MixUp must be 0 (off) or ", min_alpha, " to ", max_alpha, ", not ", alpha);
        }
        require(options.mixup_alpha > 0 || options.cutmix_alpha > 0,
                "one of the options mixup_alpha and cutmix_alpha of MixUp must be above 0");
        require(impl::is_finite(options.probability) && options.probability >= 0 && options.probability <= 1,
                "the probability of MixUp must be 0 to 1, not ", options.probability);
        require(source_.batch_size() >= 2, "MixUp needs batches of at least 2 samples, not ", source_.batch_size());
        const Columns& columns = source_.columns();
        require(columns[0].type == ElementType::float32, "MixUp mixes samples of float32, not of ",
                to_string(columns[0].type));
        require(options.cutmix_alpha == 0 || columns[0].shape.rank == 3,
                "CutMix mixes images of height x width x channels, not ", to_string(columns[0].shape));
        std::int64_t classes = 0;
        if constexpr (requires { data().class_count(); }) classes = data().class_count();
        require(columns.size() == 2 && columns[1] == ColumnSpec{target_column, ElementType::int32, {1}} && classes >= 2,
                "MixUp needs class labels and the number of classes, and the data set ", data().name(),
                " has the columns ", names_of(columns), " and ", classes, " classes");
        columns_ = {columns[0], {target_column, ElementType::float32, {classes}}};
    }

    [[nodiscard]] const Data& data() const { return source_.data(); }
    [[nodiscard]] std::int64_t batch_size() const { return source_.batch_size(); }
    [[nodiscard]] int replicas() const { return source_.replicas(); }
    [[nodiscard]] std::int64_t samples_per_epoch() const { return source_.samples_per_epoch(); }
    [[nodiscard]] const Columns& columns() const { return columns_; }
    [[nodiscard]] const Order& order() const { return source_.order(); }
    [[nodiscard]] std::uint64_t seed() const { return source_.seed(); }
    [[nodiscard]] impl::MixedTransform<Transform> transform() const { return {source_.transform(), options_}; }

    /// The mix of a replica's batch of a step.
    [[nodiscard]] DrawnMix draw(std::int64_t step, int replica) const {
        const RandomStream random(seed(), RngDomain::sampling, static_cast<std::uint32_t>(replica) + 1,
                                  static_cast<std::uint64_t>(step));
        const RandomWords<4> words = random.words(0);
        DrawnMix mix;
        if (static_cast<double>(uniform(words[0])) >= options_.probability) return mix;
        mix.cut = options_.mixup_alpha == 0 || (options_.cutmix_alpha > 0 && words[1] >> 31 != 0);
        const double kept = impl::beta_number(mix.cut ? options_.cutmix_alpha : options_.mixup_alpha, random);
        mix.kept = static_cast<float>(kept);
        if (!mix.cut) return mix;
        const Shape& shape = columns_[0].shape;
        const double half = std::sqrt(1 - kept) / 2;
        const auto range = [&](std::uint32_t word, std::int64_t extent) {
            const std::int64_t center = uniform_below(word, static_cast<std::uint32_t>(extent));
            const auto reach = static_cast<std::int64_t>(half * static_cast<double>(extent));
            const std::int64_t begin = std::max<std::int64_t>(center - reach, 0);
            return std::pair{begin, std::min(center + reach, extent) - begin};
        };
        std::tie(mix.x, mix.width) = range(words[2], shape.width());
        std::tie(mix.y, mix.height) = range(words[3], shape.height());
        mix.kept = static_cast<float>(1 - static_cast<double>(mix.height * mix.width) /
                                              static_cast<double>(shape.height() * shape.width()));
        return mix;
    }

    /// Fills the samples [begin, end) of a batch; `batch` is the memory of the whole batch.
    void fill(std::int64_t step, int replica, std::int64_t begin, std::int64_t end, const BatchSpan& batch) const {
        if (begin >= end) return;
        const auto values = static_cast<std::size_t>(columns_[0].shape.size());
        const auto classes = static_cast<std::size_t>(columns_[1].shape.size());
        const DrawnMix mix = draw(step, replica);
        impl::Scratch<float> even(values), odd(values);
        float *other = even.data(), *own = odd.data();
        std::int32_t other_label = 0;
        if (mix.kept < 1) other_label = write(step, replica, (begin == 0 ? batch_size() : begin) - 1, other);
        for (std::int64_t i = begin; i < end; ++i) {
            auto* const to = reinterpret_cast<float*>(batch.at(0, i));
            const std::int32_t label = write(step, replica, i, to);
            const std::span target(reinterpret_cast<float*>(batch.at(1, i)), classes);
            std::ranges::fill(target, 0.0F);
            target[static_cast<std::size_t>(label)] += mix.kept;
            if (!(mix.kept < 1)) continue;
            target[static_cast<std::size_t>(other_label)] += 1 - mix.kept;
            std::copy_n(to, values, own);
            mix_into(mix, other, {to, values});
            std::swap(own, other);
            other_label = label;
        }
    }

private:
    static constexpr double min_alpha = 1e-3, max_alpha = 1e3;

    /// Writes sample i of a batch, and returns its label.
    std::int32_t write(std::int64_t step, int replica, std::int64_t i, float* to) const {
        std::array<SampleOfEpoch, 1> place;
        source_.samples_at(step, replica, i, place);
        std::int32_t label = 0;
        BatchSpan sample(source_.columns());
        sample.set_data(0, reinterpret_cast<std::byte*>(to));
        sample.set_data(1, reinterpret_cast<std::byte*>(&label));
        const RandomStream random(seed(), RngDomain::augmentation, place[0].epoch, place[0].index);
        impl::write_sample(source_.transform(), data(), place[0].index, random, sample, 0);
        copy_targets(data(), place[0].index, sample, 0);
        require<DataError>(label >= 0 && label < columns_[1].shape.size(), "sample ", place[0].index,
                           " of the data set ", data().name(), " has the label ", label, "; with ",
                           columns_[1].shape.size(), " classes labels are 0 to ", columns_[1].shape.size() - 1);
        return label;
    }

    void mix_into(const DrawnMix& mix, const float* other, std::span<float> own) const {
        if (!mix.cut) {
            const float kept = mix.kept, taken = 1 - kept;
            for (std::size_t k = 0; k < own.size(); ++k) own[k] = own[k] * kept + other[k] * taken;
            return;
        }
        const Shape& shape = columns_[0].shape;
        for (std::int64_t y = mix.y; y < mix.y + mix.height; ++y) {
            const std::int64_t first = (y * shape.width() + mix.x) * shape.channels();
            std::copy_n(other + first, mix.width * shape.channels(), own.data() + first);
        }
    }

    TrainingBatches<Data, Transform, Order> source_;
    MixUpOptions options_;
    Columns columns_;
};

}}  // namespace cupola::CUPOLA_ABI
