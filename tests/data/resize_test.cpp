// SPDX-License-Identifier: Apache-2.0
//
// The expected values are those of Pillow 9.4.
#include <cupola/data/resize.hpp>

#include "../test.hpp"

#include "../throws_with.hpp"
#include "patterned.hpp"

using cupola_tests::hash_of, cupola_tests::patterned;

namespace {

BasicImage<float> as_floats(const Image& image) {
    return {image.height, image.width, image.channels, {image.pixels.begin(), image.pixels.end()}};
}

std::vector<int> values(const Image& image) { return {image.pixels.begin(), image.pixels.end()}; }

constexpr ResizeFilter filters[] = {ResizeFilter::box, ResizeFilter::bilinear, ResizeFilter::bicubic,
                                    ResizeFilter::lanczos};

}  // namespace

TEST_CASE("an image is reduced and enlarged to the bytes of Pillow") {
    const std::vector<int> reduced[] = {{129, 68, 214, 26, 100, 129, 45, 134, 46, 62, 156, 73},
                                        {81, 75, 173, 31, 100, 137, 48, 117, 107, 67, 137, 93},
                                        {85, 64, 181, 22, 103, 140, 44, 123, 105, 64, 147, 90},
                                        {84, 56, 184, 13, 110, 143, 41, 126, 109, 61, 147, 88}};
    const std::vector<int> enlarged[] = {
        {251, 251, 7, 7, 251, 251, 7, 7, 13, 13, 23, 23, 26, 26, 39, 39, 26, 26, 39, 39},
        {251, 190, 68, 7, 156, 120, 49, 13, 13, 16, 21, 23, 21, 24, 30, 33, 26, 29, 36, 39},
        {255, 214, 61, 0, 169, 134, 44, 8, 12, 15, 21, 24, 10, 16, 29, 35, 26, 30, 37, 41},
        {255, 214, 69, 0, 173, 134, 48, 7, 11, 15, 21, 25, 0, 6, 27, 38, 33, 36, 39, 42}};
    for (int f = 0; f < 4; ++f) {
        CAPTURE(f);
        CHECK(values(resized(patterned(5, 7, 1), 4, 3, filters[f])) == reduced[f]);
        CHECK(values(resized(patterned(3, 2, 1), 5, 4, filters[f])) == enlarged[f]);
    }
}

TEST_CASE("images of many sizes have Pillow's bytes") {
    struct Case {
        ResizeFilter filter;
        std::uint64_t hashes[5];
    };
    const Case cases[] = {
        {ResizeFilter::box,
         {0x7e84c8570b20070e, 0x849f5518649d47f2, 0xeec0219ad0f8751a, 0xabce6f95d4bfa919, 0x7ac550619367c418}},
        {ResizeFilter::bilinear,
         {0xc08a8f2866445116, 0xe9c0b9501ddef0c3, 0xc6ea2779696a3d04, 0x8dcafcfb96a4ad80, 0x7375a7241a643acb}},
        {ResizeFilter::bicubic,
         {0x9829a5deccee8e57, 0x4afbdd3070be7ebe, 0x78d3f44cb6875ce4, 0x42e46cfb13e12e66, 0xd30d096a397bce12}},
        {ResizeFilter::lanczos,
         {0xd6b13d8f372b9408, 0xb94e8ecbeee8e2f2, 0x29447efde2bc1f79, 0xdde40b78432c6c7e, 0x3d55d7ffe6e2f6a7}}};
    for (const Case& each : cases) {
        const ResizeFilter filter = each.filter;
        const auto& hashes = each.hashes;
        CAPTURE(to_string(filter));
        CHECK(hash_of(resized(patterned(37, 53, 3), 24, 24, filter).pixels) == hashes[0]);
        CHECK(hash_of(resized(patterned(20, 11, 3), 64, 48, filter).pixels) == hashes[1]);
        CHECK(hash_of(resized(patterned(301, 200, 3), 16, 9, filter).pixels) == hashes[2]);
        CHECK(hash_of(resized(patterned(19, 23, 1), 19, 10, filter).pixels) == hashes[3]);
        CHECK(hash_of(resized(patterned(19, 23, 1), 40, 23, filter).pixels) == hashes[4]);
    }
}

TEST_CASE("floats are not rounded") {
    const std::vector<float> expected[] = {
        {129.0F, 67.66666412353516F, 213.5F, 25.25F, 99.83332824707031F, 128.5F, 44.5F, 133.6666717529297F, 46.0F,
         61.5F, 155.6666717529297F, 73.0F},
        {80.125F, 75.01470947265625F, 172.7142791748047F, 31.05952262878418F, 99.72549438476562F, 136.59523010253906F,
         47.976192474365234F, 116.60784149169922F, 107.01190948486328F, 66.85713958740234F, 136.9558868408203F,
         93.125F},
        {84.83186340332031F, 63.86576461791992F, 181.3693084716797F, 22.36187171936035F, 103.40203857421875F,
         139.6221923828125F, 43.94886016845703F, 123.26426696777344F, 105.73548889160156F, 63.84086990356445F,
         146.36666870117188F, 89.92276763916016F},
        {84.08727264404297F, 56.639915466308594F, 184.4816131591797F, 13.667369842529297F, 109.75001525878906F,
         143.1131134033203F, 41.31766891479492F, 125.33025360107422F, 109.0601577758789F, 60.98902893066406F,
         147.19606018066406F, 88.06779479980469F}};
    for (int f = 0; f < 4; ++f) {
        CAPTURE(f);
        const BasicImage<float> image = resized(as_floats(patterned(5, 7, 1)), 4, 3, filters[f]);
        REQUIRE(image.pixels.size() == 12);
        for (std::size_t i = 0; i < 12; ++i) CHECK(std::abs(image.pixels[i] - expected[f][i]) <= 2e-5F);
    }
    CHECK(resized(BasicImage<float>{1, 1, 1, {0.25F}, 16}, 3, 2).pixels == std::vector<float>(6, 0.25F));
    CHECK(resized(BasicImage<float>{1, 1, 1, {0.25F}, 16}, 3, 2).bits == 16);
}

TEST_CASE("an image of the same size keeps its pixels, and one colour stays what it is") {
    const Image image = patterned(6, 9, 3);
    for (const ResizeFilter filter : filters) {
        CHECK(resized(image, 6, 9, filter).pixels == image.pixels);
        for (const int value : {0, 1, 127, 254, 255}) {
            const Image flat{31, 17, 1, std::vector<std::uint8_t>(31 * 17, static_cast<std::uint8_t>(value))};
            for (const std::int64_t to : {1, 2, 16, 17, 18, 40})
                CHECK(std::ranges::count(resized(flat, to, to, filter).pixels, value) == to * to);
        }
    }
}

TEST_CASE("the shorter side is resized to a size, and the middle is cut out, as by torchvision") {
    CHECK(resized_shorter_side(patterned(30, 41, 3), 20).shape() == Shape{20, 27, 3});
    CHECK(resized_shorter_side(patterned(41, 30, 3), 20).shape() == Shape{27, 20, 3});
    CHECK(resized_shorter_side(patterned(8, 8, 1), 20, ResizeFilter::box).shape() == Shape{20, 20, 1});
    // PyTorch rounds half a pixel to the even number: tops of 0, 2 and 2 for rests of 1, 3 and 5.
    const Image image = patterned(9, 8, 1);
    for (const auto& each : {std::pair{8, 0}, {7, 1}, {6, 2}, {5, 2}, {4, 2}, {9, 0}, {1, 4}, {2, 4}}) {
        const int height = each.first, top = each.second;
        CAPTURE(height);
        const Image part = center_cropped(image, height, 8);
        CHECK(part.shape() == Shape{height, 8, 1});
        CHECK(part.pixels ==
              std::vector<std::uint8_t>(image.pixels.begin() + 8 * top, image.pixels.begin() + 8 * (top + height)));
    }
    const Image part = center_cropped(patterned(4, 6, 3), 2, 4);
    const Image whole = patterned(4, 6, 3);
    CHECK(std::ranges::equal(std::span(part.pixels).first(12), std::span(whole.pixels).subspan(21, 12)));
    CHECK(std::ranges::equal(std::span(part.pixels).last(12), std::span(whole.pixels).subspan(39, 12)));
}

TEST_CASE("extents that cannot be and images without their pixels are errors") {
    CHECK(message_of<InvalidArgument>([] { (void)resized(patterned(2, 2, 1), 0, 4); }) ==
          "the height and width of an image must be at least 1, not 0 x 4");
    CHECK(message_of<InvalidArgument>([] { (void)resized(patterned(2, 2, 1), 4, 65'536); }) ==
          "the height and width of an image must be at most 65535, not 4 x 65536");
    CHECK(message_of<InvalidArgument>([] { (void)resized_shorter_side(patterned(1, 300, 1), 256); }) ==
          "the height and width of an image must be at most 65535, not 256 x 76800");
    CHECK(message_of<InvalidArgument>([] { (void)resized_shorter_side(patterned(2, 2, 1), -1); }) ==
          "the height and width of an image must be at least 1, not -1 x -1");
    CHECK(message_of<InvalidArgument>([] { (void)resized_shorter_side(Image{}, 4); }) ==
          "an image of 0 x 0 x 3 has 0 bytes of pixels");
    CHECK(message_of<InvalidArgument>([] { (void)center_cropped(patterned(3, 5, 1), 4, 4); }) ==
          "a crop of 4 x 4 cannot be cut out of an image of 3 x 5");
    Image cut = patterned(2, 2, 3);
    cut.pixels.pop_back();
    CHECK(message_of<InvalidArgument>([&] { (void)resized(cut, 4, 4); }) ==
          "an image of 2 x 2 x 3 has 11 bytes of pixels");
    CHECK(message_of<InvalidArgument>([&] { (void)center_cropped(cut, 1, 1); }) ==
          "an image of 2 x 2 x 3 has 11 bytes of pixels");
}
