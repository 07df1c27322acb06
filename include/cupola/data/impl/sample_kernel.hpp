// SPDX-License-Identifier: Apache-2.0
//
// The kernel that makes samples of images: a block of 192 threads makes one sample. The first thread draws the random
// numbers that the host's pipeline draws; each thread then takes every 192nd byte of the piece, twice where the pixels
// depend on sums: for the sums, which are exact in integers, and for y = scale * x + shift[channel]. As 192 is a
// multiple of 3, a thread has one channel throughout; affine_pixels.hpp describes the three sums and shifts of an image
// with 1 channel.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <cupola/core/philox.hpp>
#include <cupola/data/augmentation.hpp>
#include <cupola/data/impl/affine_pixels.hpp>
#include <cupola/data/random_crop_flip.hpp>
#include <cupola/data/shuffle.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A transform that a kernel can compute too: it has a function that draws its numbers for an image of these extents.
template <class T, class Drawn>
concept Draws = requires(const T& transform, std::int64_t height, std::int64_t width, const RandomStream& random) {
    { transform.draw(height, width, random) } -> std::same_as<Drawn>;
};
template <class T>
concept DrawsForKernels = Draws<T, DrawnAugmentation> || Draws<T, DrawnPiece>;

/// A data set in the device's memory: images of height x width x channels bytes, one after another.
struct ImagesOnDevice {
    const std::uint8_t* pixels = nullptr;
    const std::int32_t* labels = nullptr;
    std::int32_t height = 0, width = 0, channels = 3;  ///< channels: 1 or 3, as an ImageSet has
};

/// The samples of a part of a training's batch, which its seed has chosen: what a launch carries by value.
struct DrawnPlaces {
    static constexpr std::int64_t capacity = 896;
    std::uint64_t seed = 0;
    std::uint32_t epoch = 0;
    std::int32_t of_epoch = 0;  ///< those from here on are of the next
    std::uint32_t index[capacity]{};

    [[nodiscard]] CUPOLA_HOST_DEVICE SampleOfEpoch at(std::int64_t i) const {
        return {index[i], epoch + (i < of_epoch ? 0 : 1)};
    }
};

/// `places` is not empty, has at most `capacity`, and goes over one epoch's edge at most.
[[nodiscard]] inline DrawnPlaces drawn_places(std::span<const SampleOfEpoch> places, std::uint64_t seed) {
    DrawnPlaces drawn;
    drawn.seed = seed;
    drawn.epoch = places.front().epoch;
    for (std::size_t i = 0; i < places.size(); ++i) {
        drawn.index[i] = places[i].index;
        drawn.of_epoch += places[i].epoch == drawn.epoch ? 1 : 0;
    }
    return drawn;
}

/// An evaluation's: one after another.
struct NextPlaces {
    std::uint64_t seed = 0;
    std::int64_t first = 0;

    [[nodiscard]] CUPOLA_HOST_DEVICE SampleOfEpoch at(std::int64_t i) const {
        return {static_cast<std::uint32_t>(first + i), 0};
    }
};

template <DrawsForKernels Transform, class Places>
struct MakeSamples {
    static constexpr int threads = 192;
    static constexpr bool by_sums = Draws<Transform, DrawnAugmentation>;
    static constexpr int phases = by_sums ? 6 : 2;
    /// Threads that are left while the sums are added, four to one: multiples of 3, which keep the channels apart.
    static constexpr int adders = threads / 4, last_adders = adders / 4;
    static_assert(threads % 3 == 0 && adders * 4 == threads && last_adders * 4 == adders && last_adders % 3 == 0);
    /// The bytes that a thread loads before it uses the first.
    static constexpr int at_once = 4;

    struct OnlyPlace {
        std::int64_t image;  ///< where it begins
        DrawnPiece piece;
        AffinePixels affine;
    };
    struct WithSums : OnlyPlace {
        DrawnAugmentation drawn;
        std::uint64_t values[threads], squares[threads];
    };
    using Shared = std::conditional_t<by_sums, WithSums, OnlyPlace>;

    ImagesOnDevice images;
    Transform transform;
    Places places;
    std::int32_t height, width;  ///< of a sample
    float* samples;
    std::int32_t* labels;

    template <int phase>
    CUPOLA_HOST_DEVICE void run(std::int64_t block, int thread, Shared& shared) const {
        if constexpr (phase == 0) {
            if (thread == 0) draw(block, shared);
        } else if constexpr (phase == phases - 1) {
            write(block, thread, shared);
        } else if constexpr (phase == 1) {
            sum_own(thread, shared);
        } else if constexpr (phase == 2) {
            if (thread < adders) add_four(thread, adders, shared);
        } else if constexpr (phase == 3) {
            if (thread < last_adders) add_four(thread, last_adders, shared);
        } else {
            if (thread == 0) add_last(shared);
        }
    }

private:
    /// The bytes of a piece that one thread takes, in order: where they lie in the piece, and in the image.
    class Walk {
    public:
        CUPOLA_HOST_DEVICE Walk(const MakeSamples& work, int thread, const DrawnPiece& piece)
            : row_bytes_(work.images.channels * work.width),
              image_row_bytes_(work.images.channels * work.images.width),
              rows_(work.height),
              image_rows_(work.images.height),
              row_(thread / row_bytes_),
              at_(thread % row_bytes_),
              top_(static_cast<int>(piece.y)),
              sign_(piece.flip ? -1 : 1) {
            // Mirrored, the last pixel of a row comes first, with its channels in their order.
            const int channels = work.images.channels, channel = channels == 1 ? 0 : thread % 3;
            from_ = static_cast<int>(piece.x) * channels + (piece.flip ? row_bytes_ - channels + 2 * channel : 0);
            skipped_rows_ = threads / row_bytes_;
            skipped_bytes_ = threads % row_bytes_;
        }
        [[nodiscard]] CUPOLA_HOST_DEVICE bool ended() const { return row_ >= rows_; }
        /// Whether the current byte is inside the image.
        [[nodiscard]] CUPOLA_HOST_DEVICE bool inside() const {
            return static_cast<unsigned>(row_ + top_) < static_cast<unsigned>(image_rows_) &&
                   static_cast<unsigned>(column()) < static_cast<unsigned>(image_row_bytes_);
        }
        [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t byte() const {
            return static_cast<std::int64_t>(row_ + top_) * image_row_bytes_ + column();
        }
        CUPOLA_HOST_DEVICE void go_on() {
            row_ += skipped_rows_;
            at_ += skipped_bytes_;
            if (at_ >= row_bytes_) {
                at_ -= row_bytes_;
                ++row_;
            }
        }

    private:
        [[nodiscard]] CUPOLA_HOST_DEVICE int column() const { return from_ + sign_ * at_; }

        int row_bytes_, image_row_bytes_, rows_, image_rows_, row_, at_, top_, sign_;
        int from_ = 0, skipped_rows_ = 0, skipped_bytes_ = 0;
    };

    /// The next bytes of the walk, loaded together, and their number. Outside the image they are 0, which
    /// is black.
    struct Bytes {
        std::uint8_t value[at_once];
        int count;

        CUPOLA_HOST_DEVICE Bytes(Walk& walk, const std::uint8_t* image) : count(0) {
            for (int k = 0; k < at_once; ++k) {
                const bool more = !walk.ended();
                const bool in = more && (by_sums || walk.inside());  // a crop lies within the image
                value[k] = in ? image[walk.byte()] : std::uint8_t{0};
                count += more ? 1 : 0;
                walk.go_on();
            }
        }
    };

    CUPOLA_HOST_DEVICE void draw(std::int64_t block, Shared& shared) const {
        const SampleOfEpoch sample = places.at(block);
        const RandomStream random(places.seed, RngDomain::augmentation, sample.epoch, sample.index);
        const auto drawn = transform.draw(images.height, images.width, random);
        shared.image = static_cast<std::int64_t>(sample.index) * images.height * images.width * images.channels;
        shared.piece = {drawn.y, drawn.x, drawn.flip};
        if constexpr (by_sums)
            shared.drawn = drawn;
        else
            shared.affine = {1.0F / 128.0F, {-1.0F, -1.0F, -1.0F}};  // both exact: scaled_pixel()'s bits
        labels[block] = images.labels[sample.index];
    }
    CUPOLA_HOST_DEVICE void sum_own(int thread, Shared& shared) const {
        std::uint64_t sum = 0, squares = 0;
        for (Walk walk(*this, thread, shared.piece); !walk.ended();) {
            const Bytes bytes(walk, images.pixels + shared.image);
            for (int k = 0; k < at_once; ++k) {
                const std::uint32_t value = bytes.value[k];
                sum += value;
                squares += static_cast<std::uint64_t>(value) * value;
            }
        }
        shared.values[thread] = sum;
        shared.squares[thread] = squares;
    }
    /// No other thread reads what this thread adds to, and none writes what it reads.
    CUPOLA_HOST_DEVICE void add_four(int thread, int step, Shared& shared) const {
        for (int k = 1; k < 4; ++k) {
            shared.values[thread] += shared.values[thread + k * step];
            shared.squares[thread] += shared.squares[thread + k * step];
        }
    }
    CUPOLA_HOST_DEVICE void add_last(Shared& shared) const {
        PixelSums sums;
        for (int t = 0; t < last_adders; ++t) {
            sums.values[t % 3] += static_cast<std::int64_t>(shared.values[t]);
            sums.squares[t % 3] += static_cast<std::int64_t>(shared.squares[t]);
        }
        shared.affine = affine_of(sums, static_cast<std::int64_t>(height) * width, images.channels, shared.drawn);
    }
    CUPOLA_HOST_DEVICE void write(std::int64_t block, int thread, const Shared& shared) const {
        const float scale = shared.affine.scale, shift = shared.affine.shift[thread % 3];
        float* to = samples + block * height * width * images.channels + thread;
        for (Walk walk(*this, thread, shared.piece); !walk.ended(); to += at_once * threads) {
            const Bytes bytes(walk, images.pixels + shared.image);
            for (int k = 0; k < at_once; ++k) {
                if (k < bytes.count) to[k * threads] = static_cast<float>(bytes.value[k]) * scale + shift;
            }
        }
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
