// SPDX-License-Identifier: Apache-2.0
//
// Files of tensors by their first bytes, and models that are stored in several files with an index.
#include <cupola/io/open_tensor_file.hpp>

#include "../test.hpp"

#include <cupola/io/load_parameters.hpp>
#include <throws_with.hpp>

#include "checkpoint_support.hpp"
#include "file_support.hpp"
#include "torch_support.hpp"

using namespace io_tests;
using Floats = std::vector<float>;

namespace {

Floats floats_of(const TensorFile& file, const std::string& name) {
    const SafeTensor* const tensor = file.find(name);
    REQUIRE(tensor != nullptr);
    Floats values(tensor->elements(), -1);
    file.read_floats(*tensor, values.data());
    return values;
}

/// A safetensors file of vectors with the values first, first + 1, ...
struct Vector {
    std::string name, extents;
    std::size_t elements;
    float first;
};
std::string safetensors_of(const std::vector<Vector>& tensors) {
    std::string header, data;
    for (const Vector& each : tensors) {
        Floats values(each.elements);
        std::iota(values.begin(), values.end(), each.first);
        header += text(header.empty() ? "" : ",", '"', each.name, R"(":{"dtype":"F32","shape":[)", each.extents,
                       R"(],"data_offsets":[)", data.size(), ",", data.size() + 4 * each.elements, "]}");
        data += bytes_of(values);
    }
    return safetensors("{" + header + "}", data);
}

/// `Net` in two files and an index, as transformers writes them.
struct Model {
    TemporaryFolder folder;
    std::string path = folder.path("model.safetensors.index.json");
    std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";
    std::vector<std::pair<std::string, std::string>> map{{"6.weight", second},
                                                         {"conv1.bias", first},
                                                         {"conv1.weight", first},
                                                         {"fc.bias", second},
                                                         {"fc.weight", first}};
    Model() {
        write_bytes(folder.path(first), safetensors_of({{"conv1.weight", "3,2,1,1", 6, 1},
                                                        {"conv1.bias", "3", 3, 10},
                                                        {"fc.weight", "2,12", 24, 20},
                                                        {"not.named", "1", 1, 0}}));
        write_bytes(folder.path(second), safetensors_of({{"fc.bias", "2", 2, 50}, {"6.weight", "2,2", 4, 60}}));
        write(index());
    }
    [[nodiscard]] std::string index() const {
        std::string entries;
        for (const auto& [tensor, file] : map)
            entries += text(entries.empty() ? "" : ",", "\n    \"", tensor, "\": \"", file, '"');
        return "{\n  \"metadata\": {\n    \"total_size\": 156.0, \"of\": [{}, [1, -2e-3], {\"a\": null}]\n  },\n"
               "  \"weight_map\": {" +
               entries + "\n  }\n}\n";
    }
    void write(const std::string& bytes) const { write_bytes(path, bytes); }
    [[nodiscard]] std::string refusal() const {
        return message_of<DataError>([&] { (void)open_tensor_file(path); });
    }
    [[nodiscard]] std::string refusal(const std::string& bytes) const {
        write(bytes);
        return refusal();
    }
};

}  // namespace

TEST_CASE("the format is that of the first bytes, whatever the file is called") {
    const TemporaryFolder folder;
    const Floats values{0, 1, 2, 3, 4, 5};
    const std::string object = pickle::dictionary({{"a", pickle::tensor({.extents = {2, 3}, .strides = {3, 1}})}});
    write_bytes(folder.path("x.bin"), torch_zip(object, {bytes_of(values)}));
    write_bytes(folder.path("y.pth"), torch_legacy(object, {bytes_of(values)}));
    write_bytes(folder.path("z.pth"), safetensors_of({{"a", "6", 6, 0}}));
    write_bytes(folder.path("i.pth"), "{\"weight_map\":{\"a\":\"z.pth\"}}");
    write_bytes(folder.path("mark.json"), "\xEF\xBB\xBF{\"weight_map\":{\"a\":\"z.pth\"}}");  // of UTF-8
    for (const char* const name : {"x.bin", "y.pth", "z.pth", "i.pth", "mark.json"})
        CHECK(floats_of(*open_tensor_file(folder.path(name)), "a") == values);
    CHECK(message_of<UnreadableFile>([&] { (void)open_tensor_file(folder.path("none")); }) ==
          folder.path("none") + " does not exist");
    CHECK(message_of<DataError>([&] { (void)open_tensor_file(folder.path()); }) ==
          folder.path() + " is not a regular file");
    // Where the bytes are of no known format, the name tells what was expected.
    const auto refusal = [&](const std::string& name, const std::string& bytes) {
        write_bytes(folder.path(name), bytes);
        return message_of<DataError>([&] { (void)open_tensor_file(folder.path(name)); });
    };
    const std::string noise = "\x8F\x03 kept?\xFF" + std::string(100, 'n');
    for (const char* const name : {"n.pth", "n.pt", "pytorch_model.bin"}) {
        CHECK(refusal(name, noise) == folder.path(name) +
                                          " is neither a zip archive nor a pickle, as torch.save writes them: it "
                                          "begins with the bytes 8f 03 20 6b 65 70 74 3f");
        CHECK(refusal(name, "").ends_with("as torch.save writes them: it has no bytes"));
        CHECK(refusal(name, "<html>").ends_with("the download has returned a page"));
        // One in the safetensors format is read, and is cut short.
        std::string cut = safetensors_of({{"a", "6", 6, 0}});
        cut.pop_back();
        CHECK(contains(refusal(name, cut), " is truncated: "));
    }
    CHECK(contains(refusal("n.safetensors", noise), " is not a safetensors file: "));
    // The length of a header may begin with a brace, or with the bytes of a pickle or of what gzip packs.
    for (const std::size_t length : {123U, 0x0280U, 0x0380U, 0x0480U, 0x0580U, 0x8B1FU, 0x010280U}) {
        CAPTURE(length);
        std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
        header.resize(length, ' ');
        for (const char* const name : {"b", "b.pth", "b.safetensors"}) {
            write_bytes(folder.path(name), safetensors(header, "x"));
            CHECK(open_tensor_file(folder.path(name))->tensors().size() == 1);
            CHECK(contains(refusal(name, safetensors(header).substr(0, length)), " is truncated"));
        }
    }
}

TEST_CASE("a tensor by a name that the file does not have is an error with the closest names") {
    const Model model;
    const std::unique_ptr<TensorFile> file = open_tensor_file(model.path);
    CHECK(&file->at("fc.bias") == file->find("fc.bias"));
    const auto refusal = [&](const std::string& name) { return message_of<DataError>([&] { (void)file->at(name); }); };
    CHECK(refusal("fc.wieght") ==
          model.path + " has no tensor fc.wieght; the closest in it: fc.weight, 6.weight, fc.bias");
    CHECK(refusal("conv.bias") ==
          model.path + " has no tensor conv.bias; the closest in it: conv1.bias, fc.bias, conv1.weight");
    CHECK(refusal("").ends_with("the closest in it: fc.bias, 6.weight, fc.weight"));
    const TemporaryFolder folder;
    write_bytes(folder.path("one"), safetensors_of({{"a", "1", 1, 0}}));
    CHECK(message_of<DataError>([&] { (void)open_tensor_file(folder.path("one"))->at("b"); }) ==
          folder.path("one") + " has no tensor b; the closest in it: a");
    write_bytes(folder.path("none"), safetensors("{}"));
    CHECK(message_of<DataError>([&] { (void)open_tensor_file(folder.path("none"))->at("b"); }) ==
          folder.path("none") + " has no tensor b: it has no tensors");
}

TEST_CASE("the tensors of an index are those of its files, and load as those of one file do") {
    const Model model;
    const std::unique_ptr<TensorFile> file = open_tensor_file(model.path);
    CHECK(file->tensors().size() == 5);
    CHECK(file->find("not.named") == nullptr);
    CHECK(file->path() == model.path);
    CHECK(floats_of(*file, "fc.bias") == Floats{50, 51});
    CHECK(floats_of(*file, "conv1.bias") == Floats{10, 11, 12});
    Floats part(2);
    file->read_floats(*file->find("6.weight"), 1, part);
    CHECK(part == Floats{61, 62});
    const TemporaryFolder folder;
    write_bytes(folder.path("one"), safetensors_of({{"conv1.weight", "3,2,1,1", 6, 1},
                                                    {"conv1.bias", "3", 3, 10},
                                                    {"fc.weight", "2,12", 24, 20},
                                                    {"fc.bias", "2", 2, 50},
                                                    {"6.weight", "2,2", 4, 60}}));
    const Floats wanted = read_checkpoint(folder.path("one"), Net::layers).state.parameters;
    CHECK(read_checkpoint(model.path, Net::layers).state.parameters == wanted);
    TrainingState state = small_checkpoint().state;
    CHECK(load_parameters(*file, Net::layers, state, {.require_all = true}).loaded.size() == 5);
    CHECK(state.parameters == wanted);
}

TEST_CASE("the files of an index may be those of torch.save, with what a wrapper has put before every name") {
    const TemporaryFolder folder;
    const pickle::Tensor weight{.extents = {2, 2}, .strides = {1, 2}, .count = 4},
        bias{.extents = {2}, .strides = {1}, .count = 2};
    struct Small : Sequential<Input<2>, Named<"fc", Linear<2>>> {};
    write_bytes(
        folder.path("pytorch_model-00001-of-00002.bin"),
        torch_zip(pickle::dictionary({{"module.fc.weight", pickle::tensor(weight)}}), {bytes_of(Floats{1, 2, 3, 4})}));
    write_bytes(folder.path("pytorch_model-00002-of-00002.bin"),
                torch_zip(pickle::dictionary({{"module.fc.bias", pickle::tensor(bias)}}), {bytes_of(Floats{5, 6})}));
    const std::string path = folder.path("pytorch_model.bin.index.json");
    write_bytes(path, R"({"weight_map": {"module.fc.weight": "pytorch_model-00001-of-00002.bin",
                                         "module.fc.bias": "pytorch_model-00002-of-00002.bin"}})");
    const Floats parameters = read_checkpoint(path, Small::layers).state.parameters;
    CHECK(Floats(&parameters[0], &parameters[4]) == Floats{1, 3, 2, 4});
}

TEST_CASE("a file of an index that is missing, damaged or without its tensor is an error that names the tensor") {
    Model model;
    std::filesystem::remove(model.folder.path(model.second));
    CHECK(model.refusal() == model.path + ": the file of its tensor 6.weight cannot be used: " +
                                 model.folder.path(model.second) + " does not exist");
    write_bytes(model.folder.path(model.second), safetensors_of({{"fc.bias", "2", 2, 50}}));
    CHECK(model.refusal() ==
          model.path + " is damaged: its tensor 6.weight is not in " + model.folder.path(model.second));
    const std::string whole = read_bytes(model.folder.path(model.first));
    write_bytes(model.folder.path(model.first), whole.substr(0, whole.size() - 4));
    CHECK(model.refusal() ==
          model.path + ": the file of its tensor conv1.bias cannot be used: " + model.folder.path(model.first) +
              " is truncated: 4 of the 136 bytes of its tensors are missing");
    // An error changes nothing.
    TrainingState state = small_checkpoint().state;
    const Floats before = state.parameters;
    CHECK(contains(
        message_of<DataError>([&] { (void)load_parameters(*open_tensor_file(model.path), Net::layers, state); }),
        "cannot be used"));
    CHECK(state.parameters == before);
    // Nor is an index a file of one.
    CHECK(contains(model.refusal("{\"weight_map\":{\"a\":\"model.safetensors.index.json\"}}"),
                   "the file of its tensor a cannot be used: " + model.path + " is an index of several files"));
}

TEST_CASE("an index names files of its own folder alone") {
    const Model model;
    for (const char* const name : {"", ".", "..", "../x", "/etc/passwd", "sub/x", "./x", "a\\u0000b"}) {
        const std::string said = model.refusal(text(R"({"weight_map":{"b":")", name, R"("}})"));
        CHECK(said.starts_with(model.path + " names the file '"));
        CHECK(said.ends_with("' for its tensor b, and only files in the folder of the index are read"));
    }
    CHECK(contains(model.refusal(R"({"weight_map":{"b":"\u002e\u002e\/x"}})"), "names the file '../x'"));
}

TEST_CASE("each defect of an index is an error") {
    const Model model;
    const std::string at = model.path + " is damaged or is not an index of files of tensors: at byte ";
    CHECK(model.refusal("{") == at + "1 '\"' is missing");
    CHECK(model.refusal(R"({"weight_map":{}} x)") == at + "18 text follows its end");
    CHECK(model.refusal(R"({"weight_map":{"a":1}})") == at + "19 '\"' is missing");
    CHECK(model.refusal(R"({"weight_map":["a"]})") == at + "14 '{' is missing");
    CHECK(model.refusal(R"({"weight_map":{},"weight_map":{}})") == at + "30 weight_map appears twice");
    CHECK(model.refusal(R"({"weight_map":{"a":"x","\u0061":"y"}})") ==
          model.path + " is damaged: it has the tensor a twice");
    CHECK(model.refusal(R"({"metadata":{"a":}})") == at + "17 a value is missing");
    CHECK(model.refusal(R"({"hidden_size": 768})") ==
          model.path +
              " is a JSON text, and not in the safetensors format: it has no weight_map either, which an index "
              "of several files has");
    const std::string whole = model.index();
    for (std::size_t size = whole.find('{') + 1; size < whole.rfind('}'); ++size)
        CHECK(model.refusal(whole.substr(0, size)).starts_with(at));
    CHECK(open_tensor_file((model.write(R"({"weight_map":{}})"), model.path))->tensors().empty());
    std::filesystem::resize_file(model.path, ShardedFile::max_index_bytes + 1);
    CHECK(message_of<DataError>([&] { ShardedFile file(model.path); }) ==
          model.path + " has 16777217 bytes, and an index at most 16777216");
    std::string many;
    for (std::size_t i = 0; i <= ShardedFile::max_files; ++i) {
        const std::string name = text("x", i);
        write_bytes(model.folder.path(name), safetensors_of({{name, "1", 1, 0}}));
        many += text(i == 0 ? "" : ",", '"', name, "\":\"", name, '"');
    }
    CHECK(model.refusal("{\"weight_map\":{" + many + "}}") == model.path + " names more than 512 files");
}
