// SPDX-License-Identifier: Apache-2.0
//
// The three networks of MTCNN (Zhang et al. 2016) as facenet-pytorch has them, with the names of its files: PNet,
// RNet and ONet. Their outputs are joined: the two probabilities, the box, and the landmarks of ONet.
#pragma once

#include <cupola/cupola.hpp>
#include <cupola/layers.hpp>
#include <cupola/net/branches.hpp>

namespace mtcnn {

using namespace cupola;

using ChannelPReLU = PReLU<weight_per_channel>;

// The features are those of facenet-pytorch's permute(0, 3, 2, 1) and view: width, height, channels, in the file too.
// clang-format off
/// It has no linear layer; this is one of the sizes of an image.
struct PNet : Sequential<Input<37, 45, 3>,
    Named<"conv1", Conv2d<10, 3, valid>>, Named<"prelu1", ChannelPReLU>, MaxPool2d<2, 2, valid, ceil_mode>,
    Named<"conv2", Conv2d<16, 3, valid>>, Named<"prelu2", ChannelPReLU>,
    Named<"conv3", Conv2d<32, 3, valid>>, Named<"prelu3", ChannelPReLU>,
    Concat<Branch<Named<"conv4_1", Conv2d<2, 1>>, Softmax>, Named<"conv4_2", Conv2d<4, 1>>>> {};

struct RNet : Sequential<Input<24, 24, 3>,
    Named<"conv1", Conv2d<28, 3, valid>>, Named<"prelu1", ChannelPReLU>, MaxPool2d<3, 2, valid, ceil_mode>,
    Named<"conv2", Conv2d<48, 3, valid>>, Named<"prelu2", ChannelPReLU>, MaxPool2d<3, 2, valid, ceil_mode>,
    Named<"conv3", Conv2d<64, 2, valid>>, Named<"prelu3", ChannelPReLU>,
    Permute<1, 0, 2>, FlattenChannelsLast, Named<"dense4", Linear<128>>, Named<"prelu4", ChannelPReLU>,
    Concat<Branch<Named<"dense5_1", Linear<2>>, Softmax>, Named<"dense5_2", Linear<4>>>> {};

struct ONet : Sequential<Input<48, 48, 3>,
    Named<"conv1", Conv2d<32, 3, valid>>, Named<"prelu1", ChannelPReLU>, MaxPool2d<3, 2, valid, ceil_mode>,
    Named<"conv2", Conv2d<64, 3, valid>>, Named<"prelu2", ChannelPReLU>, MaxPool2d<3, 2, valid, ceil_mode>,
    Named<"conv3", Conv2d<64, 3, valid>>, Named<"prelu3", ChannelPReLU>, MaxPool2d<2, 2, valid, ceil_mode>,
    Named<"conv4", Conv2d<128, 2, valid>>, Named<"prelu4", ChannelPReLU>,
    Permute<1, 0, 2>, FlattenChannelsLast, Named<"dense5", Linear<256>>, Named<"prelu5", ChannelPReLU>,
    Concat<Branch<Named<"dense6_1", Linear<2>>, Softmax>, Named<"dense6_2", Linear<4>>,
           Named<"dense6_3", Linear<10>>>> {};
// clang-format on

}  // namespace mtcnn
