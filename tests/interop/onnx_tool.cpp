// SPDX-License-Identifier: Apache-2.0
//
// Cupola's side of export_onnx.py, which runs networks in ONNX Runtime:
//
//   onnx_tool NETWORK nchw|nhwc BATCH FOLDER
//
// writes FOLDER/model.onnx, of a network of zoo.hpp or of this file, with random weights, a batch of random samples,
// FOLDER/NAME.in for each input, and what Predictor computes of it, FOLDER/NAME.out for each output: bare numbers,
// channels last. An output whose features were flattened from an image has a name that ends with its extents,
// "flat_3_2_4". Any error is one message and the status 1.
#include <fstream>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/io/onnx.hpp>
#include <cupola/layers.hpp>
#include <cupola/layers/on_device.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/predict.hpp>

#include "../standard.hpp"
#include "zoo.hpp"

namespace {

using namespace cupola;

// clang-format off
/// Every padding of the layers with a window, each as an output.
struct Windows : Sequential<Input<11, 14, 4>, Keep<"x">,
    MaxPool2d<3, 2>, Output<"max_same">, From<"x">,
    MaxPool2d<window(3, 2), stride(2, 3), pad(1, 0), ceil_mode>, Output<"max_ceil">, From<"x">,
    MaxPool2d<2, 3, valid, ceil_mode>, Output<"max_valid_ceil">, From<"x">,
    AvgPool2d<3, 2>, Output<"mean_same">, From<"x">,
    AvgPool2d<3, 2, valid>, Output<"mean_valid">, From<"x">,
    AvgPool2d<3, 2, pad(1)>, Output<"mean_counted">, From<"x">,
    AvgPool2d<3, 2, pad(1), ignore_padding>, Output<"mean_ignored">, From<"x">,
    AvgPool2d<window(4, 5), stride(3, 4), pad(1, 2), ceil_mode>, Output<"mean_counted_ceil">, From<"x">,
    AvgPool2d<window(4, 5), stride(3, 4), pad(1, 2), ceil_mode, ignore_padding>, Output<"mean_ignored_ceil">, From<"x">,
    AvgPool2d<2, 3, valid, ceil_mode>, Output<"mean_valid_ceil">, From<"x">,
    Conv2d<3, 4, stride(3)>, Output<"conv_same">, From<"x">,
    Conv2d<3, 3, stride(2), valid, no_bias>, Output<"conv_valid">, From<"x">,
    Conv2d<3, 5, stride(2), pad(2)>, Output<"conv_pad">, From<"x">,
    OptionAShortcut<10, 3>, Output<"option_a">, From<"x">,
    OptionAShortcut<6>, Output<"more_channels">, From<"x">,
    UpsampleBilinear2d<3>, Output<"bilinear">, From<"x">, AdaptiveAvgPool2d<1, 7>, Output<"adaptive">, From<"x">,
    AdaptiveAvgPool2d<4, 3>, Output<"overlapping">, From<"x">, AdaptiveAvgPool2d<13, 7>, Output<"larger">, From<"x">,
    Pad2d<1, 2, 0, 3>, Output<"padded">, From<"x">, Crop2d<1, 0, 2, 3>, Output<"cropped">, From<"x">,
    Permute<2, 0, 1>, Output<"permuted">, Reshape<7, 2, -1>, Output<"reshaped">, Permute<1, 0, 2>, Reshape<-1, 4>, Permute<1, 0>,
    Reshape<154, 4>, Output<"positions">, Reshape<2, 14, 22>, Output<"image">, From<"x">,
    Upsample2d<2>> {};

/// Groups, dilation, and windows that are not square, with every padding.
struct Groups : Sequential<Input<11, 14, 6>, Keep<"x">,
    Conv2d<9, 3, groups(3)>, Output<"grouped">, From<"x">,
    Conv2d<6, 3, pad(1), depthwise, no_bias>, Output<"depthwise">, From<"x">,
    Conv2d<12, 3, depthwise, stride(2), pad(1)>, Output<"multiplier">, From<"x">,
    Conv2d<5, 3, dilation(2)>, Output<"dilated_same">, From<"x">,
    Conv2d<5, 3, dilation(2, 3), valid>, Output<"dilated_valid">, From<"x">,
    Conv2d<4, kernel(3, 5), stride(2, 1), pad(1, 2), dilation(2), groups(2)>, Output<"everything">, From<"x">,
    Conv2d<4, kernel(4, 1), stride(1, 3)>, Output<"tall_same">, From<"x">,
    ConvTranspose2d<4, kernel(3, 5), stride(3, 2), pad(1, 3), output_padding(2, 1), dilation(2, 1), groups(2)>, Output<"transposed">, From<"x">,
    ConvTranspose2d<5, 2, stride(2), no_bias>, Output<"doubled">, From<"x">,
    Conv2d<12, kernel(1, 7), pad(0, 3), no_bias>, BatchNorm2d<>, ReLU6, Conv2d<12, kernel(7, 1), pad(3, 0), depthwise, no_bias>,
    BatchNorm2d<>, ReLU6, Conv2d<8, 1>> {};

/// The other layers on images, and all ways to branch.
struct Blocks : Sequential<Input<8, 12, 3>, Named<"conv0", Conv2d<4, 3, no_bias>>, Named<"bn0", BatchNorm2d<1e-3>>, ReLU,
    Named<"layer1.0", Residual<Identity, Named<"conv1", Conv2d<4, 3>>, Named<"bn1", BatchNorm2d<>>, LeakyReLU<0.2>>>,
    Output<"first">, Keep<"fine">,
    Residual<Projection<Conv2d<6, 1, stride(2)>, BatchNorm2d<>>, Conv2d<6, 3, stride(2)>, SiLU>, Keep<"coarse">,
    Residual<OptionAShortcut<8, 2>, Conv2d<8, 3, stride(2)>>, Sigmoid, Output<"coarsest">,
    Concat<Branch<Conv2d<3, 1>, ReLU>, Identity, MaxPool2d<2, 1>>, Upsample2d<2>, ConcatWith<"coarse">,
    Add<Tied<"same", Conv2d<5, 3>>, Branch<Tied<"same", Conv2d<5, 3>>, Sigmoid>, Conv2d<5, 1>>,
    OnDevice<Host, LocalResponseNorm<1, 0.3, 0.6, 2.0>>, Upsample2d<2>, Conv2d<4, 1>, AddFrom<"fine">, Dropout<0.5>,
    GlobalAvgPool2d, Named<"fc", Linear<5, no_bias>>> {};

/// Features that were flattened from an image, in layers that keep their order and in layers that need their own.
struct Features : Sequential<Input<3, 2, 4>, Flatten, SiLU, Output<"flat_3_2_4">, Keep<"flat">,
    Named<"narrow", Linear<9>>, Named<"first", Linear<24>>, AddFrom<"flat">, Named<"second", Linear<7>>, ReLU, ConcatWith<"flat">,
    Named<"joined", Linear<6>>, Dropout<0.1>, Output<"third">, From<"flat">, Sigmoid, AddFrom<"flat">,
    Named<"fourth", Linear<3>>, Keep<"z">, From<"flat">, Concat<Identity, Linear<2>>, Named<"fifth", Linear<3>>,
    AddFrom<"z">> {};

/// Features that were flattened in another order than PyTorch's, and of an image that was permuted.
struct Flattened : Sequential<Input<3, 2, 4>, Keep<"x">,
    FlattenChannelsLast, SiLU, Output<"channels_last">, Named<"group", GroupNorm<4>>, Named<"a", Linear<5>>, Output<"of_channels_last">,
    From<"x">, Permute<1, 0, 2>, FlattenChannelsLast, Named<"b", Linear<5>>, Output<"of_permuted">,
    From<"x">, Permute<1, 0, 2>, Flatten, Named<"c", Linear<5>>, Output<"of_transposed">,
    From<"x">, Permute<2, 0, 1>, FlattenChannelsLast, Named<"d", Linear<5>>, Output<"of_channels_first">,
    From<"x">, Reshape<-1>, Named<"e", Linear<4>>> {};

/// All activations, and products of values with and without height and width.
struct Gates : Sequential<Input<5, 4, 6>, Keep<"x">,
    ReLU6, Output<"relu6">, From<"x">, ELU<0.7>, Output<"elu">, From<"x">, SELU, Output<"selu">, From<"x">,
    Tanh, Output<"tanh">, From<"x">, GELU<>, Output<"gelu">, From<"x">, GELU<tanh_approximation>, Output<"gelu_tanh">,
    From<"x">, HardSwish, Output<"hard_swish">, From<"x">, HardSigmoid, Output<"hard_sigmoid">, From<"x">,
    Mish, Output<"mish">, From<"x">, Softplus<>, Output<"softplus">, From<"x">, Softplus<2.0, 0.5>, Output<"softplus_2">,
    From<"x">, Named<"one", PReLU<>>, Output<"prelu">, From<"x">, Named<"each", PReLU<weight_per_channel>>, Output<"prelu_6">,
    Named<"factors", ScaleChannels<>>,
    Named<"positions", Linear<6, per_position>>, Output<"positions_6">,
    Multiply<Identity, Branch<GlobalAvgPool2d, Named<"gate", Linear<6>>, Sigmoid>>, Output<"gated">,
    MultiplyBy<"x">, Output<"product">, GlobalAvgPool2d, MultiplyBy<"x">, Output<"scaled">,
    Flatten, Named<"flat", PReLU<weight_per_channel>>, Named<"flat_factors", ScaleChannels<>>, Named<"head", Linear<3>>> {};

/// The norms of a sample, and softmaxes, of images, of positions and of features.
struct Norms : Sequential<Input<5, 4, 6>, Keep<"x">,
    Named<"layer", LayerNorm<>>, Output<"layer_norm">, From<"x">, Named<"rms", RMSNorm<1e-3>>, Output<"rms_norm">, From<"x">,
    Named<"group", GroupNorm<3, 1e-4>>, Output<"group_norm">, From<"x">, InstanceNorm2d<>, Output<"instance_norm">, From<"x">,
    Named<"affine", InstanceNorm2d<1e-5, with_affine>>, Output<"affine_norm">, From<"x">, Softmax, Output<"soft">, From<"x">,
    LogSoftmax, Output<"log_soft">, Flatten, Named<"layer1", LayerNorm<>>, Named<"rms1", RMSNorm<>>, Named<"group1", GroupNorm<1>>,
    Named<"mixed", Linear<16>>, Named<"group4", GroupNorm<4>>,
    Named<"head", Linear<9>>, LogSoftmax, Output<"classes">, Softmax, Keep<"y">,
    FromInput<"words", 7>, Embedding<20, 8>, Linear<12, per_position>, ReLU, Linear<8, per_position, no_bias>, Named<"layer2", LayerNorm<>>, Named<"rms2", RMSNorm<>>,
    Named<"group2", GroupNorm<2>>, Softmax, Output<"words_out">, Flatten, ConcatWith<"y">> {};

/// Layers of sequences, with every padding.
struct Sequences : Sequential<Input<13, 4>, Keep<"x">,
    Conv1d<6, 3, stride(2)>, Output<"same">, From<"x">, Conv1d<8, 5, valid, dilation(2), depthwise>, Output<"dilated">, From<"x">,
    Named<"conv", Conv1d<6, 3, pad(1), groups(2), no_bias>>, Named<"bn", BatchNorm1d<>>, ReLU, Output<"normalised">, From<"x">,
    MaxPool1d<3, 2>, Output<"max_same">, From<"x">, MaxPool1d<3, 2, pad(1), ceil_mode>, Output<"max_ceil">, From<"x">,
    AvgPool1d<3, 2>, Output<"mean_same">, From<"x">, AvgPool1d<3, 2, pad(1), ignore_padding>, Output<"mean_ignored">, From<"x">,
    AvgPool1d<5, 3, pad(1), ceil_mode>, Output<"mean_counted_ceil">, From<"x">,
    Multiply<Identity, Branch<GlobalAvgPool1d, Named<"gate", Linear<4>>, Sigmoid>>, Output<"gated">,
    GlobalAvgPool1d, MultiplyBy<"x">, Output<"scaled">,
    GlobalAvgPool1d, Named<"bn1", BatchNorm1d<1e-3>>, Keep<"features">,
    FromInput<"words", 9>, Embedding<20, 6>, Conv1d<5, 3>, ReLU, Permute<1, 0>, Flatten, Named<"fc", Linear<4>>, AddFrom<"features">> {};

/// Values of four extents, and ids that get other ones.
struct FourExtents : Sequential<Input<2, 3, 4>, Reshape<2, 3, 2, 2>, Reshape<6, 4>, Reshape<3, 8>, Reshape<4, 3, 2>, Embedding<20, 8>,
    Named<"group", GroupNorm<2>>, Keep<"x">, Output<"group_norm">, Flatten, Named<"a", Linear<8>>, Sigmoid, MultiplyBy<"x">,
    Flatten, Named<"b", Linear<5>>> {};

/// Inputs of all types, one of which is read twice.
struct Inputs : Sequential<Input<5, 4, 3>, FromBytes<means(125.3, 123.0, 113.9), deviations(63.0, 62.1, 66.7)>,
    Conv2d<2, 3>, Flatten, Named<"of_image", Linear<8>>, Keep<"image">,
    FromInput<"words", 1, 6>, Embedding<20, 8, padding_id(3)>, GlobalAvgPool2d, AddFrom<"image">, Keep<"sum">,
    FromInput<"place", 2>, Embedding<9, 3>, Flatten, ConcatWith<"sum">, Keep<"all">,
    FromInput<"map", 2, 3, 5>, Conv2d<2, 1>, Flatten, ConcatWith<"all">, Keep<"more">,
    FromInput<"mask", 7>, FromBytes<>, ConcatWith<"more">, Named<"head", Linear<4>>> {};
// clang-format on

/// Values that neither vanish nor grow through the layers.
template <class Net>
TrainingState random_state() {
    TrainingState state;
    state.parameters.resize(static_cast<std::size_t>(Net::parameter_elements));
    std::uint32_t number = 0;
    for (const LayerInfo& layer : Net::layers) {
        for (std::size_t p = 0; p < layer.parameters.count; ++p) {
            const Parameter& parameter = layer.parameters.list[p];
            const bool one = layer.kind == LayerKind::batch_norm && p == 0;
            const std::span<float> values(state.parameters.data() + layer.offsets[p],
                                          static_cast<std::size_t>(parameter.shape.size()));
            initialize(values, parameter.shape.rank > 1 ? he_normal() : normal(0.2), parameter.fan_in,
                       parameter.fan_out, 1, number++);
            for (float& value : values) value += one ? 1.0F : 0.0F;
        }
    }
    state.buffers = initial_buffers(Net::layers);
    for (std::size_t i = 0; i < state.buffers.size(); ++i) state.buffers[i] += 0.05F * static_cast<float>(i % 7);
    return state;
}

void write_bytes(const std::string& path, const void* data, std::size_t bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    file.close();
    require<DataError>(!file.fail(), path, " cannot be written");
}

/// The random values of a column.
std::vector<std::byte> random_column(const LayerInfo& input, const Shape& shape, std::int64_t batch,
                                     std::uint32_t number) {
    const auto count = static_cast<std::size_t>(batch * shape.size());
    std::vector<float> values(count);
    initialize(values, input.column_type == ElementType::float32 ? normal(1.0) : uniform_within(1.0), 1, 1, 5, number);
    std::vector<std::byte> bytes(count * size_of(input.column_type));
    for (std::size_t i = 0; i < count; ++i) {
        const auto id = static_cast<std::int32_t>(static_cast<float>(input.ids) * std::abs(values[i]));
        const auto byte = static_cast<std::uint8_t>(255.0F * std::abs(values[i]));
        switch (input.column_type) {
            case ElementType::int32: std::memcpy(&bytes[i * sizeof id], &id, sizeof id); break;
            case ElementType::uint8: bytes[i] = std::byte{byte}; break;
            default: std::memcpy(&bytes[i * sizeof(float)], &values[i], sizeof(float));
        }
    }
    return bytes;
}

template <class Net>
void run(OnnxLayout layout, std::int64_t batch, const std::string& folder) {
    const Checkpoint checkpoint{.state = random_state<Net>()};
    write_onnx<Net>(folder + "/model.onnx", checkpoint, {.layout = layout, .metadata = {{"made by", "onnx_tool"}}});

    std::vector<std::vector<std::byte>> memory;
    BatchView samples;
    samples.size = batch;
    const auto add_column = [&](std::string_view name, const LayerInfo& input, const Shape& shape) {
        memory.push_back(random_column(input, shape, batch, static_cast<std::uint32_t>(memory.size())));
        samples.push_back({{name, input.column_type, shape}, memory.back().data()});
        write_bytes(text(folder, '/', name, ".in"), memory.back().data(), memory.back().size());
    };
    add_column(input_column, Net::layers[0], Net::input_shape);
    for (const LayerInfo& layer : Net::layers) {
        if (!layer.column.empty()) add_column(layer.column, layer, layer.output);
    }
    const Predictor<Net> predictor(checkpoint, "the random state", {.max_batch = batch});
    for (const NetworkOutput& output : Net::outputs) {
        std::vector<float> values(static_cast<std::size_t>(batch * output.shape.size()));
        if (output.name.empty()) {
            predictor.predict(samples, values);
        } else {
            predictor.predict(samples, {{output.name, values}});
        }
        write_bytes(text(folder, '/', output.name.empty() ? "output" : output.name, ".out"), values.data(),
                    values.size() * sizeof(float));
    }
}

}  // namespace

int main(int argc, char** argv) try {
    require(argc == 5, "onnx_tool takes a network, nchw or nhwc, a batch size and a folder");
    const std::string_view network = argv[1];
    const OnnxLayout layout = std::string_view(argv[2]) == "nhwc" ? OnnxLayout::nhwc : OnnxLayout::nchw;
    const auto with = [&]<class Net>(std::string_view name) {
        if (network != name) return 0;
        run<Net>(layout, std::atoll(argv[3]), argv[4]);
        return 1;
    };
    const auto of_zoo = [&]<class Net>(const NameTable&) { run<Net>(layout, std::atoll(argv[3]), argv[4]); };
    const int runs = (zoo::with_network(network, of_zoo) ? 1 : 0) + with.operator()<Cifar10Net>("tutorial") +
                     with.operator()<Windows>("windows") + with.operator()<Groups>("groups") +
                     with.operator()<Blocks>("blocks") + with.operator()<Features>("features") +
                     with.operator()<Flattened>("flattened") + with.operator()<Gates>("gates") +
                     with.operator()<Norms>("norms") + with.operator()<Sequences>("sequences") +
                     with.operator()<FourExtents>("four_extents") + with.operator()<Inputs>("inputs");
    require(runs == 1, "onnx_tool has no network ", network);
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
