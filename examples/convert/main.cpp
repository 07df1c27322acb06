// SPDX-License-Identifier: Apache-2.0
//
// The command line of convert, which writes the weights of a network in another format: torchvision's ResNet-18 from
// its .pth file as an ONNX file, for example.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/io/checkpoint.hpp>
#include <cupola/io/onnx.hpp>
#include <cupola/io/open_tensor_file.hpp>
#include <cupola/io/torch_writer.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/models/convnext.hpp>
#include <cupola/models/efficientnet_lite0.hpp>
#include <cupola/models/image_preprocessing.hpp>
#include <cupola/models/mobilenet_v2.hpp>
#include <cupola/models/resnet.hpp>
#include <cupola/models/torchvision_resnet.hpp>
#include <cupola/models/torchvision_vgg.hpp>
#include <cupola/models/transposed_unet.hpp>
#include <cupola/net/name_table.hpp>

#include "../command_line.hpp"

namespace {

using namespace cupola;

struct Options {
    std::string model, in, out, prefix;
    std::vector<std::string> ignored;
    /// 0: those of the model.
    std::int64_t classes = 0;
    bool nhwc = false;
};

/// The layers of a network, whose last one has this number of features or channels, and the parameters `of_head`.
std::vector<LayerInfo> with_classes(std::span<const LayerInfo> network, std::int64_t classes, Parameters& of_head) {
    std::vector<LayerInfo> layers(network.begin(), network.end());
    LayerInfo& head = layers.back();
    if (classes == 0) return layers;
    head.output.extents[head.output.rank - 1] = classes;
    for (; of_head.count < head.parameters.count; ++of_head.count) {
        Parameter& parameter = of_head.list[of_head.count] = head.parameters.list[of_head.count];
        parameter.shape.extents[0] = classes;
    }
    head.parameters = {of_head.list.data(), of_head.count};
    lay_out_parameters(layers);
    return layers;
}

/// The names in the files of a model, where they are timm's, and what its weights were trained with, where that is not
/// `preprocessing` of the network.
struct OfFile {
    NameTable (*names)() = [] { return NameTable{}; };
    std::optional<ImagePreprocessing> preprocessing{};
};

template <class Net>
void convert(const Options& options, const OfFile& of_file) {
    Parameters of_head;
    const std::vector<LayerInfo> layers = with_classes(Net::layers, options.classes, of_head);
    const NameTable names = of_file.names();
    // A checkpoint of the network has its own names, also where the model is timm's: the last layer's are not timm's.
    const auto file = open_tensor_file(options.in);
    const std::string own = parameter_name(layers, layers.size() - 1, 0);
    const bool has_own_names =
        std::ranges::any_of(file->tensors(), [&](const auto& tensor) { return tensor.name.ends_with(own); });
    const Checkpoint read = read_checkpoint(*file, layers,
                                            {.frozen = FrozenInFile::any,
                                             .network = NetworkInFile::of_same_parameters,
                                             .file_prefix = options.prefix,
                                             .ignored = options.ignored,
                                             .names = has_own_names ? NameTable{} : names});
    // The moving averages, where the file has them, and nothing else of a training.
    const TrainingState weights{
        .step = read.state.step,
        .parameters = parameters_in_layout(layers, read.state, !read.state.averages.empty()),
        .buffers = read.state.buffers,
    };
    if (options.out.ends_with(".onnx")) {
        OnnxOptions onnx{.layout = options.nhwc ? OnnxLayout::nhwc : OnnxLayout::nchw, .name = options.model};
        if (of_file.preprocessing) onnx.metadata = of_file.preprocessing->metadata();
        write_onnx<Net>(options.out, layers, weights, onnx);
    } else if (options.out.ends_with(".safetensors")) {
        write_checkpoint(options.out, layers, {.state = weights, .info = read.info});
    } else {
        write_torch_file(options.out, layers, weights, names);
    }
}

struct Model {
    std::string_view name;
    void (*convert)(const Options&, const OfFile&);
    OfFile of_file{};
};

constexpr ImageFit timm_fit{.shorter_side = 256, .height = 224, .width = 224, .filter = ResizeFilter::bicubic};

/// Of torchvision's second weights, with which the networks are the same and the images larger before the crop.
constexpr ImagePreprocessing torchvision_v2{.fit = {.shorter_side = 232}, .source = "torchvision IMAGENET1K_V2"};

constexpr Model models[] = {
    {"resnet18", &convert<ResNet18<>>},
    {"resnet34", &convert<ResNet34<>>},
    {"resnet50", &convert<ResNet50<>>},
    {"resnet50/v2", &convert<ResNet50<>>, {.preprocessing = torchvision_v2}},
    {"vgg16", &convert<VGG16<>>},
    {"mobilenet_v2", &convert<MobileNetV2<>>},
    {"mobilenet_v2/v2", &convert<MobileNetV2<>>, {.preprocessing = torchvision_v2}},
    {"convnext_tiny", &convert<ConvNeXtTiny<>>},
    {"efficientnet_lite0", &convert<EfficientNetLite0<>>},
    {"timm/vgg16", &convert<VGG16<>>, {.names = &timm_vgg_names}},
    {"timm/mobilenetv2_100",
     &convert<MobileNetV2<>>,
     {.names = &timm_mobilenet_v2_names,
      .preprocessing = ImagePreprocessing{.fit = timm_fit, .source = "timm mobilenetv2_100.ra_in1k"}}},
    {"timm/tf_efficientnet_lite0",
     &convert<EfficientNetLite0<>>,
     {.names = &timm_efficientnet_lite0_names,
      .preprocessing = ImagePreprocessing{.fit = timm_fit,
                                          .mean = {0.5F, 0.5F, 0.5F},
                                          .deviation = {0.5F, 0.5F, 0.5F},
                                          .source = "timm tf_efficientnet_lite0.in1k"}}},
    {"timm/convnext_tiny",
     &convert<ConvNeXtTiny<>>,
     {.names = &timm_convnext_names,
      .preprocessing = ImagePreprocessing{.fit = {.shorter_side = 235, .filter = ResizeFilter::bicubic},
                                          .source = "timm convnext_tiny.in12k_ft_in1k"}}},
    {"transposed_unet", &convert<TransposedUNet<640, 960, 3, 2>>},
    {"tutorial", &convert<Cifar10Net>},
    {"resnet44", &convert<ResNet<44>>},
};

CLI::Validator known_ending() {
    const auto check = [](const std::string& given) -> std::string {
        for (const std::string_view ending : {".onnx", ".safetensors", ".pth", ".pt"}) {
            if (given.ends_with(ending)) return {};
        }
        return given + " does not end with .onnx, .safetensors, .pth or .pt";
    };
    return {check, ""};
}

}  // namespace

int main(int argc, char** argv) {
    using namespace command_line;
    Options options;
    std::vector<std::string> names;
    for (const Model& model : models) names.emplace_back(model.name);
    CLI::App app{
        "Writes the weights of a network in another format: an ONNX file, a .safetensors file that Cupola and PyTorch\n"
        "read, or a .pth file of a state dict for PyTorch.",
        "convert"};
    app.add_option(
           "--model", options.model,
           "resnet18, resnet34, resnet50, vgg16, mobilenet_v2 and convnext_tiny are torchvision's of\n"
           "IMAGENET1K_V1, resnet50/v2 and mobilenet_v2/v2 those of IMAGENET1K_V2, efficientnet_lite0\n"
           "TensorFlow's; timm/vgg16, timm/mobilenetv2_100, timm/tf_efficientnet_lite0 and\n"
           "timm/convnext_tiny are timm's, whose .pth files have timm's names;\n"
           "transposed_unet is milesial's for 640 x 960 pixels; tutorial and resnet44 are those of cifar10_train")
        ->required()
        ->check(CLI::IsMember(names));
    app.add_option("--classes", options.classes,
                   "Classes. Default: 1000; 2 of transposed_unet, 10 of tutorial, 11 of resnet44")
        ->check(whole_number<std::int64_t>(1, 1 << 20));
    app.add_option("--in", options.in,
                   "A checkpoint, a .safetensors file, a file of torch.save or an index of several files")
        ->required()
        ->check(not_empty());
    app.add_option("--out", options.out, "The file to write, whose format is that of its ending")
        ->required()
        ->check(known_ending());
    app.add_option("--file-prefix", options.prefix, "The beginning of all names in the file, such as model.");
    app.add_option("--ignore", options.ignored, "Patterns of names in the file that the network does not have");
    app.add_flag("--nhwc", options.nhwc, "Images of the ONNX file are channels last");
    return run(app, argc, argv, [&] {
        cupola::require(!options.nhwc || options.out.ends_with(".onnx"), "--nhwc is for an .onnx file, and --out is ",
                        options.out);
        for (const Model& model : models) {
            if (model.name == options.model) model.convert(options, model.of_file);
        }
        return 0;
    });
}
