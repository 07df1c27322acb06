// SPDX-License-Identifier: Apache-2.0
//
// The networks of models/ for images, and networks that a user would write, by the names that zoo.py and export_onnx.py
// give them.
#pragma once

#include <string_view>
#include <type_traits>

#include <cupola/cupola.hpp>
#include <cupola/models/convnext.hpp>
#include <cupola/models/efficientnet_lite0.hpp>
#include <cupola/models/mobilenet_v2.hpp>
#include <cupola/models/torchvision_resnet.hpp>
#include <cupola/models/torchvision_vgg.hpp>
#include <cupola/models/transposed_unet.hpp>
#include <cupola/net/name_table.hpp>

#include "../models/efficientnet_b0.hpp"
#include "mtcnn.hpp"

namespace zoo {

using namespace cupola;

template <class Net>
inline constexpr std::type_identity<Net> of{};

/// Calls `run.operator()<Net>(names)`, with the table of names of the files, for the network of this name. False where
/// there is none.
template <class Run>
bool with_network(std::string_view network, const Run& run) {
    const auto with = [&]<class Net>(std::string_view name, std::type_identity<Net>, const NameTable& names = {}) {
        if (network == name) run.template operator()<Net>(names);
        return network == name;
    };
    return with("resnet18", of<ResNet18<>>) || with("resnet34", of<ResNet34<>>) || with("resnet50", of<ResNet50<>>) ||
           with("vgg16", of<VGG16<>>) || with("timm/vgg16", of<VGG16<>>, timm_vgg_names()) ||
           with("mobilenet_v2", of<MobileNetV2<>>) ||
           with("timm/mobilenetv2_100", of<MobileNetV2<>>, timm_mobilenet_v2_names()) ||
           with("efficientnet_lite0", of<EfficientNetLite0<>>) ||
           with("timm/tf_efficientnet_lite0", of<EfficientNetLite0<>>, timm_efficientnet_lite0_names()) ||
           with("convnext_tiny", of<ConvNeXtTiny<>>) ||
           with("timm/convnext_tiny", of<ConvNeXtTiny<>>, timm_convnext_names()) ||
           with("transposed_unet", of<TransposedUNet<16, 24, 3, 5, 4, 2>>) ||
           with("efficientnet_b0", of<EfficientNetB0<>>, efficientnet_b0::torchvision_names()) ||
           with("pnet", of<mtcnn::PNet>) || with("rnet", of<mtcnn::RNet>) || with("onet", of<mtcnn::ONet>);
}

}  // namespace zoo
