// SPDX-License-Identifier: Apache-2.0
//
// Cupola's side of checkpoint.py, zoo.py, photographs.py and weight_files.py, which hold it against PyTorch:
//
//   checkpoint_tool write NETWORK CHECKPOINT IMAGES LOGITS            a checkpoint of random values, and CHECKPOINT.pth
//   checkpoint_tool read NETWORK CHECKPOINT IMAGES LOGITS [WRITTEN]   reads one, and writes it with the file's names
//   checkpoint_tool copy FILE COPY                                    writes the tensors of floats in a file as float32
//
// IMAGES holds float32 of the network's input, channels last, or is a photograph, a PNG file; LOGITS gets those of the
// parameters and then, where the checkpoint has them, those of the moving averages. WRITTEN is a safetensors file where
// its name ends so, else one of torch.save; COPY is a safetensors file. Any error is one message and the status 1.
#include <fstream>
#include <iterator>

#include <cupola/cupola.hpp>
#include <cupola/data/image_file.hpp>
#include <cupola/host.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/io/open_tensor_file.hpp>
#include <cupola/io/safetensors_writer.hpp>
#include <cupola/io/torch_writer.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/net/plan.hpp>

#include "../standard.hpp"
#include "zoo.hpp"

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

struct Arguments {
    std::string_view command, network;
    std::string checkpoint, images, logits, written;
};

template <class Net>
void run(const Arguments& arguments, const NameTable& names = {}) {
    if (arguments.command == "write") {
        const Checkpoint checkpoint = random_checkpoint(Net::layers);
        write_checkpoint(arguments.checkpoint, Net::layers, checkpoint);
        write_torch_file(arguments.checkpoint + ".pth", Net::layers, checkpoint.state);
    }
    const Checkpoint checkpoint = read_checkpoint(arguments.checkpoint, Net::layers, {.names = names});
    const std::vector<float> images = read_samples<Net>(arguments.images);
    std::vector<float> logits;
    append_logits<Net>(logits, images, checkpoint.state.parameters, checkpoint.state.buffers);
    if (!checkpoint.state.averages.empty()) {
        append_logits<Net>(logits, images, checkpoint.state.averages, checkpoint.state.buffers);
    }
    std::ofstream file(arguments.logits, std::ios::binary);
    file.write(reinterpret_cast<const char*>(logits.data()),
               static_cast<std::streamsize>(logits.size() * sizeof(float)));
    file.close();
    require<DataError>(!file.fail(), arguments.logits, " cannot be written");
    if (arguments.written.ends_with(".safetensors")) {
        write_checkpoint(arguments.written, Net::layers, checkpoint);
    } else if (!arguments.written.empty()) {
        write_torch_file(arguments.written, Net::layers, checkpoint.state, names);
    }
}

void copy_tensors(const std::string& path, const std::string& to) {
    const std::unique_ptr<TensorFile> file = open_tensor_file(path);
    std::vector<TensorHeader> headers;
    for (const SafeTensor& tensor : file->tensors()) {
        if (impl::is_stored_float(tensor.type)) headers.push_back({std::string(tensor.name), "F32", tensor.shape()});
    }
    SafetensorsWriter copy(to, headers, {});
    for (const TensorHeader& header : headers) {
        const SafeTensor& tensor = file->at(header.name);
        std::vector<float> values(tensor.elements());
        file->read_floats(tensor, values.data());
        copy.write(std::as_bytes(std::span(values)));
    }
    copy.commit();
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc == 4 && std::string_view(argv[1]) == "copy") {
        copy_tensors(argv[2], argv[3]);
        return 0;
    }
    require(argc == 6 || argc == 7, "checkpoint_tool takes write or read, a network, a checkpoint, images and logits");
    const Arguments arguments{argv[1], argv[2], argv[3], argv[4], argv[5], argc == 7 ? argv[6] : ""};
    require(arguments.command == "write" || arguments.command == "read", "checkpoint_tool has no command ",
            arguments.command);
    if (arguments.network == "tutorial") {
        run<Cifar10Net>(arguments);
    } else if (arguments.network == "residual") {
        run<ResidualNet>(arguments);
    } else {
        const bool found = zoo::with_network(arguments.network,
                                             [&]<class Net>(const NameTable& names) { run<Net>(arguments, names); });
        require(found, "checkpoint_tool has no network ", arguments.network);
    }
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
