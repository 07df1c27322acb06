// SPDX-License-Identifier: Apache-2.0
//
// The text by which a checkpoint says what its network computes.
#include <cupola/net/network_description.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/layers/from_bytes.hpp>
#include <cupola/layers/leaky_relu.hpp>
#include <cupola/layers/on_device.hpp>

namespace {

struct Net : Sequential<Input<4, 4, 3>, Named<"conv", Conv2d<2, 3>>, ReLU, Residual<Identity, Conv2d<2, 3>, ReLU>,
                        Dropout<0.5>, Flatten, Linear<3>> {};
struct Renamed : Sequential<Input<4, 4, 3>, Named<"first", Conv2d<2, 3>>, ReLU, Residual<Identity, Conv2d<2, 3>, ReLU>,
                            Dropout<0.5>, Flatten, Named<"fc", Linear<3>>> {};
struct WithoutDropout
    : Sequential<Input<4, 4, 3>, Conv2d<2, 3>, ReLU, Residual<Identity, Conv2d<2, 3>, ReLU>, Flatten, Linear<3>> {};
struct DropoutInside
    : Sequential<Input<4, 4, 3>, Conv2d<2, 3>, Dropout<0.1>, ReLU,
                 Residual<Identity, Dropout<0.25>, Conv2d<2, 3>, ReLU>, Flatten, Dropout<0.5>, Linear<3>> {};

/// The description of a network of one layer.
template <class Layer, class In = Input<2, 2, 3>>
std::string of() {
    struct One : Sequential<In, Layer> {};
    return network_description(One::layers);
}

std::string in_prediction(std::span<const LayerInfo> layers) {
    return description_in_prediction(network_description(layers));
}

}  // namespace

TEST_CASE("a network is described by its layers, and by the values that they read where it is not the one before") {
    CHECK(network_description(Net::layers) ==
          "Input 4 x 4 x 3\nConv2d 2, 3 x 3: 4 x 4 x 2\nReLU: 4 x 4 x 2\nFork: 4 x 4 x 2\nConv2d 2, 3 x 3: 4 x 4 x 2\n"
          "ReLU: 4 x 4 x 2\nAdd: 4 x 4 x 2, and 3\nDropout 0.5: 4 x 4 x 2 (in training)\nFlatten: 32\nLinear 3: 3");
    CHECK(network_description(Renamed::layers) == network_description(Net::layers));
}

TEST_CASE("layers that do nothing in evaluation do not count in prediction, wherever they are") {
    CHECK(network_description(WithoutDropout::layers) != network_description(Net::layers));
    CHECK(in_prediction(WithoutDropout::layers) == network_description(WithoutDropout::layers));
    CHECK(in_prediction(Net::layers) == in_prediction(WithoutDropout::layers));
    CHECK(in_prediction(DropoutInside::layers) == in_prediction(WithoutDropout::layers));
    CHECK(description_in_prediction("").empty());
}

TEST_CASE("an option that is for training does not count in prediction") {
    const std::string one = of<BatchNorm2d<1e-3, 0.99>>(), other = of<BatchNorm2d<1e-3>>();
    CHECK(one != other);
    CHECK(description_in_prediction(one) == description_in_prediction(other));
    CHECK(description_in_prediction(one) != description_in_prediction(of<BatchNorm2d<1e-2>>()));
}

TEST_CASE("whatever changes the values that a layer computes is in its description") {
    CHECK(of<ReLU>() != of<Sigmoid>());
    CHECK(of<LeakyReLU<0.1>>() != of<LeakyReLU<0.2>>());
    CHECK(of<BatchNorm2d<1e-5>>() != of<BatchNorm2d<1e-8>>());
    CHECK(of<BatchNorm2d<1e-8>>() != of<BatchNorm2d<2e-8>>());
    CHECK(of<LocalResponseNorm<1, 1e-4>>() != of<LocalResponseNorm<1, 1.0001e-4>>());
    CHECK(of<LocalResponseNorm<1, 1e-4, 0.5>>() != of<LocalResponseNorm<1, 1e-4, 0.75>>());
    CHECK(of<LocalResponseNorm<1, 1e-4, 0.5, 2>>() != of<LocalResponseNorm<1, 1e-4, 0.5, 1>>());
    CHECK(of<OnDevice<Host, LocalResponseNorm<1>>>() == of<LocalResponseNorm<1>>());
    CHECK(of<MaxPool2d<2>>() != of<AvgPool2d<2>>());
    CHECK(of<MaxPool2d<2>, Input<4, 4, 3>>() != of<MaxPool2d<2, 2, pad(0)>, Input<4, 4, 3>>());
    CHECK(of<MaxPool2d<3, 2>, Input<4, 4, 3>>() != of<MaxPool2d<3, 2, pad(1)>, Input<4, 4, 3>>());
    CHECK(of<FromBytes<>>() != of<FromBytes<means(1), deviations(255)>>());
    CHECK(of<FromBytes<means(1, 2, 3)>>() != of<FromBytes<means(1, 2, 4)>>());
    CHECK(of<FromBytes<deviations(1, 2, 3)>>() != of<FromBytes<means(1, 2, 3)>>());
    CHECK(of<FromBytes<>>().starts_with("Input 2 x 2 x 3 uint8\nFromBytes: "));
}
