// SPDX-License-Identifier: Apache-2.0
//
// The description of a layer in a summary: its sizes and the options that are not the default, or its type's name.
#include <cupola/layers/layer_description.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/layers.hpp>
#include <cupola/layers/on_device.hpp>
#include <cupola/net/summary.hpp>

static_assert(description_of<Conv2d<64, 5>>() == "Conv2d 64, 5 x 5");
static_assert(description_of<Conv2d<32, 3, stride(2), pad(1), no_bias>>() ==
              "Conv2d 32, 3 x 3, stride 2, pad 1, no bias");
static_assert(description_of<Conv2d<8, 3, valid, weights(truncated_normal(0.05))>>() == "Conv2d 8, 3 x 3, valid");
static_assert(description_of<Linear<384>>() == "Linear 384" &&
              description_of<Linear<7, no_bias>>() == "Linear 7, no bias");
static_assert(description_of<MaxPool2d<3, 2>>() == "MaxPool2d 3 x 3, stride 2");
static_assert(description_of<AvgPool2d<2, 2, Padding::valid>>() == "AvgPool2d 2 x 2, valid");
static_assert(description_of<MaxPool2d<3, 2, pad(1)>>() == "MaxPool2d 3 x 3, stride 2, pad 1" &&
              description_of<AvgPool2d<2, 2, pad(0)>>() == "AvgPool2d 2 x 2, pad 0");
static_assert(description_of<MaxPool2d<window(3, 2), stride(2, 1), pad(1, 0), ceil_mode>>() ==
                  "MaxPool2d 3 x 2, stride 2 x 1, pad 1 x 0, ceil mode" &&
              description_of<MaxPool2d<window(3, 2)>>() == "MaxPool2d 3 x 2" &&
              description_of<MaxPool2d<3, stride(1, 3)>>() == "MaxPool2d 3 x 3, stride 1 x 3" &&
              description_of<AvgPool2d<3, stride(2), pad(1), ignore_padding>>() ==
                  "AvgPool2d 3 x 3, stride 2, pad 1, padding ignored" &&
              description_of<AvgPool2d<3, 2, pad(1), count_padding>>() == "AvgPool2d 3 x 3, stride 2, pad 1");
static_assert(description_of<LocalResponseNorm<4>>() == "LocalResponseNorm, radius 4");
static_assert(description_of<LocalResponseNorm<1, 1e-4, 0.5, 2>>() ==
              "LocalResponseNorm, radius 1, alpha 0.0001, beta 0.5, bias 2");
static_assert(description_of<BatchNorm2d<>>() == "BatchNorm2d");
static_assert(description_of<BatchNorm2d<1e-3, 0.99>>() == "BatchNorm2d, epsilon 0.001 (decay 0.99 in training)");
static_assert(description_of<FromBytes<>>() == "FromBytes" &&
              description_of<FromBytes<means(125.3, 123.0, 113.9), deviations(62)>>() ==
                  "FromBytes, means 125.3 123 113.9, deviations 62");
static_assert(description_of<Dropout<0.25>>() == "Dropout 0.25");
static_assert(description_of<OptionAShortcut<32, 2>>() == "OptionAShortcut 32, stride 2");
static_assert(description_of<impl::OffloadedLayer<Host, Linear<5>>>() == "Linear 5", "wherever it runs");
// A layer without sizes has no description beyond its name.
static_assert(!DescribesItself<ReLU> && description_of<ReLU>() == "ReLU" && description_of<Flatten>() == "Flatten");

static_assert(std::string_view(LayerDescription("n ", std::numeric_limits<std::int64_t>::min(), " ", -10, " ", 0, " ",
                                                1e-6, " ", -2.5)) == "n -9223372036854775808 -10 0 0.000001 -2.5");
static_assert(std::string_view(LayerDescription(0.001 / 9, " ", -2.5e-8, " ", 1.5e9, " ", 0.1234567, " ",
                                                std::numeric_limits<double>::infinity())) ==
              "1.111111e-4 -2.5e-8 1.5e9 0.123457 no number");
static_assert(std::string_view(LayerDescription(7U, " ", std::uint8_t{255}, " ",
                                                std::numeric_limits<std::uint64_t>::max(), " ", std::int8_t{-128})) ==
              "7 255 18446744073709551615 -128");
static_assert(std::string_view(LayerDescription("a").add_if(false, "b").add_if(true, "c", 1)) == "ac1");

namespace {

/// A layer of the user's own that says nothing, and one that does.
template <std::int64_t factor>
struct Repeat {
    static constexpr ShapeResult output(const Shape& input) { return input; }
};
struct Told : Repeat<3> {
    static constexpr std::string_view description = "three times the same";
};
struct ToldAsNumber : Repeat<3> {
    static constexpr int description = 3;
};
static_assert(description_of<Repeat<3>>() == "Repeat<3>" && description_of<Told>() == "three times the same");
static_assert(!DescribesItself<ToldAsNumber> && description_of<ToldAsNumber>() == "ToldAsNumber");

struct Net
    : Sequential<Input<8, 8, 3>, Named<"conv1", Conv2d<4, 3, stride(2)>>, ReLU, Repeat<2>, Told, Flatten, Linear<2>> {};

}  // namespace

TEST_CASE("a summary shows a layer's description; errors name its type") {
    const std::string table = summary<Net>(2);
    for (const char* part : {"conv1  Conv2d 4, 3 x 3, stride 2  4 x 4 x 4", "  + ReLU  ", "  Repeat<2>  ",
                             "  three times the same  ", "  Linear 2  "}) {
        CAPTURE(part);
        CHECK(table.find(part) != std::string::npos);
    }
    CHECK(Net::layers[0].type == "Conv2d<4, 3>");
}
