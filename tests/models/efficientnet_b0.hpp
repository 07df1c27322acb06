// SPDX-License-Identifier: Apache-2.0
//
// EfficientNetB0<classes = 1000, height = 224, width = height>: the network of Tan and Le (2019) as torchvision has it,
// written as a user writes a network that models/ does not have: from layers alone, with a table of names for what
// torchvision's files have in another form. The layers of a block have the names that they have there; the two of
// squeeze-and-excitation are linear here, and convolutions of 1 x 1 there.
#pragma once

#include <algorithm>

#include <cupola/cupola.hpp>
#include <cupola/layers.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/name_table.hpp>

using namespace cupola;

namespace efficientnet_b0 {

template <FixedString first, FixedString second>
inline constexpr auto joined = [] {
    FixedString<sizeof first.characters + sizeof second.characters - 1> name;
    std::ranges::copy(second.view(), std::ranges::copy(first.view(), name.characters).out);
    return name;
}();

template <class... Modules>
struct List {};

/// The network of the modules of several lists.
template <class... Lists>
struct Network;
template <class... Modules>
struct Network<List<Modules...>> : Sequential<Modules...> {};
template <class... First, class... Second, class... Others>
struct Network<List<First...>, List<Second...>, Others...> : Network<List<First..., Second...>, Others...> {};

template <std::int64_t channels, std::int64_t kernel_size, auto... options>
using Convolution =
    Conv2d<channels, kernel_size, pad(kernel_size / 2), no_bias, weights(he_normal_fan_out()), options...>;

template <FixedString name, std::int64_t channels, std::int64_t squeezed>
using SqueezeExcitation = Multiply<Identity, Branch<GlobalAvgPool2d, Named<joined<name, ".fc1">, Linear<squeezed>>,
                                                    SiLU, Named<joined<name, ".fc2">, Linear<channels>>, Sigmoid>>;

/// With a sum where the extents are equal.
template <bool has_sum, int number, class... Modules>
struct Block {
    using Type = List<Modules...>;
};
template <int number, class... Modules>
struct Block<true, number, Modules...> {
    using Type = List<Residual<Identity, Modules..., DropPath<0.2 * number / 16>>>;
};

/// Block `number` of the network.
template <int number, FixedString name, std::int64_t in, std::int64_t out, std::int64_t kernel_size,
          std::int64_t stride_of = 1>
using Expanded = typename Block<
    in == out && stride_of == 1, number,  //
    Named<joined<name, ".block.0.0">, Convolution<6 * in, 1>>, Named<joined<name, ".block.0.1">, BatchNorm2d<>>, SiLU,
    Named<joined<name, ".block.1.0">, Convolution<6 * in, kernel_size, stride(stride_of), depthwise>>,
    Named<joined<name, ".block.1.1">, BatchNorm2d<>>, SiLU, SqueezeExcitation<joined<name, ".block.2">, 6 * in, in / 4>,
    Named<joined<name, ".block.3.0">, Convolution<out, 1>>, Named<joined<name, ".block.3.1">, BatchNorm2d<>>>::Type;

// clang-format off
template <std::int64_t classes = 1000, std::int64_t height = 224, std::int64_t width = height>
struct EfficientNetB0 : Network<
    List<
        Input<height, width, 3>,
        Named<"features.0.0", Convolution<32, 3, stride(2)>>,
        Named<"features.0.1", BatchNorm2d<>>, SiLU,
        Named<"features.1.0.block.0.0", Convolution<32, 3, depthwise>>,
        Named<"features.1.0.block.0.1", BatchNorm2d<>>, SiLU,
        SqueezeExcitation<"features.1.0.block.1", 32, 8>,
        Named<"features.1.0.block.2.0", Convolution<16, 1>>,
        Named<"features.1.0.block.2.1", BatchNorm2d<>>>,
    Expanded<1, "features.2.0", 16, 24, 3, 2>, Expanded<2, "features.2.1", 24, 24, 3>,
    Expanded<3, "features.3.0", 24, 40, 5, 2>, Expanded<4, "features.3.1", 40, 40, 5>,
    Expanded<5, "features.4.0", 40, 80, 3, 2>, Expanded<6, "features.4.1", 80, 80, 3>,
    Expanded<7, "features.4.2", 80, 80, 3>,
    Expanded<8, "features.5.0", 80, 112, 5>, Expanded<9, "features.5.1", 112, 112, 5>,
    Expanded<10, "features.5.2", 112, 112, 5>,
    Expanded<11, "features.6.0", 112, 192, 5, 2>, Expanded<12, "features.6.1", 192, 192, 5>,
    Expanded<13, "features.6.2", 192, 192, 5>, Expanded<14, "features.6.3", 192, 192, 5>,
    Expanded<15, "features.7.0", 192, 320, 3>,
    List<
        Named<"features.8.0", Convolution<1280, 1>>,
        Named<"features.8.1", BatchNorm2d<>>, SiLU,
        GlobalAvgPool2d, Dropout<0.2>, Named<"head", Linear<classes>>>> {};
// clang-format on

/// What its parameters are in torchvision's files.
inline NameTable torchvision_names() {
    return {{.file = {"*.fc1.weight"}, .here = "*.fc1.weight", .extents = {0, -1, 1, 1}},
            {.file = {"*.fc2.weight"}, .here = "*.fc2.weight", .extents = {0, -1, 1, 1}},
            {.file = {"classifier.1.*"}, .here = "head.*"}};
}

}  // namespace efficientnet_b0

using efficientnet_b0::EfficientNetB0;
