// SPDX-License-Identifier: Apache-2.0
//
// ImageSet rejects inconsistent parts, and the concept names what a data set lacks.
#include <cupola/data/dataset.hpp>

#include "../test.hpp"

#include <cupola/data/in_memory.hpp>

#include "support.hpp"

namespace {

struct NoLabels {
    [[nodiscard]] std::int64_t size() const { return 1; }
    [[nodiscard]] std::string_view name() const { return "no labels"; }
    [[nodiscard]] Shape sample_shape() const { return {1}; }
    [[nodiscard]] std::span<const float> sample(std::int64_t) const { return {}; }
};
struct NoSamples {
    [[nodiscard]] std::int64_t size() const { return 1; }
    [[nodiscard]] std::string_view name() const { return "no samples"; }
    [[nodiscard]] std::int32_t label(std::int64_t) const { return 0; }
    [[nodiscard]] std::int64_t class_count() const { return 2; }
};
struct Whole : NoLabels {
    [[nodiscard]] std::int32_t label(std::int64_t) const { return 0; }
    [[nodiscard]] std::int64_t class_count() const { return 2; }
};

static_assert(Dataset<ImageSet> && Dataset<InMemory> && Dataset<Whole>);
static_assert(HasSamples<NoLabels> && !HasLabels<NoLabels> && !Dataset<NoLabels>);
static_assert(HasLabels<NoSamples> && !HasSamples<NoSamples> && !Dataset<NoSamples>);
static_assert(!HasSampleCount<int> && !Dataset<int>);

std::string refusal(std::int64_t height, std::size_t bytes, std::vector<std::int32_t> labels) {
    return message_of<DataError>([&] {
        ImageSet("set", {height, 2, 3}, std::vector<std::uint8_t>(bytes), std::move(labels), {"a", "b"});
    });
}

}  // namespace

TEST_CASE("an image set returns its images and labels") {
    std::vector<std::uint8_t> pixels(2 * 12);
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i);
    const ImageSet set("set", {2, 2, 3}, pixels, {1, 0}, {"a", "b"});
    CHECK(set.size() == 2);
    CHECK(set.sample_shape() == Shape{2, 2, 3});
    CHECK(set.sample(1)[0] == 12);
    CHECK(set.sample(1).size() == 12);
    CHECK(set.label(0) == 1);
    CHECK(set.class_count() == 2);
    CHECK(set.classes()[1] == "b");
}

TEST_CASE("an image set whose parts have different sizes is rejected with the numbers") {
    CHECK(refusal(2, 23, {0, 1}) == "set has 2 labels and 23 bytes of pixels; images of 2 x 2 x 3 need 24");
    CHECK(refusal(2, 24, {0, 2}) == "set has label 2 at image 1; with 2 classes labels are 0 to 1");
    CHECK(refusal(2, 12, {-1}) == "set has label -1 at image 0; with 2 classes labels are 0 to 1");
    CHECK(refusal(2, 0, {}) == "set has no images");
    CHECK(message_of<DataError>([] {
              ImageSet("set", {2, 2, 4}, std::vector<std::uint8_t>(16), {0}, {"a", "b"});
          }) == "set has images of 2 x 2 x 4; images must be height x width x 1 (grey) or 3 (red, green, blue)");
    CHECK(refusal(0, 0, {0}) == "set has images of 0 x 2 pixels; height and width must be 1 to 65535");
}
