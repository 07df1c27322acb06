// SPDX-License-Identifier: Apache-2.0
#include "../test.hpp"

#include <cupola/io/checkpoint.hpp>
#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/layers/sigmoid.hpp>
#include <cupola/net/residual.hpp>
#include <throws_with.hpp>

#include "checkpoint_support.hpp"
#include "file_support.hpp"

using namespace io_tests;

namespace {

/// The values of a tensor of the file.
std::vector<float> values_of(const std::string& path, std::string_view name) {
    const SafetensorsFile file(path);
    REQUIRE(file.find(name) != nullptr);
    const auto bytes = file.bytes(*file.find(name));
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

using Metadata = SafetensorsWriter::Metadata;

/// A file of these tensors, all zeros.
void write_zeros(const std::string& path, const std::vector<TensorHeader>& tensors, const Metadata& metadata = {}) {
    SafetensorsWriter file(path, tensors, metadata);
    for (const TensorHeader& tensor : tensors) {
        std::uint64_t bytes = impl::safetensors_element_bytes(tensor.type);
        for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
        file.write(std::vector<std::byte>(bytes));
    }
    file.commit();
}

/// The tensors of `Net`.
std::vector<TensorHeader> tensors_of_net() {
    return {{"conv1.weight", "F32", {3, 2, 1, 1}},
            {"conv1.bias", "F32", {3}},
            {"fc.weight", "F32", {2, 12}},
            {"fc.bias", "F32", {2}},
            {"6.weight", "F32", {2, 2}}};
}

std::string refusal(const std::string& path) {
    return message_of<DataError>([&] { (void)read_checkpoint(path, Net::layers); });
}

/// A layer with running statistics of its features.
struct Norm {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static constexpr Parameter per_feature(const char* name, const Shape& input) {
        return {.name = name, .shape = input, .layout = FileLayout::input_features};
    }
    static constexpr Parameters parameters(const Shape& input) { return per_feature("weight", input); }
    static constexpr Parameters buffers(const Shape& input) {
        return {per_feature("running_mean", input), per_feature("running_var", input)};
    }
};

const Metadata own{{"cupola.version", "1"}, {"cupola.step", "3"}, {"cupola.optimizer_states", ""}};

}  // namespace

TEST_CASE("A checkpoint is read as it was written") {
    const TemporaryFolder folder;
    const Checkpoint written = small_checkpoint();
    write_checkpoint(folder.path("x"), Net::layers, written);
    const Checkpoint read = read_checkpoint(folder.path("x"), Net::layers);
    CHECK(read.resumable);
    CHECK(read.state.step == 1000);
    CHECK(read.state.parameters == written.state.parameters);
    CHECK(read.state.averages == written.state.averages);
    CHECK(read.state.optimizer == written.state.optimizer);
    CHECK(read.state.buffers.empty());
    CHECK(read.info == written.info);
    CHECK(folder.names() == std::set<std::string>{"x"});
    CHECK(read.state.tensors == state_tensors(Net::layers));  // so that a training of another network refuses it
}

TEST_CASE("A checkpoint of replicas with separate parameters has those of each replica under its number") {
    const TemporaryFolder folder;
    Checkpoint written = small_checkpoint();
    written.state.optimizer.clear();
    for (const float first : {5001.0F, 7001.0F}) {
        written.state.replicas.push_back(
            {arena<Net>(first), {}, {{"exp_avg", arena<Net>(first + 900)}, {"exp_avg_sq", arena<Net>(9)}}});
    }
    write_checkpoint(folder.path("x"), Net::layers, written);
    const Checkpoint read = read_checkpoint(folder.path("x"), Net::layers);
    CHECK(read.state.parameters == written.state.parameters);
    CHECK(read.state.averages == written.state.averages);
    CHECK(read.state.replicas == written.state.replicas);
    const SafetensorsFile file(folder.path("x"));
    CHECK(file.find("replica.1.optimizer.exp_avg_sq.conv1.weight") != nullptr);

    std::swap(written.state.replicas[1].optimizer[0], written.state.replicas[1].optimizer[1]);
    CHECK(contains(message_of<InvalidArgument>([&] { write_checkpoint(folder.path("y"), Net::layers, written); }),
                   "the replicas of the state have different arenas"));
    std::swap(written.state.replicas[1].optimizer[0], written.state.replicas[1].optimizer[1]);
    written.state.replicas[1].parameters[3] = std::numeric_limits<float>::quiet_NaN();
    CHECK(contains(message_of<InvalidArgument>([&] { write_checkpoint(folder.path("y"), Net::layers, written); }),
                   "replica 1's parameter conv1.weight is nan at"));
    CHECK(folder.names() == std::set<std::string>{"x"});
}

TEST_CASE("A checkpoint without averages and without optimiser state has none of them") {
    const TemporaryFolder folder;
    Checkpoint written = small_checkpoint();
    written.state.averages.clear();
    written.state.optimizer.clear();
    write_checkpoint(folder.path("x"), Net::layers, written);
    const Checkpoint read = read_checkpoint(folder.path("x"), Net::layers);
    CHECK(read.resumable);
    CHECK(read.state.parameters == written.state.parameters);
    CHECK(read.state.averages.empty());
    CHECK(read.state.optimizer.empty());
    CHECK(SafetensorsFile(folder.path("x")).tensors().size() == 5);
}

TEST_CASE("The tensors of a checkpoint have PyTorch's names and extents") {
    const TemporaryFolder folder;
    write_checkpoint(folder.path("x"), Net::layers, small_checkpoint());
    const SafetensorsFile file(folder.path("x"));
    CHECK(file.tensors().size() == 20);
    for (const char* prefix : {"", "ema.", "optimizer.exp_avg.", "optimizer.exp_avg_sq."}) {
        for (const TensorHeader& tensor : tensors_of_net()) {
            const std::string name = prefix + tensor.name;
            CAPTURE(name);
            REQUIRE(file.find(name) != nullptr);
            CHECK(file.find(name)->type == "F32");
            CHECK(file.find(name)->shape() == tensor.shape);
        }
    }
}

TEST_CASE("Convolution weights are stored as OIHW") {
    struct Wide : Sequential<Input<4, 4, 2>, Named<"conv", Conv2d<2, 3, no_bias>>> {};
    const TemporaryFolder folder;
    Checkpoint checkpoint;
    checkpoint.state.parameters = arena<Wide>(0);  // in the order output, height, width, input
    write_checkpoint(folder.path("x"), Wide::layers, checkpoint);
    std::vector<float> expected;
    for (int o = 0; o < 2; ++o) {
        for (int i = 0; i < 2; ++i) {
            for (int h = 0; h < 3; ++h) {
                for (int w = 0; w < 3; ++w) expected.push_back(static_cast<float>(((o * 3 + h) * 3 + w) * 2 + i));
            }
        }
    }
    CHECK(values_of(folder.path("x"), "conv.weight") == expected);
}

TEST_CASE("The columns of the first linear layer behind a Flatten are stored in the order of channels, height, width") {
    const TemporaryFolder folder;
    Checkpoint checkpoint;
    checkpoint.state.parameters = arena<Net>(0);
    write_checkpoint(folder.path("x"), Net::layers, checkpoint);
    // Before it lie the convolution's 6 weights and 3 biases; a row is of height 2, width 2, channels 3.
    std::vector<float> expected;
    for (int layer = 0; layer < 2; ++layer) {
        for (int c = 0; c < 3; ++c) {
            for (int place = 0; place < 4; ++place)
                expected.push_back(static_cast<float>(9 + layer * 12 + place * 3 + c));
        }
    }
    CHECK(values_of(folder.path("x"), "fc.weight") == expected);
    CHECK(values_of(folder.path("x"), "fc.bias") == std::vector<float>{33, 34});
    // The second one sees no order of places.
    CHECK(values_of(folder.path("x"), "6.weight") == std::vector<float>{35, 36, 37, 38});
}

TEST_CASE("A second linear layer of as many features as the flattened input keeps its columns") {
    struct Square
        : Sequential<Input<2, 2, 3>, Flatten, Named<"a", Linear<12, no_bias>>, Named<"b", Linear<12, no_bias>>> {};
    const TemporaryFolder folder;
    Checkpoint checkpoint;
    checkpoint.state.parameters = arena<Square>(0);
    write_checkpoint(folder.path("x"), Square::layers, checkpoint);
    CHECK(values_of(folder.path("x"), "a.weight")[1] == 3);
    CHECK(values_of(folder.path("x"), "b.weight")[1] == 145);
    CHECK(read_checkpoint(folder.path("x"), Square::layers).state.parameters == checkpoint.state.parameters);
}

TEST_CASE("Running statistics are stored beside the parameters, in the same order of features") {
    struct Normed : Sequential<Input<1, 2, 2>, Flatten, Named<"bn", Norm>, Named<"fc", Linear<1, no_bias>>> {};
    const TemporaryFolder folder;
    const std::string x = folder.path("x");
    Checkpoint checkpoint;
    checkpoint.state.parameters = arena<Normed>(0);
    checkpoint.state.buffers.assign(static_cast<std::size_t>(Normed::buffer_elements), 0.0F);
    const auto& offsets = Normed::layers[1].buffer_offsets;
    for (std::size_t i = 0; i < 4; ++i) {
        checkpoint.state.buffers[static_cast<std::size_t>(offsets[0]) + i] = 100 + static_cast<float>(i);
        checkpoint.state.buffers[static_cast<std::size_t>(offsets[1]) + i] = 200 + static_cast<float>(i);
    }
    write_checkpoint(x, Normed::layers, checkpoint);
    CHECK(SafetensorsFile(x).tensors().size() == 4);
    CHECK(values_of(x, "bn.weight") == std::vector<float>{0, 2, 1, 3});
    CHECK(values_of(x, "bn.running_mean") == std::vector<float>{100, 102, 101, 103});
    CHECK(values_of(x, "bn.running_var") == std::vector<float>{200, 202, 201, 203});
    CHECK(values_of(x, "fc.weight") == std::vector<float>{4, 6, 5, 7});
    const Checkpoint read = read_checkpoint(x, Normed::layers);
    CHECK(read.state.parameters == checkpoint.state.parameters);
    CHECK(read.state.buffers == checkpoint.state.buffers);
}

TEST_CASE("A linear layer takes the order of the features that it reads") {
    // In the list "b" stands behind "a", which has no order of places any more; it reads what "a" reads.
    struct Branches : Sequential<Input<1, 2, 2>, Flatten,
                                 Residual<Projection<Named<"b", Linear<4, no_bias>>>, Named<"a", Linear<4, no_bias>>>,
                                 Named<"c", Linear<4, no_bias>>> {};
    const TemporaryFolder folder;
    const std::string x = folder.path("x");
    Checkpoint checkpoint;
    checkpoint.state.parameters = arena<Branches>(0);
    write_checkpoint(x, Branches::layers, checkpoint);
    for (const char* name : {"a.weight", "b.weight", "c.weight"}) {
        const std::vector<float> values = values_of(x, name);
        REQUIRE(values.size() == 16);
        CHECK(values[1] - values[0] == (std::string(name) == "c.weight" ? 1 : 2));
    }
    CHECK(read_checkpoint(x, Branches::layers).state.parameters == checkpoint.state.parameters);
}

TEST_CASE("A file that PyTorch saved has parameters and nothing else") {
    const TemporaryFolder folder;
    auto tensors = tensors_of_net();
    tensors.push_back({"bn.num_batches_tracked", "I64", {}});
    write_zeros(folder.path("x"), tensors, {{"format", "pt"}, {"model", "mine"}});
    const Checkpoint read = read_checkpoint(folder.path("x"), Net::layers);
    CHECK_FALSE(read.resumable);
    CHECK(read.state.step == 0);
    CHECK(read.state.parameters == std::vector<float>(static_cast<std::size_t>(Net::parameter_elements)));
    CHECK(read.state.averages.empty());
    CHECK(read.state.optimizer.empty());
    CHECK(read.info.entries() == std::vector<CheckpointInfo::Entry>{{"model", "mine"}});
}

TEST_CASE("A checkpoint of another network is rejected with the first difference") {
    const TemporaryFolder folder;
    const std::string x = folder.path("x"), other = x + " is a checkpoint of another network: ";
    write_checkpoint(x, WiderNet::layers, small_checkpoint<WiderNet>());
    CHECK(refusal(x) == other + "its conv1.weight is [4,2,1,1], and this network's is 3 x 2 x 1 x 1");
    write_checkpoint(x, ShorterNet::layers, small_checkpoint<ShorterNet>());
    CHECK(refusal(x) == other + "it has no tensor 6.weight");
    write_checkpoint(x, OtherNet::layers, small_checkpoint<OtherNet>());
    CHECK(refusal(x) == other + "it has no tensor conv1.weight");
    write_checkpoint(x, Net::layers, small_checkpoint());
    CHECK(message_of<DataError>([&] { (void)read_checkpoint(x, ShorterNet::layers); }) ==
          other + "it has a tensor 6.weight, which this network does not have");

    auto tensors = tensors_of_net();
    tensors[3].shape = {2, 1};
    write_zeros(x, tensors);
    CHECK(refusal(x) == other + "its fc.bias is [2,1], and this network's is 2");
    tensors[3].shape = {};
    write_zeros(x, tensors);
    CHECK(refusal(x) == other + "its fc.bias is [], and this network's is 2");
}

TEST_CASE("A checkpoint that lacks one of the averages or of the optimiser's tensors is rejected") {
    const TemporaryFolder folder;
    const std::string x = folder.path("x"), other = x + " is a checkpoint of another network: ";
    auto tensors = tensors_of_net();
    tensors.push_back({"ema.conv1.weight", "F32", {3, 2, 1, 1}});
    write_zeros(x, tensors, own);
    CHECK(refusal(x) == other + "it has no tensor ema.conv1.bias");
    tensors.back().name = "ema.conv1.bias";
    tensors.back().shape = {3};
    write_zeros(x, tensors, own);
    CHECK(refusal(x) == other + "it has a tensor ema.conv1.bias, which this network does not have");
    Metadata metadata = own;
    metadata[2].second = "exp_avg";
    write_zeros(x, tensors_of_net(), metadata);
    CHECK(refusal(x) == other + "it has no tensor optimizer.exp_avg.conv1.weight");
}

TEST_CASE("A tensor of another type is rejected with its name") {
    const TemporaryFolder folder;
    auto tensors = tensors_of_net();
    tensors[2].type = "I32";
    write_zeros(folder.path("x"), tensors);
    CHECK(refusal(folder.path("x")) ==
          folder.path("x") + ": fc.weight has elements of type I32; F32, F16, BF16 and F64 are supported");
}

TEST_CASE("Tensors of half, bfloat16 and double precision are read as the floats that they are") {
    const TemporaryFolder folder;
    const std::array<std::uint16_t, 3> half{0x3C00, 0xC0A0, 0x7BFF}, brain{0x3F80, 0xC014, 0x0001};
    const std::array<double, 2> wide{0.1, -3e9};
    auto tensors = tensors_of_net();
    tensors[1].type = "F16";
    tensors[3].type = "F64";
    for (const bool first : {true, false}) {
        if (!first) tensors[1].type = "BF16";
        SafetensorsWriter file(folder.path("x"), tensors, {});
        for (const TensorHeader& tensor : tensors) {
            std::uint64_t bytes = impl::safetensors_element_bytes(tensor.type);
            for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
            if (tensor.name == "conv1.bias") {
                file.write(std::as_bytes(std::span(first ? half : brain)));
            } else if (tensor.name == "fc.bias") {
                file.write(std::as_bytes(std::span(wide)));
            } else {
                file.write(std::vector<std::byte>(bytes));
            }
        }
        file.commit();
        const std::vector<float> values = read_checkpoint(folder.path("x"), Net::layers).state.parameters;
        const auto at = [&](std::size_t layer, std::size_t i) {
            return values[static_cast<std::size_t>(Net::layers[layer].offsets[1]) + i];
        };
        std::size_t conv = 0, fc = 0;
        for (std::size_t layer = 0; layer < Net::layers.size(); ++layer) {
            if (Net::layers[layer].name == "conv1") conv = layer;
            if (Net::layers[layer].name == "fc") fc = layer;
        }
        CHECK(at(conv, 0) == 1.0F);
        CHECK(at(conv, 1) == -2.3125F);
        CHECK(at(conv, 2) == (first ? 65504.0F : 9.183549615799121e-41F));
        CHECK(at(fc, 0) == 0.1F);
        CHECK(at(fc, 1) == -3e9F);
    }
}

TEST_CASE("A checkpoint of another version, or with wrong metadata, is rejected") {
    const TemporaryFolder folder;
    const std::string x = folder.path("x");
    const auto refused = [&](const Metadata& metadata) {
        write_zeros(x, tensors_of_net(), metadata);
        return refusal(x);
    };
    CHECK(refused({{"cupola.version", "2"}}) ==
          x + " has version 2 of Cupola's checkpoints; this program reads version 1");
    CHECK(refused({{"cupola.version", "1"}}) == x + " is damaged: it lacks its checksum or its step");
    CHECK(refused({{"cupola.version", "1"}, {"cupola.step", "-1"}}) ==
          x + " has the step '-1', which is not a valid step");
    CHECK(refused({{"cupola.version", "1"}, {"cupola.step", "1e3"}}) ==
          x + " has the step '1e3', which is not a valid step");
    CHECK(refused({{"cupola.version", "1"}, {"cupola.step", "1099511627777"}}) ==
          x + " has the step '1099511627777', which is not a valid step");
    CHECK(refused({{"cupola.version", "1"}, {"cupola.step", ""}}) == x + " has the step '', which is not a valid step");
    Metadata metadata = own;
    metadata[2].second = "a b a";
    CHECK(refused(metadata) == x + " has the optimiser state a twice");
    metadata[2].second = "a/b";
    CHECK(refused(metadata) == x + " has an optimiser state named 'a/b', which is not a valid name");
    metadata[2].second = "a  b";
    CHECK(refused(metadata) == x + " has an optimiser state named '', which is not a valid name");
    metadata[2].second = "a b c d e f g h i j k l m n o p q";
    CHECK(refused(metadata) == x + " has more than 16 optimiser states");
    CHECK(refused(own) == "(no exception)");
    metadata = own;
    metadata.emplace_back("cupola.replicas", "2");
    CHECK(refused(metadata) ==
          x + " is of a training by a policy that moved parameters, of 2 replicas without a centre, which cannot be "
              "continued any more: Periodic of cupola/parallel/kinds/periodic.hpp takes its place; load_parameters "
              "reads the parameters of its first replica");
    metadata.back() = {"cupola.centre_replicas", "1"};
    CHECK(refused(metadata) == x + " declares 1 replicas and has 5 tensors, not 5 per replica");
    for (const char* const wrong : {"0", "6", "99999999999999999999", "1.5"}) {
        metadata.back().second = wrong;
        CHECK(refused(metadata) ==
              text(x, " has the number of replicas '", wrong, "', which is not a valid number of replicas"));
    }
    metadata.back() = {"cupola.samples_since", "3 1099511627777"};
    CHECK(refused(metadata) ==
          x + " has the number of samples '1099511627777', which is not a valid number of samples");
}

TEST_CASE("A checkpoint that is truncated anywhere, or has a wrong byte anywhere, is rejected with an error") {
    const TemporaryFolder folder;
    const std::string x = folder.path("x");
    write_checkpoint(x, Net::layers, small_checkpoint());
    const std::string whole = read_bytes(x);
    const auto said = [&](const std::string& bytes) {
        return message_of<DataError>(
            [&] { (void)read_checkpoint(SafetensorsFile("f", in_memory(bytes)), Net::layers); });
    };
    CHECK(said(whole) == "(no exception)");
    for (std::size_t length = 0; length < whole.size(); ++length) {
        const std::string message = said(whole.substr(0, length));
        CAPTURE(length);
        CHECK((message.starts_with("f is truncated") || message.starts_with("f is damaged")));
    }
    for (std::size_t i = 0; i < whole.size(); ++i) {
        for (const int wrong : {0x01, 0x20, 0x80, 0xFF}) {
            std::string damaged = whole;
            damaged[i] = static_cast<char>(damaged[i] ^ wrong);
            const std::string message = said(damaged);
            CAPTURES(i, wrong);
            CHECK(message.starts_with("f "));
            CHECK(message.find('\n') == std::string::npos);
        }
    }
}

namespace {
struct Normed : Sequential<Input<2, 2, 2>, Named<"conv1", Conv2d<3, 1>>, Named<"bn1", BatchNorm2d<>>> {};
}  // namespace

TEST_CASE("A state that is not finite is neither written nor read, and its part is named") {
    const TemporaryFolder folder;
    const std::string path = folder.path("x");
    Checkpoint checkpoint = small_checkpoint<Normed>();
    checkpoint.state.buffers = initial_buffers(Normed::layers);
    write_checkpoint(path, Normed::layers, checkpoint);
    const auto bias = static_cast<std::size_t>(Normed::layers[0].offsets[1]),
               variance = static_cast<std::size_t>(Normed::layers[1].buffer_offsets[1]);
    const float bad = std::numeric_limits<float>::quiet_NaN();
    // The file with the same bytes but for one value, as another program may have written it.
    const auto file_with = [&](const std::string& tensor, std::size_t place, float value) {
        const SafetensorsFile file(path);
        std::vector<TensorHeader> headers;
        std::vector<std::vector<std::byte>> contents;
        for (const SafeTensor& stored : file.tensors()) {
            headers.push_back({std::string(stored.name), "F32", stored.shape()});
            const auto bytes = file.bytes(stored);
            contents.emplace_back(bytes.begin(), bytes.end());
            if (stored.name == tensor) std::memcpy(contents.back().data() + 4 * place, &value, 4);
        }
        Metadata metadata;
        for (const auto& [key, text_of_it] : file.metadata()) {
            if (key != impl::checksum_key) metadata.emplace_back(std::string(key), std::string(text_of_it));
        }
        SafetensorsWriter other(folder.path("y"), headers, metadata);
        for (const std::vector<std::byte>& bytes : contents) other.write(bytes);
        other.commit();
        return message_of<DataError>([&] { (void)read_checkpoint(folder.path("y"), Normed::layers); });
    };
    const auto not_written = [&](auto&& ruin) {
        Checkpoint ruined = checkpoint;
        ruin(ruined.state);
        return message_of<InvalidArgument>([&] { write_checkpoint(folder.path("z"), Normed::layers, ruined); });
    };
    const std::string no_file = folder.path("z") + " is not written: the state's ",
                      no_state = folder.path("y") + " cannot be used: its ";
    CHECK(file_with("conv1.bias", 1, 3.0F) == "(no exception)");

    CHECK(not_written([&](TrainingState& s) { s.parameters[bias + 2] = bad; }) ==
          no_file + "parameter conv1.bias is nan at [2]");
    CHECK(file_with("conv1.bias", 2, bad) == no_state + "parameter conv1.bias is nan at [2]");
    CHECK(not_written([&](TrainingState& s) { s.averages[bias] = -bad; }) ==
          no_file + "moving average of conv1.bias is nan at [0]");
    CHECK(file_with("ema.conv1.bias", 0, bad) == no_state + "moving average of conv1.bias is nan at [0]");
    CHECK(not_written([&](TrainingState& s) { s.optimizer[1].values[bias] = bad; }) ==
          no_file + "exp_avg_sq of conv1.bias is nan at [0]");
    CHECK(file_with("optimizer.exp_avg_sq.conv1.bias", 0, bad) == no_state + "exp_avg_sq of conv1.bias is nan at [0]");
    CHECK(not_written([&](TrainingState& s) { s.buffers[variance] = -1; }) ==
          no_file + "running statistic bn1.running_var is -1 at [0]");
    CHECK(file_with("bn1.running_var", 0, -1) == no_state + "running statistic bn1.running_var is -1 at [0]");
    CHECK(!std::filesystem::exists(folder.path("z")));
}

TEST_CASE("A checkpoint of another activation is refused, although its parameters are the same") {
    const TemporaryFolder folder;
    struct Squashed : Sequential<Input<2, 2, 2>, Named<"conv1", Conv2d<3, 1>>, Sigmoid, Flatten, ReLU,
                                 Named<"fc", Linear<2>>, ReLU, Linear<2, no_bias>> {};
    const std::string path = folder.path("x");
    write_checkpoint(path, Net::layers, small_checkpoint());
    CHECK(read_checkpoint(path, Net::layers).network == network_description(Net::layers));
    for (const FrozenInFile frozen : {FrozenInFile::as_in_network, FrozenInFile::any}) {
        CHECK(message_of<DataError>([&] { (void)read_checkpoint(path, Squashed::layers, frozen); }) ==
              path +
                  " is a checkpoint of another network: layer[2] was ReLU: 2 x 2 x 3 and is Sigmoid: 2 x 2 x 3; "
                  "NetworkInFile::of_same_parameters reads it all the same");
        CHECK(read_checkpoint(path, Squashed::layers, {.frozen = frozen, .network = NetworkInFile::of_same_parameters})
                  .state.step == 1000);
    }
    // Files of PyTorch, and of trainings before this entry, do not say it.
    write_zeros(path, tensors_of_net());
    CHECK(read_checkpoint(path, Squashed::layers).network.empty());
    write_zeros(path, tensors_of_net(), own);
    CHECK(read_checkpoint(path, Squashed::layers).network.empty());
}

TEST_CASE(
    "A file of PyTorch whose names have a beginning, or that has more tensors, is read by an option that the error names") {
    const TemporaryFolder folder;
    const std::string path = folder.path("x"), other = path + " is a checkpoint of another network: ";
    for (const std::string prefix : {"module.", "_orig_mod.", "_orig_mod.module."}) {
        std::vector<TensorHeader> tensors = tensors_of_net();
        for (TensorHeader& tensor : tensors) tensor.name.insert(0, prefix);
        write_zeros(path, tensors);
        CHECK(refusal(path) == other + "it has no tensor conv1.weight; its names begin with " + prefix +
                                   ", and .file_prefix = \"" + prefix + "\" leaves that out");
        CHECK(read_checkpoint(path, Net::layers, {.file_prefix = prefix}).state.parameters ==
              std::vector<float>(Net::parameter_elements));
        tensors.pop_back();
        write_zeros(path, tensors);
        CHECK(refusal(path) == other + "it has no tensor conv1.weight");  // these are others
        CHECK(message_of<DataError>([&] { (void)read_checkpoint(path, Net::layers, {.file_prefix = prefix}); }) ==
              other + "it has no tensor " + prefix + "6.weight");
    }
    std::vector<TensorHeader> tensors = tensors_of_net();
    tensors.push_back({"head.weight", "F32", {2}});
    tensors.push_back({"n_averaged", "I64", {}});
    write_zeros(path, tensors);
    CHECK(refusal(path) == other +
                               "it has a tensor head.weight, which this network does not have; .ignored = "
                               "{\"head.weight\"} leaves it out");
    CHECK(contains(message_of<DataError>([&] { (void)read_checkpoint(path, Net::layers, {.ignored = {"head.*"}}); }),
                   "it has a tensor n_averaged"));
    CHECK_FALSE(read_checkpoint(path, Net::layers, {.ignored = {"head.*", "n_averaged"}}).resumable);
    // A checkpoint of a training has what its network has.
    write_zeros(path, tensors, own);
    CHECK(refusal(path) == other + "it has a tensor head.weight, which this network does not have");
}

TEST_CASE("A state that is not of the network is not written") {
    const TemporaryFolder folder;
    const auto refused = [&](const Checkpoint& checkpoint) {
        return message_of<InvalidArgument>([&] { write_checkpoint(folder.path("x"), Net::layers, checkpoint); });
    };
    Checkpoint checkpoint = small_checkpoint();
    checkpoint.state.averages.pop_back();
    CHECK(contains(refused(checkpoint), ": an arena of the state has " + std::to_string(Net::parameter_elements - 1)));
    checkpoint = small_checkpoint();
    checkpoint.state.optimizer[1].values.pop_back();
    CHECK(contains(refused(checkpoint), ": an arena of the state has " + std::to_string(Net::parameter_elements - 1)));
    checkpoint = small_checkpoint();
    checkpoint.state.optimizer[1].name = "exp avg";
    CHECK(contains(refused(checkpoint), "cannot have an optimiser state named 'exp avg': a name consists of letters"));
    checkpoint = small_checkpoint();
    checkpoint.state.buffers.resize(1);
    CHECK(contains(refused(checkpoint), ": an arena of the state has 1 elements, and the network's has 0"));
    checkpoint = small_checkpoint(-1);
    CHECK(contains(refused(checkpoint), "cannot have the step -1"));
    checkpoint = small_checkpoint();
    checkpoint.info.set("cupola.step", "1");
    CHECK(contains(refused(checkpoint), "cannot have the metadata key cupola.step"));
    CHECK(folder.names().empty());
}
