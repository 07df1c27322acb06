// SPDX-License-Identifier: Apache-2.0
//
// Files of torch.save where safetensors files are loaded: the same values, the same reports, the same messages.
#include <cupola/io/load_parameters.hpp>

#include "../test.hpp"

#include <throws_with.hpp>

#include "checkpoint_support.hpp"
#include "file_support.hpp"
#include "torch_support.hpp"

using namespace io_tests;

namespace {

/// The tensors of `Net` with values 0, 1, 2, ... in one storage each.
struct Saved {
    std::vector<std::pair<std::string, pickle::Tensor>> tensors{
        {"conv1.weight", {.extents = {3, 2, 1, 1}, .strides = {2, 1, 1, 1}, .key = "0", .count = 6}},
        {"conv1.bias", {.extents = {3}, .strides = {1}, .key = "1", .count = 3}},
        {"fc.weight", {.extents = {2, 12}, .strides = {12, 1}, .key = "2", .count = 24}},
        {"fc.bias", {.extents = {2}, .strides = {1}, .key = "3", .count = 2}},
        {"6.weight", {.extents = {2, 2}, .strides = {2, 1}, .key = "4", .count = 4}}};
    std::string prefix;
    float first = 0;

    [[nodiscard]] pickle::Tensor& at(const std::string& name) {
        for (auto& [each, tensor] : tensors) {
            if (each == name) return tensor;
        }
        throw std::out_of_range(name);
    }
    [[nodiscard]] std::string bytes() const {
        std::vector<std::string> storages;
        std::vector<std::pair<std::string, std::string>> values;
        for (const auto& [name, tensor] : tensors) {
            std::vector<float> numbers(static_cast<std::size_t>(tensor.count));
            std::iota(numbers.begin(), numbers.end(), first);
            storages.push_back(bytes_of(numbers));
            values.emplace_back(prefix + name, pickle::tensor(tensor));
        }
        return torch_zip(pickle::dictionary(values), storages);
    }
    /// The same as a safetensors file; for tensors that are not transposed.
    [[nodiscard]] std::string safe_bytes() const {
        std::string header, data;
        for (const auto& [name, tensor] : tensors) {
            std::vector<float> numbers(static_cast<std::size_t>(tensor.count));
            std::iota(numbers.begin(), numbers.end(), first);
            std::string extents;
            for (const std::int64_t extent : tensor.extents) extents += text(extents.empty() ? "" : ",", extent);
            const std::size_t begin = data.size();
            data += bytes_of(numbers);
            header += text(header.empty() ? "" : ",", '"', name, "\":{\"dtype\":\"F32\",\"shape\":[", extents,
                           "],\"data_offsets\":[", begin, ",", data.size(), "]}");
        }
        return safetensors("{" + header + "}", data);
    }
};

struct Folder {
    TemporaryFolder folder;
    std::string path = folder.path("weights.pth");
    TrainingState state = small_checkpoint().state;

    Checkpoint read(const Saved& saved, const ReadOptions& options = {}) {
        write_bytes(path, saved.bytes());
        return read_checkpoint(path, Net::layers, options);
    }
    std::string refusal(const Saved& saved, const ReadOptions& options = {}) {
        return message_of<DataError>([&] { (void)read(saved, options); });
    }
    LoadReport load(const Saved& saved, const LoadOptions& options = {}) {
        write_bytes(path, saved.bytes());
        return load_parameters(*open_tensor_file(path), Net::layers, state, options);
    }
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a file of torch.save is read as a safetensors file with the same tensors is") {
    Folder f;
    const Saved saved;
    write_bytes(f.folder.path("weights.safetensors"), saved.safe_bytes());
    const Checkpoint wanted = read_checkpoint(f.folder.path("weights.safetensors"), Net::layers);
    const Checkpoint found = f.read(saved);
    CHECK(found.state.parameters == wanted.state.parameters);
    CHECK(found.state.step == 0);
    CHECK_FALSE(found.resumable);
    const LoadReport report = f.load(saved);
    CHECK(report.loaded == Names{"conv1.weight", "conv1.bias", "fc.weight", "fc.bias", "6.weight"});
    CHECK(report.complete());
    CHECK(f.state.parameters == wanted.state.parameters);
}

TEST_CASE("a tensor may be transposed in the file, or one element for all of a parameter") {
    Folder f;
    Saved saved;
    const std::vector<float> plain = f.read(saved).state.parameters;
    const auto weight = static_cast<std::size_t>(Net::layers.back().offsets[0]);
    CHECK(std::vector<float>(&plain[weight], &plain[weight] + 4) == std::vector<float>{0, 1, 2, 3});
    saved.at("6.weight").strides = {1, 2};
    const std::vector<float> transposed = f.read(saved).state.parameters;
    CHECK(std::vector<float>(&transposed[weight], &transposed[weight] + 4) == std::vector<float>{0, 2, 1, 3});
    saved.at("6.weight") = {.extents = {2, 2}, .strides = {0, 0}, .key = "4", .count = 4, .offset = 3};
    const std::vector<float> repeated = f.read(saved).state.parameters;
    CHECK(std::vector<float>(&repeated[weight], &repeated[weight] + 4) == std::vector<float>{3, 3, 3, 3});
    // A tensor of very many elements that are all one is compared by its extents, before any memory is taken for it.
    saved.at("6.weight").extents = {std::int64_t{1} << 31, std::int64_t{1} << 31};
    CHECK(f.refusal(saved) == f.path +
                                  " is a checkpoint of another network: its 6.weight is [2147483648,2147483648], and "
                                  "this network's is 2 x 2");
}

TEST_CASE(
    "missing, further and misshapen tensors have the messages of safetensors files, and an error changes nothing") {
    Folder f;
    Saved missing, more, misshapen, of_integers;
    missing.tensors.pop_back();
    CHECK(f.refusal(missing) == f.path + " is a checkpoint of another network: it has no tensor 6.weight");
    more.tensors.push_back({"head.bias", {.extents = {2}, .strides = {1}, .key = "5", .count = 2}});
    CHECK(f.refusal(more) ==
          f.path +
              " is a checkpoint of another network: it has a tensor head.bias, which this network does not have; "
              ".ignored = {\"head.bias\"} leaves it out");
    CHECK(f.read(more, {.ignored = {"head.*"}}).state.parameters == f.read({}).state.parameters);
    misshapen.at("fc.bias") = {.extents = {1, 2}, .strides = {2, 1}, .key = "3", .count = 2};
    CHECK(f.refusal(misshapen) ==
          f.path + " is a checkpoint of another network: its fc.bias is [1,2], and this network's is 2");
    of_integers.at("fc.bias").type = "IntStorage";
    CHECK(f.refusal(of_integers) ==
          f.path + ": fc.bias has elements of type I32; F32, F16, BF16 and F64 are supported");
    const std::vector<float> before = f.state.parameters;
    CHECK(message_of<DataError>([&] { (void)f.load(misshapen, {.require_all = true}); }) ==
          f.path + " lacks a part of what was to be loaded: fc.bias is 2 here and 1 x 2 in the file");
    CHECK(message_of<DataError>([&] { (void)f.load(of_integers); }) ==
          f.path + ": fc.bias has elements of type I32; F32, F16, BF16 and F64 are supported");
    Saved infinite;
    infinite.first = std::numeric_limits<float>::infinity();
    CHECK(message_of<DataError>([&] { (void)f.load(infinite); }) ==
          f.path + " cannot be used: its parameter conv1.weight is inf at [0, 0, 0, 0]");
    // The last storage of the file, and of it the last element in the network's order: transposed in the file.
    Saved last;
    last.at("6.weight").strides = {1, 2};
    std::string bytes = last.bytes();
    const std::size_t data = bytes.find(bytes_of(std::vector<float>{0, 1, 2, 3}), bytes.find("w/data/4"));
    REQUIRE(data != bytes.npos);
    bytes.replace(data + 4, 4, bytes_of(std::vector<float>{-std::numeric_limits<float>::infinity()}));
    write_bytes(f.path, bytes);
    CHECK(message_of<DataError>([&] { (void)load_parameters(*open_tensor_file(f.path), Net::layers, f.state); }) ==
          f.path + " cannot be used: its parameter 6.weight is -inf at [1, 0]");
    CHECK(message_of<DataError>([&] { (void)f.load({}, {.weights = Weights::averages}); }) ==
          f.path + " has no moving averages");
    CHECK(f.state.parameters == before);
    const LoadReport report = f.load(more);
    CHECK(report.unused == Names{"head.bias"});
}

TEST_CASE("what a wrapper of PyTorch's puts before all names is left out, and may be given all the same") {
    Folder f;
    const std::vector<float> wanted = f.read({}).state.parameters;
    Saved wrapped;
    for (const char* const prefix : {"module.", "_orig_mod.", "_orig_mod.module."}) {
        wrapped.prefix = prefix;
        CHECK(f.read(wrapped).state.parameters == wanted);
        CHECK(f.read(wrapped, {.file_prefix = prefix}).state.parameters == wanted);
        const LoadReport report = f.load(wrapped);
        CHECK(report.file_prefix == prefix);
        CHECK(report.loaded.size() == 5);
        CHECK(report.unused.empty());
    }
    struct Own : Sequential<Input<2, 2, 2>, Flatten, Named<"module.fc", Linear<2>>> {};
    Saved own;
    own.tensors = {{"module.fc.weight", {.extents = {2, 8}, .strides = {8, 1}, .key = "0", .count = 16}},
                   {"module.fc.bias", {.extents = {2}, .strides = {1}, .key = "1", .count = 2}}};
    write_bytes(f.path, own.bytes());
    CHECK(read_checkpoint(f.path, Own::layers).state.parameters.size() == std::size_t{Own::parameter_elements});
}
