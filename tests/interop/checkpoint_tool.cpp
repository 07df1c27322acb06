// SPDX-License-Identifier: Apache-2.0
//
// Cupola's side of checkpoint.py and photographs.py, which hold networks against PyTorch's:
//
//   checkpoint_tool write NETWORK CHECKPOINT IMAGES LOGITS   writes a checkpoint of random values, and CHECKPOINT.pth
//   checkpoint_tool read NETWORK CHECKPOINT IMAGES LOGITS    reads one
//
// IMAGES holds float32 of the network's input, channels last, or is a photograph, a PNG file; LOGITS gets those of the
// parameters and then, where the checkpoint has them, those of the moving averages. Any error is one message and the
// status 1.
#include <fstream>
#include <iterator>

#include <cupola/cupola.hpp>
#include <cupola/data/image_file.hpp>
#include <cupola/host.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/io/torch_writer.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/models/convnext.hpp>
#include <cupola/models/efficientnet_lite0.hpp>
#include <cupola/models/mobilenet_v2.hpp>
#include <cupola/models/torchvision_resnet.hpp>
#include <cupola/models/transposed_unet.hpp>
#include <cupola/net/plan.hpp>

#include "../standard.hpp"

namespace {

using namespace cupola;

/// A normalised network with a block whose names have dots, with groups, and a layer between Flatten and Linear.
struct ResidualNet
    : Sequential<Input<8, 6, 3>, Named<"conv0", Conv2d<4, 3, no_bias>>, Named<"bn0", BatchNorm2d<>>, ReLU,
                 Named<"layer1.0",
                       Residual<Identity,
                                Named<"conv1", Conv2d<4, kernel(3, 5), pad(1, 4), dilation(1, 2), groups(2), no_bias>>,
                                Named<"bn1", BatchNorm2d<>>, ReLU, Named<"conv2", Conv2d<4, 3, depthwise>>>>,
                 ReLU, Flatten, Dropout<0.5>, Named<"fc", Linear<5>>> {};

std::vector<float> read_floats(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    require<DataError>(!bytes.empty() && bytes.size() % sizeof(float) == 0, path, " holds no floats");
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

template <class Net>
std::vector<float> read_samples(const std::string& path) {
    if constexpr (requires { Net::preprocessing; }) {
        if (path.ends_with(".png")) return Net::preprocessing(read_image(path));
    }
    return read_floats(path);
}

/// Random values where the network has parameters, between them zeros.
std::vector<float> random_arena(std::span<const LayerInfo> layers, std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(arena_elements(layers)));
    std::uint32_t number = 0;
    for (const LayerInfo& layer : layers) {
        for (std::size_t p = 0; p < layer.parameters.count; ++p) {
            const auto size = static_cast<std::size_t>(layer.parameters.list[p].shape.size());
            initialize(std::span(values).subspan(static_cast<std::size_t>(layer.offsets[p]), size), normal(0.1), 1, 1,
                       seed, number++);
        }
    }
    return values;
}

Checkpoint random_checkpoint(std::span<const LayerInfo> layers) {
    Checkpoint checkpoint;
    checkpoint.state.step = 1234;
    checkpoint.state.parameters = random_arena(layers, 1);
    checkpoint.state.averages = random_arena(layers, 2);
    checkpoint.state.optimizer = {{"momentum_buffer", random_arena(layers, 3)}};
    checkpoint.state.buffers = initial_buffers(layers);
    for (std::size_t i = 0; i < checkpoint.state.buffers.size(); ++i) {
        checkpoint.state.buffers[i] += 0.01F * static_cast<float>(i % 7);
    }
    checkpoint.info.set("network", "of random values, for \"PyTorch\"\n");
    return checkpoint;
}

template <class Net>
void append_logits(std::vector<float>& logits, const std::vector<float>& images, const std::vector<float>& parameters,
                   const std::vector<float>& buffers) {
    HostContext context{0, {.threads = 1}};
    const auto batch = static_cast<std::int64_t>(images.size()) / Net::input_shape.size();
    auto plan = Plan<Host>::make<Net>(context, {.batch = batch, .training = false});
    HostArena arena(plan.bytes().total(), "the activations");
    plan.bind(arena.data());
    plan.prepare(context, parameters.data(), buffers.data());
    const float* output =
        plan.forward(context, images.data(), parameters.data(), {.training = false}, {.running = buffers.data()});
    logits.insert(logits.end(), output, output + batch * Net::output_shape.size());
}

template <class Net>
void run(std::string_view command, const std::string& path, const std::string& image_path,
         const std::string& logits_path) {
    if (command == "write") {
        const Checkpoint checkpoint = random_checkpoint(Net::layers);
        write_checkpoint(path, Net::layers, checkpoint);
        write_torch_file(path + ".pth", Net::layers, checkpoint.state);
    }
    const Checkpoint checkpoint = read_checkpoint(path, Net::layers);
    const std::vector<float> images = read_samples<Net>(image_path);
    std::vector<float> logits;
    append_logits<Net>(logits, images, checkpoint.state.parameters, checkpoint.state.buffers);
    if (!checkpoint.state.averages.empty()) {
        append_logits<Net>(logits, images, checkpoint.state.averages, checkpoint.state.buffers);
    }
    std::ofstream file(logits_path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(logits.data()),
               static_cast<std::streamsize>(logits.size() * sizeof(float)));
    file.close();
    require<DataError>(!file.fail(), logits_path, " cannot be written");
}

}  // namespace

int main(int argc, char** argv) try {
    require(argc == 6, "checkpoint_tool takes write or read, a network, a checkpoint, images and logits");
    const std::string_view command = argv[1], network = argv[2];
    require(command == "write" || command == "read", "checkpoint_tool has no command ", command);
    if (network == "tutorial") {
        run<Cifar10Net>(command, argv[3], argv[4], argv[5]);
    } else if (network == "resnet18") {
        run<ResNet18<10, 64>>(command, argv[3], argv[4], argv[5]);
    } else if (network == "resnet50") {
        run<ResNet50<10, 64>>(command, argv[3], argv[4], argv[5]);
    } else if (network == "mobilenet_v2") {
        run<MobileNetV2<10, 64>>(command, argv[3], argv[4], argv[5]);
    } else if (network == "efficientnet_lite0") {
        run<EfficientNetLite0<>>(command, argv[3], argv[4], argv[5]);
    } else if (network == "convnext_tiny") {
        run<ConvNeXtTiny<10, 64>>(command, argv[3], argv[4], argv[5]);
    } else if (network == "transposed_unet") {
        run<TransposedUNet<16, 24, 3, 5, 4, 2>>(command, argv[3], argv[4], argv[5]);
    } else {
        require(network == "residual", "checkpoint_tool has no network ", network);
        run<ResidualNet>(command, argv[3], argv[4], argv[5]);
    }
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
